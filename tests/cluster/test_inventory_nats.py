"""NATS publishers reach topics of the inventory on three real nodes; a killed leader loses nothing acknowledged."""

import asyncio
import json
from pathlib import Path

import pytest
from nats.aio.client import Client as NatsClient
from nats.errors import Error as NatsError
from tests.clients import CONFLUENT, until
from tests.doors.nats.conftest import run

from duramen.client.api.client import connect
from duramen.node.processes import NodeProcesses

WAIT_S = 60.0
SETTINGS = {"inventory.shards": 3, "inventory.queue.shards": 3}
TOPICS = 6


async def publish(client: NatsClient, subject: str, value: bytes) -> bool:
    """Whether a message is acknowledged."""
    try:
        answer = json.loads((await client.request(subject, value, timeout=5)).data)
    except NatsError:
        await asyncio.sleep(0.1)
        return False
    return "error" not in answer


@pytest.mark.long
def test_publishers_at_any_node_reach_the_topics(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS, nats=True) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        one, two, three = (client.inventory for client in clients)
        assert one.create_tenants(["shop"]).created == 1
        until(lambda: not two.create_namespaces("shop", ["prod", "dev"]).failed, WAIT_S)
        names = [f"t{number}" for number in range(TOPICS)]
        assert three.create_topics("shop/prod", names).created == TOPICS
        assert two.update_namespace("shop/prod", subjects=["shop.events.>"]).subjects == ["shop.events.>"]
        acknowledged: dict[str, list[bytes]] = {name: [] for name in names}

        async def some(client: NatsClient, first: int) -> None:
            for name in names:
                for number in range(first, first + 5):
                    value = b"%d" % number
                    while not await publish(client, f"shop.events.{name}", value):
                        value += b"+"  # it may be stored all the same
                    acknowledged[name].append(value)

        for number, node in nodes.nodes.items():
            run(lambda client, number=number: some(client, 10 * number), node.nats)  # type: ignore[misc]

        async def missing(client: NatsClient) -> None:
            answer = json.loads((await client.request("shop.events.nothing", b"", timeout=30)).data)
            assert "there is no topic shop/prod/nothing" in answer["error"]["description"]

        run(missing, nodes.nodes[3].nats)
        one.move_topic("shop/prod/t0", "shop/dev/t0")
        two.move_topic("shop/dev/t0", "shop/prod/t0")
        nodes.nodes[3].kill()
        run(lambda client: some(client, 100), nodes.nodes[1].nats)
        for name, values in acknowledged.items():
            read = [
                one.value for one in CONFLUENT.consume(nodes.bootstrap_servers, f"shop.prod.{name}", 1, len(values))
            ]
            stored = [value for value in read if value in values]
            assert stored[: len(values)] == values[: len(stored)]
            assert len(stored) == len(set(stored))
        assert two.update_namespace("shop/prod", subjects=[]).subjects == []
        for client in clients:
            client.close()
