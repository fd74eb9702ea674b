"""Consumers of a live topic most of whose log is below the horizon of tombstones: librdkafka and Java, reconnected."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.clients import metric, until
from tests.doors.http.conftest import asking
from tests.doors.kafka.java_reader import read_with_java

import duramen
from duramen.node.process import NodeProcess

pytestmark = pytest.mark.long

_SETTINGS: Final = {"log.cleaner.backoff.ms": 50, "connections.max.idle.ms": 1000}
_RECORDS: Final = 3000
_HORIZON: Final = _RECORDS * 9 // 10
_WAIT_S: Final = 60.0

State = dict[str, str]


class Read(NamedTuple):
    """What a consumer had at the end of a pass, and where that was; the offset of its first record."""

    state: State
    end: int
    first: int


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node that closes idle connections, with a stream whose horizon is at 90 % of its log."""
    with (
        NodeProcess(tmp_path_factory.mktemp("horizon") / "data", _SETTINGS) as found,
        duramen.connect(found.http) as client,
    ):
        config: dict[str, str | int | float | bool] = {
            "keyed": True, "keyed.live.topic": "cars.live", "segment.bytes": 16384, "min.cleanable.dirty.ratio": 0,
            "snapshot.retention.ms": 0, "delete.retention.ms": 0,
        }  # fmt: skip
        client.streams.create("cars", partitions=1, config=config)
        _write(client, 0, _HORIZON)
        until(lambda: _horizon(found) == _HORIZON, _WAIT_S)
        client.streams.alter("cars", config={"snapshot.retention.ms": 3_600_000})
        _write(client, _HORIZON, _RECORDS)
        assert _horizon(found) == _HORIZON
        yield found


def _write(client: duramen.Client, first: int, end: int) -> None:
    for at in range(first, end, 100):
        client.produce("cars", [_record(number) for number in range(at, min(end, at + 100))])


def _record(number: int) -> duramen.NewRecord:
    """Most keys are written once; each fifth record deletes an older one."""
    if number % 5 == 0:
        return duramen.NewRecord(None, key=f"k{number // 2}")
    return duramen.NewRecord(f"{number}", key=f"k{number}")


def _horizon(node: NodeProcess) -> int:
    status, found = asking(node.http)("GET", "/v1/streams/cars")
    assert status == 200
    horizon: int = found["partitions"][0]["view"]["horizon"]
    return horizon


def _state(node: NodeProcess, at: int) -> State:
    with duramen.connect(node.http) as client:
        found = client.snapshot("cars", at={0: at})
        return {(one.key or b"").decode(): one.text for one in found if one.value is not None}


def _librdkafka(node: NodeProcess, offset: int, reconnects: int, client_id: str) -> Read:
    config: dict[str, Any] = {
        "bootstrap.servers": node.kafka, "group.id": "g", "client.id": client_id, "auto.offset.reset": "earliest",
        "enable.partition.eof": True, "fetch.message.max.bytes": 500, "queued.min.messages": 1,
        "reconnect.backoff.ms": 1000, "reconnect.backoff.max.ms": 1000,
    }  # fmt: skip
    consumer = Consumer(config)
    consumer.assign([TopicPartition("cars.live", 0, offset)])
    state: State = {}
    got, first = 0, -1
    while True:
        message = consumer.poll(_WAIT_S)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.name() == "_PARTITION_EOF", error.str()
            consumer.close()
            return Read(state, message.offset() or 0, first)
        first = first if first >= 0 else message.offset() or 0
        _apply(state, (message.key() or b"").decode(), (message.value() or b"").decode())
        got += 1
        if got == 20 and reconnects:
            # Its queue is full: it sends no requests, and the node closes the connections.
            got, reconnects = 0, reconnects - 1
            until(lambda: metric(node, "duramen_kafka_connections") == 0, _WAIT_S)


def _java(node: NodeProcess, offset: int, reconnects: int, client_id: str) -> Read:
    lines = read_with_java(
        node, "cars.live", offset, f"client.id={client_id}", "fetch.max.bytes=500", "max.partition.fetch.bytes=500",
        "max.poll.records=10", reconnects=reconnects,
    )  # fmt: skip
    state: State = {}
    first, reconnected = -1, 0
    for kind, *words in lines:
        if kind == "record":
            first = first if first >= 0 else int(words[0])
            _apply(state, words[1], "" if words[2] == "-" else words[2])
        elif kind == "reconnect":
            reconnected += 1
            assert int(words[0]) < _HORIZON
        else:
            assert reconnected == reconnects
            assert words[0] == words[1]
            return Read(state, int(words[0]), first)
    raise AssertionError(lines[-5:])


def _apply(state: State, key: str, value: str) -> None:
    state.pop(key, None)
    if value:
        state[key] = value


@pytest.mark.parametrize("reconnects", [0, 2])
@pytest.mark.parametrize("client", [_librdkafka, _java], ids=["librdkafka", "java"])
def test_a_reader_from_the_start_reaches_the_end(node: NodeProcess, client: Any, reconnects: int) -> None:
    read = client(node, 0, reconnects, f"from the start {reconnects}")
    assert read.end == _RECORDS
    assert read.state == _state(node, _RECORDS)


@pytest.mark.parametrize("client", [_librdkafka, _java], ids=["librdkafka", "java"])
def test_a_reader_that_resumes_below_the_horizon_starts_over(node: NodeProcess, client: Any) -> None:
    read = client(node, _RECORDS * 2 // 3, 0, "resumes below")
    assert read.first < _RECORDS * 2 // 3
    assert read.state == _state(node, _RECORDS)
    behind = client(node, _HORIZON, 0, "resumes behind")
    assert behind.first >= _HORIZON
