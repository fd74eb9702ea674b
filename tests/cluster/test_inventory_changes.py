"""Subscriptions to the inventory on three real nodes: any node tells each change once, also over a killed leader."""

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from nats.aio.client import Client as NatsClient
from tests.clients import until
from tests.doors.http.test_changes import events
from tests.doors.nats.conftest import run

from duramen.base.errors import DuramenError
from duramen.client.api.client import Client, connect
from duramen.client.api.inventory.changes import InventoryChange, Subscription
from duramen.node.processes import NodeProcesses

WAIT_S = 60.0
SETTINGS = {"inventory.shards": 3, "inventory.queue.shards": 3}


def created(client: Client, *names: str) -> bool:
    """Create topics; whether they are there."""
    try:
        return not client.inventory.create_topics("shop/prod", names).failed
    except DuramenError:
        return False


@pytest.mark.long
def test_changes_are_told_once_wherever_a_client_asks(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, 3, SETTINGS, nats=True) as nodes:
        clients = [connect(node.http) for node in nodes.nodes.values()]
        one, two, _ = (client.inventory for client in clients)
        assert one.create_tenants(["shop"]).created == 1
        until(lambda: not two.create_namespaces("shop", ["prod", "dev"]).failed, WAIT_S)
        told: list[str] = []
        stream = events(nodes.nodes[1], "/v1/changes?tenant=shop&namespace=prod")
        kind, position, _ = next(stream)
        assert kind == "position"

        def follow() -> None:
            for kind, _, data in stream:
                if kind == "topics-created":
                    told.extend(topic["name"] for topic in data["topics"])
                    if "end" in told:
                        return

        reading = Thread(target=follow)
        reading.start()
        for number in range(20):
            until(lambda number=number: created(clients[number % 3], f"t{number}"), WAIT_S)  # type: ignore[misc]
        nodes.nodes[3].kill()
        for number in range(20, 40):
            until(lambda number=number: created(clients[number % 2], f"t{number}"), WAIT_S)  # type: ignore[misc]
        until(lambda: created(clients[1], "end"), WAIT_S)
        reading.join(WAIT_S)
        names = sorted([*(f"t{number}" for number in range(40)), "end"])
        assert sorted(told) == names
        again = clients[1].inventory.subscribe("shop/prod", position=position)
        assert sorted(topic.name for change in polled(again) for topic in change.topics) == names
        answers: list[Any] = []

        async def ask(client: NatsClient) -> None:
            wish = {"tenant": "shop", "namespace": "prod", "position": position, "limit": 1}
            answer = await client.request("$DURAMEN.I.changes", json.dumps(wish).encode(), timeout=30)
            answers.append(json.loads(answer.data))

        run(ask, nodes.nodes[2].nats)
        assert [change["kind"] for change in answers[0]["changes"]] == ["topics-created"]
        for client in clients:
            client.close()


def polled(changes: Subscription) -> Iterator[InventoryChange]:
    """All there are now."""
    while found := changes.poll():
        yield from found
