"""Policies on a cluster of three real nodes: set anywhere, in force everywhere, and who does not confirm is named."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Producer
from tests.clients import CONFLUENT, Record, until

import duramen
from duramen.base.errors import DuramenError
from duramen.client.api.client import connect
from duramen.client.api.queues.queues import Queues
from duramen.codec.kafka.errors import ErrorCode
from duramen.node.processes import NodeProcesses

WAIT_S = 60.0
SETTINGS = {"inventory.shards": 3, "inventory.queue.shards": 3}


@pytest.mark.long
def test_a_policy_is_effective_once_every_node_confirms(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        one, two, three = (client.inventory for client in clients)
        assert one.create_tenants(["shop"]).created == 1
        until(lambda: not two.create_namespaces("shop", ["prod"]).failed, WAIT_S)
        changes = {"auto.create.topics.enable": True, "quota.topics": 2}
        assert two.policies.set("shop", changes, wait_effective=True).confirmed == [1, 2, 3]
        for inventory in (one, two, three):
            found = inventory.policies.describe("shop/prod")
            assert found.effective["quota.topics"].value == 2
        CONFLUENT.produce(nodes.bootstrap_servers, "shop.prod.orders", [Record(b"1", b"key")])
        assert three.topic("shop/prod/orders").name == "orders"
        made = three.create_topics("shop/prod", ["orders", "second", "third"])
        assert (made.created, made.existing, list(made.failed)) == (1, 1, ["third"])
        assert one.policies.set("shop/prod/orders", {"producer_byte_rate": 7}).own == {"producer_byte_rate": 7}
        assert two.policies.describe("shop/prod/orders").own == {"producer_byte_rate": 7}
        nodes.pause(3)
        until(lambda: "node 3" in unconfirmed(one), WAIT_S)
        nodes.resume(3)
        until(lambda: confirmed(one) == [1, 2, 3], WAIT_S)
        for client in clients:
            client.close()


@pytest.mark.long
def test_bytes_and_retention_are_bounded_whichever_node_leads(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        one, two, three = (client.inventory for client in clients)
        assert one.create_tenants(["shop"]).created == 1
        until(lambda: not two.create_namespaces("shop", ["prod", "test"]).failed, WAIT_S)
        names = [f"topic-{number}" for number in range(6)]  # in all shards, most of them
        until(lambda: not three.create_topics("shop/prod", names).failed, WAIT_S)
        one.policies.set("shop", {"quota.bytes": 20_000}, wait_effective=True)

        def stored(inventory: duramen.Inventory) -> int:
            found = inventory.policies.describe("shop/prod").quotas
            return sum(one.used for one in found if one.policy == "quota.bytes")

        for name in names:
            CONFLUENT.produce(nodes.bootstrap_servers, f"shop.prod.{name}", [Record(bytes(3_000), None)])
        for inventory in (one, two, three):
            assert 18_000 < stored(inventory) < 19_000
        until(lambda: refused(nodes.bootstrap_servers, "shop.prod.topic-0"), WAIT_S)
        two.move_topic("shop/prod/topic-0", "shop/test/topic-0")
        three.policies.set("shop/test/topic-0", {"retention.ms": -1, "retention.records": -1})
        two.policies.set("shop", {"retention.records": 0, "retention.ms": 1_000})
        until(lambda: stored(three) == 3_000 + 33, WAIT_S)  # of the tenant: but one topic keeps what it has
        assert not refused(nodes.bootstrap_servers, "shop.prod.topic-1")
        for client in clients:
            client.close()


@pytest.mark.long
def test_topics_of_either_durability_keep_their_records_until_they_are_deleted(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        one, two, three = (client.inventory for client in clients)
        assert one.create_tenants(["shop"]).created == 1
        until(lambda: not two.create_namespaces("shop", ["prod", "test", "gone"]).failed, WAIT_S)
        until(lambda: not three.create_topics("shop/prod", ["sync"]).failed, WAIT_S)
        one.policies.set("shop", {"durability": "os"}, wait_effective=True)
        names = [f"topic-{number}" for number in range(6)]
        until(lambda: not two.create_topics("shop/prod", names).failed, WAIT_S)
        until(lambda: not three.create_topics("shop/gone", names).failed, WAIT_S)
        for topic in ("prod.sync", *(f"{namespace}.{name}" for namespace in ("prod", "gone") for name in names)):
            CONFLUENT.produce(nodes.bootstrap_servers, f"shop.{topic}", [Record(topic.encode(), None)])
        three.move_topic("shop/gone/topic-5", "shop/test/moved")
        one.delete_namespace("shop/gone")
        two.delete_topic("shop/prod/topic-0")
        kept = [*(f"prod/{name}" for name in names[1:]), "test/moved"]
        stored = {UUID(two.topic(f"shop/{path}").id).hex for path in kept}
        nodes.nodes[3].kill()
        spaces = [clients[0].queues(f"__inventory_queues{end}") for end in ("", "_os")]
        until(lambda: found_in(spaces[1]) == stored, WAIT_S)
        assert found_in(spaces[0]) == {UUID(one.topic("shop/prod/sync").id).hex}
        for path in kept:
            assert one.topic(f"shop/{path}").durability == "os"
            topic = f"shop.{path.replace('/', '.')}"
            value = b"gone.topic-5" if path == "test/moved" else topic.removeprefix("shop.").encode()
            read = CONFLUENT.consume(nodes.bootstrap_servers, topic, 1, 1)
            assert [record.value for record in read] == [value]
        for client in clients:
            client.close()


def found_in(space: Queues) -> set[str]:
    """The queues of a space; none while a shard has no leader."""
    try:
        return set(space.queues())
    except DuramenError:
        return set()


def refused(servers: str, topic: str) -> bool:
    """Whether a topic takes no record because of a quota."""
    errors = list[Any]()
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(topic, bytes(3_000), on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors[0] is None or errors[0].code() == ErrorCode.POLICY_VIOLATION
    return errors[0] is not None


def unconfirmed(inventory: duramen.Inventory) -> str:
    """What is said of nodes that do not confirm a change; empty where all do, or it cannot be made now."""
    try:
        inventory.policies.set("shop", {"quota.topics": 5}, wait_effective=True)
    except duramen.errors.PolicyNotEffective as error:
        return str(error)
    except duramen.errors.DuramenError:
        return ""
    return ""


def confirmed(inventory: duramen.Inventory) -> list[int]:
    """The nodes that have confirmed a change."""
    try:
        return inventory.policies.set("shop", {"quota.topics": 6}, wait_effective=True).confirmed
    except duramen.errors.DuramenError:
        return []
