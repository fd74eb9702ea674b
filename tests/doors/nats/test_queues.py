"""Queues by NATS request and reply, with an unmodified client."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from nats.aio.client import Client
from tests.doors.nats.conftest import Api, run, until

import duramen
from duramen.node.process import NodeProcess

LARGEST_ANSWER_BYTES = 1024 * 1024
Ask = Callable[..., Awaitable[Any]]


def asks(client: Client, space: str) -> Ask:
    """Sends a request about a space, and gives its answer."""

    async def ask(operation: str, **wish: object) -> Any:
        answer = await client.request(f"$DURAMEN.Q.{space}.{operation}", json.dumps(wish).encode(), timeout=30)
        assert len(answer.data) <= LARGEST_ANSWER_BYTES
        return json.loads(answer.data)

    return ask


def test_queues_are_used_by_request_and_reply(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    api.call("POST", "/v1/spaces", {"name": prefix, "shards": 2})

    async def test(client: Client) -> None:
        async def ask(operation: str, space: str = prefix, **wish: object) -> tuple[str, Any]:
            subject = f"$DURAMEN.Q.{space}.{operation}"
            answer = await client.request(subject, json.dumps(wish).encode(), timeout=30)
            return (answer.headers or {}).get("Nats-Service-Error-Code", ""), json.loads(answer.data)

        put: dict[str, Any] = {
            "entries": [{"queue": "ann", "value": "one"}, {"queue": "ann", "value": "two"}],
            "request": "r",
        }
        _, placed = await ask("enqueue", **put)
        assert await ask("enqueue", **put) == ("", placed)
        first, second = placed["positions"]
        edited = await ask("edit", queue="ann", entries=[{"position": first, "value": "1"}])
        assert edited[0] == ""
        _, found = await ask("retrieve", queues=[{"queue": "ann"}])
        assert [one["value"] for one in found["queues"][0]["entries"]] == ["1", "two"]
        _, leased = await ask("lease", queues=["ann", "bob"], limit=5)
        places = [{name: one[name] for name in ("queue", "position", "lease")} for one in leased["entries"]]
        assert await ask("ack", entries=places) == ("", {"refused": []})
        code, problem = await ask("delete", queue="ann", entries=[{"position": second}])
        assert (code, problem["type"]) == ("410", "queue-entry-gone")
        waiting = client.request(
            f"$DURAMEN.Q.{prefix}.lease", json.dumps({"queues": ["bob"], "wait_ms": 20_000}).encode(), timeout=30
        )
        await ask("enqueue", entries=[{"queue": "bob", "value": "three"}])
        assert json.loads((await waiting).data)["entries"][0]["value"] == "three"
        assert (await ask("stats", queue="bob"))[1]["leased"] == 1
        assert (await ask("purge", queue="bob"))[1] is None
        assert (await ask("lease", space="nobody-made-this", queues=["ann"]))[1]["type"] == "queue-space-not-found"
        assert (await ask("nonsense"))[1]["type"] == "request-invalid"
        assert (await ask("lease", queues=[]))[1]["type"] == "request-invalid"

    run(test, nats_node.nats)
    until(lambda: api.ready()[0] == 200)


VALUES: dict[str, str | bytes] = {
    "text": "x" * 1000, "controls": "\x01" * 1000, "escaped": '"\n' * 500, "umlauts": "é" * 500,
    "bytes": b"\xff" * 1000, "none": "",
}  # fmt: skip


@pytest.mark.parametrize("value", VALUES.values(), ids=VALUES)
def test_nothing_is_leased_that_an_answer_does_not_carry(
    nats_node: NodeProcess, api: Api, prefix: str, value: str | bytes
) -> None:
    names, count = [f"queue-{number}" for number in range(6)], 100 if value else 600
    config = {"queue.dead.letter.queue": "dead", "queue.delivery.count.limit": 1}
    api.call("POST", "/v1/spaces", {"name": prefix, "shards": 2, "config": config})
    with duramen.connect(nats_node.http) as connected:
        connected.queues(prefix).enqueue_many([(name, value) for name in names for _ in range(count)])

    async def test(client: Client) -> None:
        ask, found = asks(client, prefix), Counter[str]()
        while leased := (await ask("lease", queues=names, limit=10_000))["entries"]:
            found.update(one["queue"] for one in leased)
            assert {one["deliveries"] for one in leased} == {1}
            places = [{name: one[name] for name in ("queue", "position", "lease")} for one in leased]
            for first in range(0, len(places), 5_000):
                assert await ask("ack", entries=places[first : first + 5_000]) == {"refused": []}
        assert found == dict.fromkeys(names, count)
        assert (await ask("stats", queue="dead"))["entries"] == 0

    run(test, nats_node.nats)


def test_an_entry_that_no_answer_can_carry_is_named_and_not_counted(
    nats_node: NodeProcess, api: Api, prefix: str
) -> None:
    api.call("POST", "/v1/spaces", {"name": prefix, "shards": 1})
    with duramen.connect(nats_node.http) as connected:
        queues = connected.queues(prefix)
        (large,) = queues.enqueue("large", [b"\xff" * 900_000])
        for queue, value in (("small", "x"), ("full", "y" * 700_000), ("full", "z" * 700_000)):
            queues.enqueue(queue, [value])

        async def test(client: Client) -> None:
            ask = asks(client, prefix)
            for _ in range(3):
                refused = await ask("lease", queues=["large"], wait_ms=1000)
                assert refused["type"] == "queue-entry-too-large"
                assert large in refused["detail"]
            (leased,) = (await ask("lease", queues=["large", "small"], limit=10))["entries"]
            assert leased["value"] == "x"
            reads = [{"queue": name} for name in ("large", "small", "full")]
            refused, small, full = (await ask("retrieve", queues=reads))["queues"]
            assert refused["problem"]["type"] == "queue-entry-too-large"
            assert [one["value"] for one in small["entries"]] == ["x"]
            both = [one["value"][0] for one in full["entries"]]
            for _ in range(3):
                (full,) = (await ask("retrieve", queues=[{"queue": "full", "from": full["next"]}]))["queues"]
                both += [one["value"][0] for one in full["entries"]]
            assert both == ["y", "z"]

        run(test, nats_node.nats)
        assert queues.stats("large").leased == 0
        assert [one.deliveries for one in queues.lease(["large"])] == [1]
