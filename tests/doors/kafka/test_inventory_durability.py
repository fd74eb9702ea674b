"""Topics of the inventory whose durability a policy has chosen, with Kafka clients and Python."""

from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from tests.clients import CONFLUENT, Record, until

import duramen
from duramen.node.process import NodeProcess


def durability_of(admin: AdminClient, topic: str) -> str:
    """What DescribeConfigs says."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    found: str = admin.describe_configs([resource])[resource].result(30)["durability"].value
    return found


def test_new_topics_have_the_durability_of_the_policy_and_keep_it(
    node: NodeProcess, tenant: str, admin: AdminClient
) -> None:
    with duramen.connect(node.http) as client:
        inventory, policies = client.inventory, client.inventory.policies
        inventory.create_topics(f"{tenant}/prod", ["old"])
        policies.set(tenant, {"durability": "os", "auto.create.topics.enable": True, "quota.bytes": 1_000_000})
        inventory.create_topics(f"{tenant}/prod", ["new", *(f"bulk-{number}" for number in range(2_000))])
        for name in ("new", "auto"):
            CONFLUENT.produce(node.kafka, f"{tenant}.prod.{name}", [Record(name.encode(), b"key")])
        policies.set(tenant, {"durability": None})
        inventory.move_topic(f"{tenant}/prod/new", f"{tenant}/dev/moved", keep_alias=True)
        expected = {"prod/old": "sync", "dev/moved": "os", "prod/new": "os", "prod/bulk-1999": "os", "prod/auto": "os"}
        for path, durability in expected.items():
            assert inventory.topic(f"{tenant}/{path}").durability == durability
            shown = policies.describe(f"{tenant}/{path}").effective["durability"]
            assert (shown.value, shown.source) == (durability, "topic")
        assert [durability_of(admin, f"{tenant}.{name}") for name in ("prod.old", "dev.moved")] == ["sync", "os"]
        assert [one.value for one in CONFLUENT.consume(node.kafka, f"{tenant}.prod.new", 1, 1)] == [b"new"]
        assert policies.describe(tenant).quotas[0].used > 80
        assert UUID(inventory.topic(f"{tenant}/dev/moved").id).hex in client.queues("__inventory_queues_os").queues()
        python = client.consume(f"{tenant}.dev.moved")
        assert [record.value for batch in python for record in batch] == [b"new"]


@pytest.mark.long
def test_a_killed_node_keeps_what_it_has_acknowledged(tmp_path: Path) -> None:
    values = [b"%d" % number for number in range(500)]
    with NodeProcess(tmp_path) as node:
        with duramen.connect(node.http) as client:
            client.inventory.create_tenants(["shop"])
            client.inventory.create_namespaces("shop", ["prod", "gone"])
            client.inventory.policies.set("shop", {"durability": "os"})
            for namespace in ("prod", "gone"):
                client.inventory.create_topics(f"shop/{namespace}", ["a"])
                CONFLUENT.produce(node.kafka, f"shop.{namespace}.a", [Record(value) for value in values])
            client.inventory.delete_namespace("shop/gone")
        node.kill()
        node.restart()
        with duramen.connect(node.http) as client:
            assert client.inventory.topic("shop/prod/a").durability == "os"
            assert [read.value for read in CONFLUENT.consume(node.kafka, "shop.prod.a", 1, len(values))] == values
            until(lambda: len(client.queues("__inventory_queues_os").queues()) == 1)
            client.inventory.create_topics("shop/prod", ["b"])
            assert client.inventory.topic("shop/prod/b").durability == "os"
