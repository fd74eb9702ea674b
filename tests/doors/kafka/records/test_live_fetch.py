"""Fetch of live topics without a client: sessions, passes by connection, and requests that no client sends."""

import struct
from random import Random
from typing import NamedTuple

from tests.broker.views.test_views import Keyed
from tests.doors.kafka.by_hand import ByHand, ManualConnection

from duramen.codec.batch import batches, records
from duramen.codec.kafka import fetch
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionRecords
from duramen.codec.kafka.versions import ApiKey

FETCH = 13
LIVE = "users.live"
NO_SESSION = 0
FIRST, NONE = 0, -1
_HEAD = struct.Struct(">ihi")


class Answer(NamedTuple):
    """What a fetch was answered."""

    code: int
    session_id: int
    parts: list[PartitionRecords]


class Reader:
    """A client of the live topic, on a connection."""

    def __init__(self, keyed: Keyed, door: ByHand, client_id: str = "reader") -> None:
        topic = keyed.hand.broker.streams.readable(LIVE)
        assert topic is not None
        self.topic_id = topic.id
        self.connection = door.connect(client_id)
        self.state: dict[bytes, bytes] = {}
        self.offset = 0
        self.end = -1

    def ask(
        self, *partitions: FetchPartition, session: tuple[int, int] = (NO_SESSION, NONE), wait_ms: int = 0,
        max_bytes: int = 1 << 20,
    ) -> None:  # fmt: skip
        """Send a fetch."""
        topics = [FetchTopic(self.topic_id, list(partitions))] if partitions else []
        request = FetchRequest(-1, wait_ms, 1, max_bytes, 0, *session, topics)
        self.connection.send(ApiKey.FETCH, FETCH, fetch.encode_request(FETCH, request))

    def answer(self) -> Answer | None:
        """What was answered; None where nothing is yet."""
        found = self.connection.answer(ApiKey.FETCH, FETCH)
        if found is None:
            return None
        frame, start = found
        _, _, session_id = _HEAD.unpack_from(frame, start)
        code, parts = fetch.decode_response(FETCH, frame, start)
        return Answer(code, session_id, parts)

    def take(self, part: PartitionRecords) -> None:
        """Apply what came."""
        assert part.error_code == ErrorCode.NONE
        self.end = part.high_watermark
        view = memoryview(part.records)
        for at, head in batches(view):
            for record in records(view[at : at + head.size]):
                if record.offset >= self.offset and record.key is not None:
                    self.state.pop(record.key, None)
                    if record.value is not None:
                        self.state[record.key] = record.value
            self.offset = head.next_offset

    def read_pass(self, *, max_bytes: int = 1 << 20) -> None:
        """Read to the end of the pass, fetch by fetch."""
        self.end = -1
        while self.offset != self.end:
            self.ask(FetchPartition(0, self.offset, max_bytes), max_bytes=max_bytes)
            found = self.answer()
            assert found is not None
            self.take(found.parts[0])


def _door(records_: int = 60) -> tuple[Keyed, ByHand]:
    keyed = Keyed(keyed_live_topic=LIVE)
    for number in range(records_):
        keyed.produce((b"k%d" % (number % 9), None if number % 11 == 0 else b"%d" % number))
    return keyed, ByHand(manual=keyed.hand)


def test_a_session_tells_the_end_once_and_goes_on_with_the_next_pass() -> None:
    keyed, door = _door()
    reader = Reader(keyed, door)
    reader.ask(FetchPartition(0, 0, 1 << 20), session=(NO_SESSION, FIRST), wait_ms=60_000)
    found = reader.answer()
    assert found is not None
    assert found.session_id > 0
    reader.take(found.parts[0])
    assert (reader.offset, reader.end, reader.state) == (60, 60, keyed.state(60))
    reader.ask(FetchPartition(0, 60, 1 << 20), session=(found.session_id, 1), wait_ms=60_000)
    told = reader.answer()
    assert told is not None, "the end is told at once"
    assert told.parts == []  # the client knows that the high watermark is 60
    reader.ask(session=(found.session_id, 2), wait_ms=60_000)
    assert reader.answer() is None
    keyed.produce((b"k1", b"new"), (b"k2", None))
    door.advance(100)
    more = reader.answer()
    assert more is not None
    reader.take(more.parts[0])
    assert (reader.offset, reader.end, reader.state) == (62, 62, keyed.state(62))
    reader.ask(FetchPartition(0, 62, 1 << 20), session=(found.session_id, 9))
    refused = reader.answer()
    assert refused is not None
    assert refused.code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    keyed.produce((b"k3", b"newest"))
    door.advance(100)
    reader.read_pass()
    reader.read_pass()
    assert (reader.offset, reader.state) == (63, keyed.state(63))


