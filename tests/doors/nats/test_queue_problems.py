"""Bad requests about queues: each has an error of its own that says what to do, the same at all doors."""

import asyncio
import io
import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Message, Producer
from tests.doors.nats import conftest as nats_tests
from tests.doors.nats.conftest import Api

import duramen
import duramen.aio
from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.cli.commands import run as run_command
from duramen.client.api.queues.values import LeasedEntry
from duramen.node.process import NodeProcess

SPACE = "queue-problems"
FULL = "queue-problems-full"
LONG = "x" * 256


class Places(NamedTuple):
    """What is in the space: positions of an entry, one of another queue, one that is gone; a lease that is over."""

    there: str
    other: str
    gone: str
    future: str
    lease: str


class Case(NamedTuple):
    """A request as JSON, and as words of a command where one can say it."""

    error: type[DuramenError]
    operation: str
    wish: Callable[[Places], dict[str, Any]]
    words: Callable[[Places], list[str]] | None = None
    space: str = SPACE


def _put(queue: str, count: int = 1, value: str = "v") -> Callable[[Places], dict[str, Any]]:
    return lambda _: {"entries": [{"queue": queue, "value": value}] * count}


def _delete(name: str) -> Case:
    error = {"other": errors.QueuePositionUnknown, "future": errors.QueuePositionFuture, "gone": errors.QueueEntryGone}

    def position(places: Places) -> str:
        return str(getattr(places, name))

    return Case(
        error[name],
        "delete",
        lambda places: {"queue": "ann", "entries": [{"position": position(places)}]},
        lambda places: ["delete", SPACE, "ann", position(places)],
    )


CASES = {
    "unknown space": Case(
        errors.QueueSpaceNotFound, "enqueue", _put("ann"), lambda _: ["put", "nobody-made-this", "ann", "v"],
        "nobody-made-this",
    ),
    "empty name": Case(errors.QueueNameInvalid, "enqueue", _put(""), lambda _: ["put", SPACE, "", "v"]),
    "name too long": Case(errors.QueueNameInvalid, "enqueue", _put(LONG), lambda _: ["put", SPACE, LONG, "v"]),
    "position of another queue": _delete("other"),
    "position of the future": _delete("future"),
    "entry that is gone": _delete("gone"),
    "stale version": Case(
        errors.QueueVersionStale,
        "edit",
        lambda places: {"queue": "ann", "entries": [{"position": places.there, "value": "v", "version": 99}]},
        lambda places: ["edit", SPACE, "ann", places.there, "v", "--version", "99"],
    ),
    "lease that expired": Case(
        errors.QueueLeaseExpired,
        "ack",
        lambda places: {"entries": [{"queue": "ann", "position": places.there, "lease": places.lease}]},
        lambda places: ["ack", SPACE, "ann", places.there, places.lease],
    ),
    "too many values": Case(errors.QueueBatchTooLarge, "enqueue", _put("ann", 10_001, "")),
    "too many deletions": Case(
        errors.QueueBatchTooLarge,
        "delete",
        lambda places: {"queue": "ann", "entries": [{"position": places.there}] * 10_001},
    ),
    "full shard": Case(
        errors.QueueSpaceFull, "enqueue", _put("ann"), lambda _: ["put", FULL, "ann", "v"], FULL,
    ),
    "too many bytes": Case(
        errors.QueueBatchTooLarge, "enqueue", _put("ann", 1, "x" * 5_000), lambda _: ["put", SPACE, "ann", "x" * 5_000]
    ),
}  # fmt: skip

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(scope="module")
def places(nats_node: NodeProcess) -> Places:
    with duramen.connect(nats_node.http) as client:
        client.spaces.create(SPACE, shards=1, config={"max.message.bytes": "4096"})
        client.spaces.create(FULL, shards=1, config={"queue.shard.max.entries": 0, "queue.topic.prefix": "full."})
        queues = client.queues(SPACE)
        gone, other, there = queues.enqueue_many([("ann", "one"), ("bob", "two"), ("ann", "three")])
        queues.delete("ann", [gone])
        (leased,) = queues.lease(["ann"])
        queues.nack([leased])
        epoch, _, offset = other.partition(".")
        return Places(there, other, gone, f"{epoch}.{int(offset) + 100}", leased.lease)


def _check(case: Case, problem: dict[str, Any]) -> None:
    assert problem["type"] == case.error.id
    assert len(problem["detail"]) < 300
    assert problem["remedy"] == case.error.remedy
    assert case.error.remedy


def _problem(answer: dict[str, Any]) -> dict[str, Any]:
    """The problem of an answer; of leases each entry has one."""
    return answer["refused"][0]["problem"] if "refused" in answer else answer


@every_case
def test_over_http(case: Case, places: Places, api: Api) -> None:
    path = "entries" if case.operation == "enqueue" else case.operation
    status, content = api.ask("POST", f"/v1/spaces/{case.space}/{path}", case.wish(places))
    assert case.operation == "ack" or 400 <= status < 500
    _check(case, _problem(json.loads(content)))


@every_case
def test_over_nats(case: Case, places: Places, nats_node: NodeProcess) -> None:
    async def test(client: Any) -> None:
        subject = f"$DURAMEN.Q.{case.space}.{case.operation}"
        answer = await client.request(subject, json.dumps(case.wish(places)).encode(), timeout=30)
        _check(case, _problem(json.loads(answer.data)))

    nats_tests.run(test, nats_node.nats)


