"""The hot path of Produce: what it answers, stores and counts is what the ordinary way does, also of hostile bytes."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.codec.kafka.test_hot_produce import framed, resealed, to_one
from tests.doors.kafka.by_hand import ByHand, ManualConnection
from tests.examples import examples
from tests.mutation import mutate

from duramen.codec.batch import BatchInput, DecodedRecord, encode
from duramen.codec.kafka.hot_produce import read_produce
from duramen.codec.kafka.produce import PartitionData, PartitionResponse, ProduceRequest, TopicData, decode_response
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.connection.faults import RequestFaults
from duramen.doors.kafka.records import hot_produce

CONFIGS: dict[str, dict[str, str]] = {
    "sync": {},
    "os": {"durability": "os"},
    "memory": {"durability": "memory"},
    "small": {"max.message.bytes": "200"},
    "compacted": {"cleanup.policy": "compact"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "recent": {"message.timestamp.before.max.ms": "1000"},
    "zipped": {"compression.type": "gzip"},
    "queues": {"kind": "queues"},
    "keyed": {"keyed": "true"},
}
COUNTED = (
    "duramen_kafka_requests_total",
    "duramen_kafka_request_errors_total",
    "duramen_kafka_request_bytes",
    "duramen_kafka_errors_total",
)


def door(*, hot: bool) -> ByHand:
    """One whose requests may be given faults, of which there are none, has no hot path."""
    by_hand = ByHand(faults=None if hot else RequestFaults())
    for name, config in CONFIGS.items():
        by_hand.manual.create(name, 2, **config)
    return by_hand


def stored(by_hand: ByHand, name: str, index: int) -> list[DecodedRecord]:
    """All records of a partition."""
    answer, _ = by_hand.manual.fetch((name, index, 0))
    by_hand.manual.settle()
    return by_hand.manual.read(answer.value[0].slice)


def outcome(by_hand: ByHand, connections: list[ManualConnection]) -> list[object]:
    """What clients got, what is in the logs, and what was counted."""
    metrics = by_hand.manual.metrics
    streams = [by_hand.manual.broker.streams.get(name) for name in CONFIGS]
    return [
        [(bytes(one.transport.written), one.reads()) for one in connections],
        [(stream.name, at, stored(by_hand, stream.name, at)) for stream in streams for at in (0, 1)],
        [(stream.name, stream.records_in.value, stream.bytes_in.value) for stream in streams],
        {key: counter.value for key, counter in metrics.counters().items() if key[0] in COUNTED},
        {key: sum(found.counts) for key, found in metrics.histograms().items() if "wal" not in key[0]},
    ]


def batch(chance: random.Random, now_ms: int) -> bytearray:
    """Mostly sound; of a producer with sequences that repeat or leave gaps, too late, compressed."""
    times = [now_ms, now_ms, now_ms + 86_400_000, 1]
    keys = [b"k", b"k", None]
    records = [
        BatchInput(chance.choice(times), chance.choice(keys), chance.randbytes(chance.choice((5, 5, 300))))
        for _ in range(chance.choice((1, 1, 1, 3)))
    ]
    if chance.random() < 0.5:
        return encode(records, codec=chance.choice((0, 0, 1, 4)))
    return encode(
        records, producer_id=chance.choice((3, 4)), producer_epoch=chance.choice((0, 0, 0, 1)),
        base_sequence=chance.randrange(4),
    )  # fmt: skip


def pieces(chance: random.Random, now_ms: int, *, hostile: bool) -> list[tuple[int, bytes, bool]]:
    """What comes through which connection: whole requests, several together, parts of some; and whether a turn ends."""
    found = []
    for _ in range(chance.randint(1, 12)):
        data = b""
        for _ in range(chance.choice((1, 1, 3))):
            version = chance.choice((3, 7, 8, 9, 11, 12, 12))
            topic = chance.choice([*CONFIGS, "sync", "sync", "nowhere"])
            sent = batch(chance, now_ms)
            request = to_one(sent, topic, chance.choice((0, 0, 0, 1, 2, -1)), chance.choice((-1, -1, 1, 0)))
            frame = framed(version, request, correlation_id=chance.randrange(1 << 30))
            if hostile and chance.random() < 0.5:
                changed = bytearray(frame)
                mutate(changed, chance)
                frame = resealed(bytes(changed), frame.index(sent)) if chance.random() < 0.5 else bytes(changed)
            data += frame
        cut = chance.randrange(len(data)) if chance.random() < 0.2 else 0
        connection = chance.randrange(2)
        found += [(connection, part, chance.random() < 0.5) for part in (data[:cut], data[cut:]) if part]
    return found


@pytest.mark.parametrize("twin", [False, True], ids=["installed", "twin"])
@given(st.integers(), st.booleans())
@settings(deadline=None, max_examples=examples(60))
def test_it_is_the_ordinary_way(twin: bool, seed: int, hostile: bool) -> None:
    outcomes = []
    for hot in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if twin:
                patch.setattr(hot_produce, "reader", lambda: read_produce)
            by_hand = door(hot=hot)
        connections = [by_hand.connect(f"client-{at}") for at in range(2)]
        for at, data, ends_turn in pieces(random.Random(seed), by_hand.manual.clock.wall_ms(), hostile=hostile):
            if connections[at].reads():
                connections[at].come(data)
            if ends_turn:
                by_hand.manual.settle()
        by_hand.advance(2000)
        outcomes.append(outcome(by_hand, connections))
    assert outcomes[0] == outcomes[1]


def test_requests_of_one_turn_are_appended_before_what_comes_after_them() -> None:
    by_hand = door(hot=True)
    one, other = by_hand.connect(), by_hand.connect()
    one.come(sound(by_hand, 2))
    parts = [PartitionData(at, memoryview(values(by_hand, b"b"))) for at in (0, 1)]
    other.come(framed(12, ProduceRequest(None, -1, 1000, [TopicData("sync", parts)])))
    one.come(sound(by_hand, 1))
    by_hand.manual.settle()
    assert [record.value for record in stored(by_hand, "sync", 0)] == [b"v", b"v", b"b", b"v"]


def values(by_hand: ByHand, value: bytes) -> bytearray:
    """A batch of one record."""
    return encode([BatchInput(by_hand.manual.clock.wall_ms(), None, value)])


def sound(by_hand: ByHand, count: int) -> bytes:
    """So many requests, one behind the other."""
    now_ms = by_hand.manual.clock.wall_ms()
    return b"".join(
        framed(12, to_one(encode([BatchInput(now_ms, None, b"v")]), "sync", 0), correlation_id=at)
        for at in range(count)
    )


def test_answers_that_one_sync_lets_go_leave_with_one_call_in_order() -> None:
    by_hand = door(hot=True)
    one, other = by_hand.connect(), by_hand.connect()
    one.come(sound(by_hand, 50))
    other.come(sound(by_hand, 1))
    assert [found.transport.calls for found in (one, other)] == [0, 0]
    by_hand.manual.settle()
    assert [found.transport.calls for found in (one, other)] == [1, 1]
    for at in range(50):
        answer = one.answer(ApiKey.PRODUCE, 12)
        assert answer is not None
        frame, start = answer
        assert int.from_bytes(frame[:4], "big") == at
        assert decode_response(12, frame, start)[0].partitions == [PartitionResponse(0, 0, at, -1, 0, None, [])]
    assert one.answer(ApiKey.PRODUCE, 12) is None


def test_a_client_that_is_gone_is_answered_no_more_and_its_records_are_there() -> None:
    by_hand = door(hot=True)
    gone, there = by_hand.connect(), by_hand.connect()
    for connection in (gone, there):
        connection.come(sound(by_hand, 3))
    gone.lose()
    by_hand.manual.settle()
    assert (gone.transport.calls, there.transport.calls) == (0, 1)
    assert len(stored(by_hand, "sync", 0)) == 6
    assert by_hand.manual.metrics.counter("duramen_kafka_request_bytes").value == 0
