"""Policies on a cluster of three real nodes: set anywhere, in force everywhere, and who does not confirm is named."""

from pathlib import Path

import pytest
from tests.clients import CONFLUENT, Record, until

import duramen
from duramen.client.api.client import connect
from duramen.node.processes import NodeProcesses

WAIT_S = 60.0
SETTINGS = {"inventory.shards": 3, "inventory.queue.shards": 3}


@pytest.mark.long
def test_a_policy_is_effective_once_every_node_confirms(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        one, two, three = (client.inventory for client in clients)
        assert one.create_tenants(["shop"]).created == 1
        until(lambda: two.create_namespaces("shop", ["prod"]).created == 1, WAIT_S)
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