def _ask(queues: Any, case: Case, places: Places) -> Any:
    """A request by the Python client, or what awaits it."""
    wish = case.wish(places)
    entries = wish["entries"]
    match case.operation:
        case "enqueue":
            return queues.enqueue_many([(one["queue"], one["value"]) for one in entries])
        case "delete":
            return queues.delete(wish["queue"], [one["position"] for one in entries])
        case "edit":
            return queues.edit(wish["queue"], [(one["position"], one["value"], one["version"]) for one in entries])
        case _:
            (one,) = entries
            parts: dict[str, Any] = {
                "version": 0,
                "timestamp_ms": 0,
                "key": None,
                "value": None,
                "headers": (),
                "deliveries": 1,
            }
            return queues.ack([LeasedEntry(**one, **parts)])


@every_case
def test_in_python(case: Case, places: Places, nats_node: NodeProcess) -> None:
    with duramen.connect(nats_node.http) as client, pytest.raises(case.error):
        _ask(client.queues(case.space), case, places)

    async def test() -> None:
        async with await duramen.aio.connect(nats_node.http) as client:
            with pytest.raises(case.error):
                await _ask(client.queues(case.space), case, places)

    asyncio.run(test())


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.words is not None])
def test_by_command(
    name: str, places: Places, nats_node: NodeProcess, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    case = CASES[name]
    assert case.words is not None
    monkeypatch.setattr(sys, "argv", ["duramen", "queue", *case.words(places), "--server", nats_node.http])
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert run_command() == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("duramen: ")
    assert line.endswith(f"[{case.error.id}]")
    remedy = case.error.remedy.removesuffix(".")
    assert remedy[1:] in line or "`" in line


RESERVED = [("op", "purge"), ("op", "drop"), ("op", "delete"), ("visible", "abc"), ("expires", "1"), ("request", "abc")]


@pytest.mark.parametrize(("name", "content"), RESERVED)
def test_headers_of_operations_are_refused_at_every_door(
    name: str, content: str, places: Places, nats_node: NodeProcess, api: Api
) -> None:
    header = f"duramen-queue-{name}"
    entry = duramen.NewRecord("v", headers=[(header, content)])
    wishes: dict[str, dict[str, Any]] = {
        "enqueue": {"entries": [{"queue": "ann", "value": "v", "headers": [[header, content]]}]},
        "replace": {"queue": "ann", "from": "end", "entries": [{"value": "v", "headers": [[header, content]]}]},
    }

    async def test(client: Any) -> None:
        for operation, wish in wishes.items():
            answer = await client.request(f"$DURAMEN.Q.{SPACE}.{operation}", json.dumps(wish).encode(), timeout=30)
            problem = json.loads(answer.data)
            assert problem["type"] == "batch-invalid"
            assert f"entry 0: the header {header} is reserved" in problem["detail"]

    nats_tests.run(test, nats_node.nats)
    for path, wish in zip(("entries", "replace"), wishes.values(), strict=True):
        status, said = api.ask("POST", f"/v1/spaces/{SPACE}/{path}", wish)
        assert (status, json.loads(said)["type"]) == (400, "batch-invalid")
    with duramen.connect(nats_node.http) as client:
        queues = client.queues(SPACE)
        options: list[dict[str, Any]] = [{}, {"delay_s": 1}, {"ttl_s": 60}, {"request_id": f"{name} {content}"}]
        for more in options:
            with pytest.raises(errors.BatchInvalid, match=f"the header {header} is reserved"):
                queues.enqueue("ann", [entry], **more)
        with pytest.raises(errors.BatchInvalid, match=f"the header {header} is reserved"):
            queues.replace("ann", "end", [entry])
        assert places.there in [one.position for one in queues.retrieve("ann").entries]


@pytest.fixture(scope="module")
def producer(nats_node: NodeProcess) -> Producer:
    return Producer({"bootstrap.servers": nats_node.kafka, "message.timeout.ms": 5_000})


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (b"", b"v", "INVALID_RECORD"),
        (LONG.encode(), b"v", "INVALID_RECORD"),
        (b"ann", bytes(5_000), "MSG_SIZE_TOO_LARGE"),
    ],
    ids=["empty name", "name too long", "too many bytes"],
)
def test_by_a_kafka_producer(key: bytes, value: bytes, said: str, places: Places, producer: Producer) -> None:
    del places
    told = list[str]()

    def delivered(error: Any, _: Message) -> None:
        told.append("" if error is None else error.name())

    producer.produce(SPACE, value, key, partition=0, on_delivery=delivered)
    producer.flush(30)
    assert told == [said]


@pytest.mark.parametrize("topic", [FULL, "full.ann"])
@pytest.mark.usefixtures("places")
def test_a_full_shard_to_kafka_producers(topic: str, nats_node: NodeProcess) -> None:
    producer, refused = Producer({"bootstrap.servers": nats_node.kafka}), list[str]()
    producer.produce(topic, b"v", b"ann", on_delivery=lambda error, _: refused.append(str(error and error.name())))
    producer.flush(30)
    assert refused == ["POLICY_VIOLATION"]
