"""Queues by NATS request and reply, with an unmodified client."""

import json
from typing import Any

from nats.aio.client import Client
from tests.doors.nats.conftest import Api, run, until

from duramen.node.process import NodeProcess


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
