"""What both clients do, each against a real node: streams, writing, reading, and what they say when it goes wrong."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.client.api.conftest import Face
from tests.examples import examples

import duramen
from duramen import errors
from duramen.client.api.records import Headers
from duramen.node.process import NodeProcess
from duramen.testing import Broker

ODD = st.text(st.characters(codec="utf-8"), max_size=20)
VALUES = st.one_of(st.none(), st.binary(max_size=50), ODD)
NAMES = st.one_of(ODD, st.binary(max_size=10).map(lambda name: name.decode(errors="surrogateescape")))
NEW = st.builds(
    duramen.NewRecord,
    VALUES,
    key=VALUES,
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=3) | st.dictionaries(NAMES, VALUES, max_size=3),
    partition=st.one_of(st.none(), st.integers(0, 2)),
    timestamp_ms=st.integers(0, 1_700_000_000_000),
)


def as_bytes(value: bytes | str | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def as_pairs(headers: Headers) -> Iterable[tuple[str, bytes | str | None]]:
    return headers.items() if isinstance(headers, Mapping) else headers


class TestStreams:
    def test_from_making_to_removing(self, face: Face, stream_name: str) -> None:
        made = face.streams("create", stream_name, partitions=2, config={"retention.ms": "1d"})
        assert (made.name, len(made.partitions), made.created) == (stream_name, 2, True)
        assert face.streams("create", stream_name, partitions=2, config={"retention.ms": "1d"}).created is False
        assert face.streams("alter", stream_name, config={"retention.ms": None, "retention.bytes": 5}).config == {
            "retention.bytes": "5"
        }
        assert len(face.streams("add_partitions", stream_name, 3).partitions) == 3
        assert face.streams("describe", stream_name).config == {"retention.bytes": "5"}
        assert [info.name for info in face.streams("list", prefix=stream_name)] == [stream_name]
        face.streams("delete", stream_name)
        with pytest.raises(errors.StreamNotFound):
            face.streams("delete", stream_name)
        assert face.streams("list", prefix=stream_name) == []

    def test_names_are_quoted(self, face: Face) -> None:
        with pytest.raises(errors.StreamNotFound, match=r"no stream b\?c#é"):
            face.streams("describe", "b?c#é")

    @pytest.mark.parametrize(
        ("error", "options"),
        [
            (errors.StreamDiffers, {"partitions": 4}),
            (errors.ConfigInvalid, {"partitions": 3, "config": {"retention.days": 3}}),
            (errors.PartitionsInvalid, {"partitions": 0}),
        ],
    )
    def test_errors(self, face: Face, stream: str, error: type[Exception], options: dict[str, Any]) -> None:
        name = stream if error is errors.StreamDiffers else f"{stream}-other"
        with pytest.raises(error):
            face.streams("create", name, **options)


def test_the_node(face: Face, duramen_broker: Broker) -> None:
    assert face.node().addresses["kafka"] == duramen_broker.bootstrap_servers


class TestWaitReplicated:
    def test_what_is_there(self, face: Face, stream: str) -> None:
        place = face.produce(stream, ["here"], partition=1)[0]
        face.wait_replicated(stream, 1, place.offset)
        face.wait_replicated(stream, 1, place.offset, 5.0, node=face.node().node_id)
        epoch = face.streams("describe", stream).partitions[1].leader_epoch
        face.wait_replicated(stream, 1, (epoch, place.offset))
        with pytest.raises(errors.RecordCut, match="was replaced by records of a later leader"):
            face.wait_replicated(stream, 1, (epoch - 1, place.offset))

    @pytest.mark.parametrize(
        ("error", "arguments", "options"),
        [
            (errors.RequestTimedOut, (0, 5, 0.01), {}),
            (errors.RequestInvalid, (0, -1), {}),
            (errors.RequestInvalid, (-1, 0), {}),
            (errors.RequestInvalid, (0, (-1, 0)), {}),
            (errors.StreamNotFound, (99, 0), {}),
            (errors.NodeNotFound, (0, 0), {"node": 99}),
        ],
    )
    def test_errors(
        self, face: Face, stream: str, error: type[Exception], arguments: tuple[Any, ...], options: dict[str, Any]
    ) -> None:
        with pytest.raises(error):
            face.wait_replicated(stream, *arguments, **options)


class TestRecords:
    @settings(
        max_examples=examples(12), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
    )
    @given(batch=st.lists(NEW, min_size=1, max_size=20))
    def test_what_is_written_is_read_at_the_places_named(
        self, face: Face, stream: str, batch: list[duramen.NewRecord]
    ) -> None:
        ends = [part.end_offset for part in face.streams("describe", stream).partitions]
        places = face.produce(stream, batch)
        found = {}
        for partition in {place.partition for place in places}:
            for record in face.records(stream, partition=partition, offset=ends[partition]):
                found[duramen.Place(record.partition, record.offset)] = record
        assert len(places) == len(found) == len(batch)
        for place, new in zip(places, batch, strict=True):
            record = found[place]
            assert (record.topic, record.timestamp_ms) == (stream, new.timestamp_ms)
            assert (record.value, record.key) == (as_bytes(new.value), as_bytes(new.key))
            assert record.headers == tuple((name, as_bytes(value)) for name, value in as_pairs(new.headers))
            assert new.partition in (None, record.partition)

    def test_values_alone(self, face: Face, stream: str) -> None:
        places = face.produce(stream, ["é", b"\xff"], partition=2)
        assert places == [(2, 0), (2, 1)]
        assert [record.value for record in face.records(stream)] == ["é".encode(), b"\xff"]

    def test_a_stream_is_copied(self, face: Face, stream: str) -> None:
        face.produce(stream, [duramen.NewRecord("a", key="k", timestamp_ms=5), duramen.NewRecord(None, partition=1)])
        copy = f"{stream}-copy"
        face.streams("create", copy, partitions=3)
        face.produce(copy, face.records(stream))

        def content(name: str) -> list[Any]:
            return sorted((one.partition, one.offset, one.timestamp_ms, one.key) for one in face.records(name))

        assert content(copy) == content(stream)

    def test_records_without_keys_go_everywhere_in_time(self, face: Face, stream: str) -> None:
        assert {face.produce(stream, ["x"])[0].partition for _ in range(60)} == {0, 1, 2}

    def test_none_at_all(self, face: Face) -> None:
        assert face.produce("whatever", []) == []

    @pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
    def test_compressed(self, kind: str, node: NodeProcess, stream_name: str, compression: str) -> None:
        face = Face(kind, node.http, compression=compression)
        face.streams("create", stream_name)
        face.produce(stream_name, ["x" * 1000] * 1000)
        assert face.texts(stream_name) == ["x" * 1000] * 1000
        assert face.streams("describe", stream_name).partitions[0].bytes < 100_000
        face.end()

    @pytest.mark.parametrize(
        ("records", "what"),
        [
            ("text", r"write \[str\(…\)\]"),
            (duramen.NewRecord("x"), "in a list"),
            ([1], "not int"),
            ([duramen.NewRecord("x", timestamp_ms=-1)], "no time since 1970"),
            (["\ud800"], "half a surrogate pair"),
            ([duramen.NewRecord("x", headers=[("\ud800", b"")])], "no UTF-8"),
        ],
    )
    def test_what_is_no_record(self, face: Face, stream: str, records: Any, what: str) -> None:
        with pytest.raises(errors.RequestInvalid, match=what):
            face.produce(stream, records)


class TestReading:
    @pytest.fixture
    def numbers(self, face: Face, stream_name: str) -> str:
        """Ten records in one partition, of the seconds 0 to 9."""
        face.streams("create", stream_name)
        for first in (0, 4):
            batch = range(first, 4 if first == 0 else 10)
            face.produce(stream_name, [duramen.NewRecord(str(n), timestamp_ms=1000 * n) for n in batch])
        return stream_name

    @pytest.mark.parametrize(
        ("options", "expected"),
        [
            ({}, "0123456789"),
            ({"offset": "earliest", "until": "latest"}, "0123456789"),
            ({"offset": 3}, "3456789"),
            ({"offset": "3", "until": 6}, "345"),
            ({"offset": -3}, "789"),
            ({"offset": "-3", "until": -1}, "78"),
            ({"offset": "@1970-01-01T00:00:05Z"}, "56789"),
            ({"offset": datetime.fromtimestamp(2, UTC), "until": datetime(1970, 1, 1, 0, 0, 4, tzinfo=UTC)}, "23"),
            ({"offset": "end"}, ""),
            ({"offset": 5, "until": 5}, ""),
            ({"offset": -99}, "0123456789"),
        ],
    )
    def test_from_and_to(self, face: Face, numbers: str, options: dict[str, Any], expected: str) -> None:
        assert "".join(face.texts(numbers, **options)) == expected

    def test_batches(self, face: Face, numbers: str) -> None:
        batches = face.consume(numbers, until=8)
        assert [len(batch) for batch in batches] == [8]
        assert (batches[0].topic, batches[0].partition, batches[0].next_offset) == (numbers, 0, 8)
        assert [record.offset for record in batches[0][2:4]] == [2, 3]
        assert batches[0][-1].text == "7"
        assert repr(batches[0]) == f"<Batch of {numbers}-0 up to 8>"
        assert face.texts(numbers, offset=batches[0].next_offset) == ["8", "9"]

    def test_until_nothing_comes(self, face: Face, numbers: str) -> None:
        assert face.texts(numbers, offset=8, until=None, idle_s=0.2) == ["8", "9"]

    def test_all_partitions(self, face: Face, stream: str) -> None:
        face.produce(stream, [duramen.NewRecord(str(n), partition=n % 3) for n in range(30)])
        assert sorted(map(int, face.texts(stream))) == list(range(30))
        assert face.texts(stream, partition=1) == [str(n) for n in range(1, 30, 3)]
        assert sorted(face.texts(stream, offset=-1)) == ["27", "28", "29"]

    @pytest.mark.parametrize(
        ("error", "options", "what"),
        [
            (errors.OffsetOutOfRange, {"offset": 11}, "offsets 0 to 9, not 11"),
            (errors.RequestInvalid, {"offset": "begin"}, "offset: 'begin' is not a position in a log"),
            (errors.RequestInvalid, {"until": 1.5}, "until is str, int or datetime, not float"),
            (errors.StreamNotFound, {"partition": 1}, "has no partition 1; it has 1"),
        ],
    )
    def test_errors(self, face: Face, numbers: str, error: type[Exception], options: dict[str, Any], what: str) -> None:
        with pytest.raises(error, match=what):
            face.consume(numbers, **options)

    def test_a_stream_that_was_made_anew_meanwhile(self, node: NodeProcess, stream_name: str) -> None:
        with duramen.connect(node.http) as client:
            client.streams.create(stream_name)
            client.produce(stream_name, ["a", "b"])
            batches = client.consume(stream_name, until=None)
            assert next(batches).next_offset == 2
            client.streams.delete(stream_name)
            client.streams.create(stream_name)
            with pytest.raises(errors.RecordsLost, match="ends at 0 now, before 2: was it made anew"):
                next(batches)

    def test_an_offset_of_several_partitions(self, face: Face, stream: str) -> None:
        with pytest.raises(errors.RequestInvalid, match="has 3 partitions: offset=5 needs a partition="):
            face.consume(stream, offset=5)

    def test_no_such_stream(self, face: Face) -> None:
        with pytest.raises(errors.StreamNotFound, match=r"client\.streams\.create\('nobody'\) makes one"):
            face.consume("nobody")
        with pytest.raises(errors.StreamNotFound, match=r"no stream a\.b\.c, and no topic a/b/c of a tenant"):
            face.consume("a.b.c")


class TestWhatIsSafe:
    def test_nothing_stored(self, face: Face, stream: str) -> None:
        with pytest.raises(errors.StreamNotFound, match=r"no partition 7; it has 3; nothing was stored: to repeat is"):
            face.produce(stream, ["a", duramen.NewRecord("b", partition=7)])
        with pytest.raises(errors.BatchTooLarge, match="nothing was stored"):
            face.produce(stream, [bytes(2_000_000)])
        assert face.texts(stream) == []
        face.produce(stream, ["after all"])
        assert face.texts(stream) == ["after all"]

    def test_some_stored(self, face: Face, stream: str) -> None:
        with pytest.raises(errors.BatchTooLarge, match=r"; 1 of 2 records are stored, the others are not$"):
            face.produce(
                stream, [duramen.NewRecord("a", partition=0), duramen.NewRecord(bytes(2_000_000), partition=1)]
            )
        assert face.texts(stream) == ["a"]

    def test_partitions_that_came_later(self, face: Face, stream: str) -> None:
        face.produce(stream, ["a"])
        face.streams("add_partitions", stream, 4)
        assert face.produce(stream, ["b"], partition=3) == [(3, 0)]

    def test_a_node_that_was_killed_and_came_back(
        self, kind: str, duramen_broker_factory: Callable[..., Broker]
    ) -> None:
        broker = duramen_broker_factory()
        face = Face(kind, broker.http_url, timeout_s=60)
        face.streams("create", "s")
        assert face.produce("s", ["a"]) == [(0, 0)]
        broker.crash()
        broker.restart()
        assert face.produce("s", ["b"]) == [(0, 1)]
        assert face.texts("s") == ["a", "b"]
        face.end()

    @pytest.mark.variants(1)
    def test_a_node_that_is_gone(self, kind: str, duramen_broker_factory: Callable[..., Broker]) -> None:
        broker = duramen_broker_factory()
        face = Face(kind, broker.http_url, timeout_s=1)
        face.streams("create", "s")
        face.produce("s", ["a"])
        broker.crash()
        with pytest.raises((errors.ServerUnreachable, errors.RequestTimedOut), match="to repeat"):
            face.produce("s", ["b"])
        with pytest.raises(errors.ServerUnreachable):
            face.consume("s")
        with pytest.raises(errors.ServerUnreachable, match=r"no node answers at .*; start one with"):
            face.node()
        face.end()


def test_a_closed_client(kind: str, node: NodeProcess) -> None:
    face = Face(kind, node.http)
    face.close()
    for use in (face.node, lambda: face.produce("s", ["x"]), lambda: face.consume("s")):
        with pytest.raises(errors.ClientClosed, match="connect again"):
            use()
    face.end()


@pytest.mark.parametrize("options", [{"compression": "rar"}, {"server": "nowhere"}])
def test_what_does_not_fit(kind: str, node: NodeProcess, options: dict[str, str]) -> None:
    with pytest.raises((errors.RequestInvalid, errors.SettingInvalid), match="does not fit"):
        Face(kind, **{"server": node.http} | options)


def test_the_environment_names_the_server(kind: str, node: NodeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DURAMEN_SERVER", node.http)
    face = Face(kind, "")
    assert face.node().addresses["http"] == node.http
    face.end()