def test_a_pass_keeps_its_end_on_a_connection_and_over_a_reconnect() -> None:
    for session in ((NO_SESSION, NONE), (NO_SESSION, FIRST)):
        keyed, door = _door()
        reader = Reader(keyed, door)
        reader.ask(FetchPartition(0, 0, 60), session=session, max_bytes=60)
        found = reader.answer()
        assert found is not None
        reader.take(found.parts[0])
        assert reader.offset < reader.end == 60
        keyed.produce(*((b"k%d" % number, b"later") for number in range(9)))
        door.advance(100)
        reader.connection.lose()
        reader.connection = door.connect("reader")
        reader.read_pass(max_bytes=60)
        assert (reader.end, reader.state) == (60, keyed.state(60))


def test_a_fetch_that_no_client_sends_is_answered_and_harms_no_reader() -> None:
    keyed, door = _door()
    steady, hostile, chance = Reader(keyed, door, "steady"), Reader(keyed, door, "hostile"), Random(5)
    numbers = (-(1 << 63), -2, -1, 0, 1, 59, 60, 61, 1 << 31, 1 << 62, (1 << 63) - 1)
    allowed = {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
               ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}  # fmt: skip
    seen: set[int] = set()
    for number in range(300):
        small = [one for one in numbers if -(1 << 31) <= one < 1 << 31]
        wanted = [
            FetchPartition(chance.choice((0, 0, 0, -1, 7)), chance.choice(numbers), chance.choice(small), epoch)
            for epoch in chance.choices((-1, -1, -1, 0, 5, -7), k=chance.choice((1, 1, 3)))
        ]
        hostile.ask(*wanted, max_bytes=chance.choice(small))
        found = hostile.answer()
        assert found is not None, wanted
        for part in found.parts:
            seen.add(part.error_code)
            assert part.error_code in allowed, (wanted, part)
            offsets = [head.next_offset for _, head in batches(memoryview(part.records or b""))]
            assert all(offset <= part.high_watermark for offset in offsets)
        if number % 50 == 0:
            keyed.produce((b"k%d" % (number % 9), b"%d" % number))
            door.advance(100)
            steady.read_pass(max_bytes=200)
            assert steady.state == keyed.state(steady.end)
    assert {ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} <= seen


def test_damaged_bytes_of_a_fetch_harm_no_reader() -> None:
    keyed, door = _door()
    chance, steady = Random(6), Reader(keyed, door, "steady")
    for session in ((NO_SESSION, NONE), (NO_SESSION, FIRST), (5, 1)):
        request = FetchRequest(
            -1, 0, 1, 1 << 20, 0, *session, [FetchTopic(steady.topic_id, [FetchPartition(0, 20, 1 << 20)])]
        )
        body = fetch.encode_request(FETCH, request)
        for _ in range(100):
            damaged = bytearray(body[: chance.choice((len(body), len(body), chance.randrange(len(body))))])
            for _ in range(chance.randrange(1, 6)):
                if damaged:
                    damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            connection: ManualConnection = door.connect("hostile")
            connection.send(ApiKey.FETCH, FETCH, bytes(damaged))
            connection.lose()
            door.manual.settle()
        keyed.produce((b"k", b"%d" % session[1]))
        door.advance(100)
        steady.read_pass()
        steady.read_pass()
        assert (steady.offset, steady.state) == (len(keyed.written), keyed.state(len(keyed.written)))
