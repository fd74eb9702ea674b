"""Requests about queues and the inventory over NATS with wrong values in every place.

Each is answered, none is an error of the node, and afterwards every queue takes entries.
"""

import asyncio
import copy
import json
import random
from collections.abc import Iterator
from typing import Any, Final

import pytest
from nats.aio.client import Client
from tests.doors.nats.conftest import Api, run

from duramen.node.process import NodeProcess

SPACE: Final = "hostile"
QUEUES: Final = ("ann", "bob")
HUGE: Final = (10**18, 1 << 63, 1 << 64, 10**40, -(1 << 63) - 1)
WRONG: Final[tuple[Any, ...]] = (
    None, True, -1, 1.5, 1e308, *HUGE, "", "\0", "\u202e", "a" * 300, "9" * 400, "1.99999999999999999999",
    "99999999999.1", "1.1", "end", [], [None], [["a", "a"]] * 2, {}, {"base64": "!!"}, {"a": {"a": {"a": [[[]]]}}},
)  # fmt: skip
_LEASED: Final = {"queue": "ann", "position": "1.0", "lease": "1.1"}
_ENTRY: Final = {
    "value": "v", "key": "k", "headers": [["h", "v"]], "timestamp": 1, "delay_ms": 1, "ttl_ms": 60_000,
}  # fmt: skip
REQUESTS: Final[dict[str, dict[str, Any]]] = {
    "enqueue": {"entries": [{"queue": "ann", **_ENTRY}, {"queue": "bob", "value": "v"}], "request": "r"},
    "retrieve": {"queues": [{"queue": "ann", "from": "1.0"}], "limit": 1, "max_bytes": 1, "wait_ms": 0},
    "edit": {"queue": "ann", "entries": [{"position": "1.0", "value": "v", "version": 1}], "request": "r"},
    "delete": {"queue": "ann", "entries": [{"position": "1.0", "version": 1}], "request": "r"},
    "replace": {"queue": "bob", "from": "start", "entries": [_ENTRY], "by": "b", "reason": "r", "request": "r"},
    "lease": {"queues": ["ann"], "limit": 1, "lease_ms": 1, "wait_ms": 0, "fifo": True},
    "ack": {"entries": [_LEASED], "request": "r"},
    "nack": {"entries": [_LEASED], "delay_ms": 1, "request": "r"},
    "extend": {"entries": [_LEASED], "lease_ms": 1},
    "queues": {"prefix": "a", "after": "", "limit": 1},
    "stats": {"queue": "ann"},
    "usage": {},
    "purge": {"queue": "bob", "request": "r"},
    "drop": {"queue": "bob", "request": "r"},
}
CHANGES: Final = {
    "account": "default", "tenant": SPACE, "namespace": "n", "topic": "a", "position": "0", "limit": 1, "wait_ms": 0,
    "follow": "1.1",
}  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of everything in a request."""
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield from places(one, (*path, key))


def changed(request: dict[str, Any], path: tuple[Any, ...], wrong: Any) -> Any:
    if not path:
        return wrong
    result = copy.deepcopy(request)
    parent: Any = result
    for key in path[:-1]:
        parent = parent[key]
    parent[path[-1]] = wrong
    return result


def hostile(request: dict[str, Any], rng: random.Random, count: int) -> Iterator[Any]:
    """The request with one wrong value, `count` values for each place, each with a request id: none is a repeat."""
    for path in places(request):
        for wrong in rng.sample(WRONG, count):
            result = changed(request, path, wrong)
            if isinstance(result, dict) and result.get("request") == "r":
                result["request"] = f"{rng.getrandbits(64)}"
            yield result


@pytest.mark.parametrize("count", [4, pytest.param(len(WRONG), marks=pytest.mark.long)])
def test_each_request_is_answered_and_none_is_an_error_of_the_node(
    count: int, nats_node: NodeProcess, api: Api
) -> None:
    api.call("POST", "/v1/spaces", {"name": SPACE, "shards": 1})
    api.call("POST", "/v1/tenants", {"names": [SPACE]})
    rng = random.Random(count)
    wanted = [
        (f"$DURAMEN.Q.{SPACE}.{name}", body)
        for name, request in REQUESTS.items()
        for body in hostile(request, rng, count)
    ]  # fmt: skip
    wanted += [("$DURAMEN.I.changes", body) for body in hostile(CHANGES, rng, count)]

    async def check(client: Client) -> None:
        async def answered(subject: str, body: Any) -> Any:
            answer = await client.request(subject, json.dumps(body).encode(), timeout=60)
            document = json.loads(answer.data) or {}
            assert document.get("status", 200) < 500, (subject, body, document)
            return document

        for at in range(0, len(wanted), 100):
            await asyncio.gather(*(answered(*one) for one in wanted[at : at + 100]))
        for queue in QUEUES:
            entries = [{"queue": queue, "value": "v"}]
            assert len((await answered(f"$DURAMEN.Q.{SPACE}.enqueue", {"entries": entries}))["positions"]) == 1

    run(check, nats_node.nats)
    assert "Traceback" not in nats_node.log_path.read_text()


@pytest.mark.parametrize("body", [b"\xff", b'{"queue": "\xff"}', b'{"entries": [{"queue": "ann", "value": "\xc3"}]}'])
def test_a_request_that_is_not_utf_8_is_refused_as_over_http(body: bytes, nats_node: NodeProcess, api: Api) -> None:
    api.call("POST", "/v1/spaces", {"name": SPACE, "shards": 1})

    async def check(client: Client) -> None:
        problem = json.loads((await client.request(f"$DURAMEN.Q.{SPACE}.enqueue", body, timeout=60)).data)
        assert problem["type"] == "request-invalid"
        assert "it is not UTF-8: byte 0x" in problem["detail"]

    run(check, nats_node.nats)
