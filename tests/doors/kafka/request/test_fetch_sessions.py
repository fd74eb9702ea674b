"""Fetch sessions: against a plain model of what a client knows, and through the door."""

import itertools
import struct
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.doors.kafka.by_hand import ByHand, ManualConnection
from tests.examples import examples

from duramen.codec.kafka import fetch
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionAnswer
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.request.fetch_sessions import FetchSessions, Session

SLOTS, PARTITIONS, TWO_MINUTES = 3, 12, 120_000
PLACES = st.tuples(st.sampled_from("ab"), st.integers(0, 3))


def request_of(
    session_id: int, epoch: int, wanted: dict[tuple[str, int], int], forgotten: list[tuple[str, int]] | None = None
) -> FetchRequest:
    """A request for offsets of partitions."""
    topics = [FetchTopic(topic, [FetchPartition(index, offset, 100)]) for (topic, index), offset in wanted.items()]
    gone = [(topic, [index]) for topic, index in forgotten or ()]
    return FetchRequest(-1, 0, 1, 100, 0, session_id, epoch, topics, "", gone)


class _Client:
    """What a client knows of its session, and what it was told of each partition."""

    def __init__(self, session_id: int) -> None:
        self.id = session_id
        self.epoch = 1
        self.wanted: dict[tuple[str, int], int] = {}
        self.told: dict[tuple[str, int], tuple[int, int, int]] = {}


class SessionsMachine(RuleBasedStateMachine):
    """Clients fetch, partitions change, and everybody is told what has changed and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.sessions = FetchSessions(SLOTS, PARTITIONS, itertools.count(1).__next__)
        self.now_ms = 0
        self.partitions = {(topic, index): (0, 0, 0) for topic in "ab" for index in range(4)}  # (code, HW, start)
        self.clients: list[_Client] = []

    @rule(place=PLACES, end=st.integers(1, 5), cut=st.booleans())
    def grow(self, place: tuple[str, int], end: int, cut: bool) -> None:
        code, high_watermark, start = self.partitions[place]
        self.partitions[place] = code, high_watermark + end, high_watermark if cut else start

    @rule(place=PLACES, code=st.sampled_from([0, 0, 6]))
    def fail(self, place: tuple[str, int], code: int) -> None:
        self.partitions[place] = code, *self.partitions[place][1:]

    @rule(later_ms=st.sampled_from([10, 60_000, TWO_MINUTES + 1]))
    def wait(self, later_ms: int) -> None:
        self.now_ms += later_ms

    def _answer(self, place: tuple[str, int], offset: int) -> PartitionAnswer:
        code, high_watermark, start = self.partitions[place]
        size = max(0, high_watermark - offset) if code == 0 else 0
        return PartitionAnswer(place[1], code, high_watermark, high_watermark, start, size)

    @rule(wanted=st.dictionaries(PLACES, st.just(0), max_size=8))
    def begin(self, wanted: dict[tuple[str, int], int]) -> None:
        turn = self.sessions.begin(request_of(0, 0, wanted), self.now_ms, by_ids=False)
        assert turn.opens
        assert turn.session is None
        session = self.sessions.open(turn.topics, self.now_ms, by_ids=False)
        if session is None:
            assert not wanted or len(self.sessions) == SLOTS or self.sessions.partitions + len(wanted) > PARTITIONS
            return
        client = _Client(session.id)
        client.wanted = dict(wanted)
        self._tell(client, session, list(wanted), whole=True)
        self.clients.append(client)

    @rule(data=st.data(), added=st.dictionaries(PLACES, st.just(0), max_size=2), gone=st.lists(PLACES, max_size=2))
    def go_on(self, data: st.DataObject, added: dict[tuple[str, int], int], gone: list[tuple[str, int]]) -> None:
        if not self.clients:
            return
        client = data.draw(st.sampled_from(self.clients))
        forgotten = [place for place in gone if place in client.wanted and place not in added]
        sent = {place: max(client.wanted.get(place, 0), offset) for place, offset in added.items()}
        moved = {
            place: client.told[place][1] for place in client.wanted
            if place in client.told and client.told[place][1] > client.wanted[place] and place not in forgotten
        }  # fmt: skip
        sent |= moved
        turn = self.sessions.begin(request_of(client.id, client.epoch, sent, forgotten), self.now_ms, by_ids=False)
        if turn.error:
            assert turn.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            self.clients.remove(client)
            return
        client.wanted = {place: offset for place, offset in (client.wanted | sent).items() if place not in forgotten}
        for place in forgotten:
            client.told.pop(place, None)
        if turn.session is None:
            assert not client.wanted
            self.clients.remove(client)
            return
        client.epoch += 1
        asked = {(topic, one.partition): one.offset for topic, ones in turn.topics for one in ones}
        assert asked == client.wanted
        self._tell(client, turn.session, [(str(topic), one.partition) for topic, ones in turn.topics for one in ones])

    def _tell(self, client: _Client, session: Session, order: list[tuple[str, int]], *, whole: bool = False) -> None:
        told = []
        for place in order:
            answer = self._answer(place, client.wanted[place])
            said = session.tell(place[0], answer)
            now = (answer.error_code, answer.high_watermark, answer.start_offset)
            known = client.told.get(place)
            # Told of records, of errors, of what changed, and of what an error hid.
            assert said == (answer.size > 0 or now[0] != 0 or known != now or (whole and known is None))
            if said:
                told.append(place)
                client.told[place] = now
        # Those that were answered are looked at last the next time.
        after = list(session.partitions)
        assert after[len(after) - len(told) :] == told

    @rule(data=st.data(), epoch=st.integers(-3, 9), by_ids=st.booleans())
    def ask_amiss(self, data: st.DataObject, epoch: int, by_ids: bool) -> None:
        client = data.draw(st.sampled_from([*self.clients, _Client(999)]))
        if epoch in (0, -1) or (epoch == client.epoch and not by_ids):
            return
        known = client in self.clients and client.id in {one.id for one in self.sessions}
        turn = self.sessions.begin(request_of(client.id, epoch, {}), self.now_ms, by_ids=by_ids)
        if not known:
            assert turn.error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        elif epoch != client.epoch:
            assert turn.error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        else:
            assert turn.error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    @rule(data=st.data(), epoch=st.sampled_from([0, -1]))
    def end(self, data: st.DataObject, epoch: int) -> None:
        if self.clients:
            client = data.draw(st.sampled_from(self.clients))
            self.clients.remove(client)
            turn = self.sessions.begin(request_of(client.id, epoch, {("a", 0): 0}), self.now_ms, by_ids=False)
            assert (turn.error, turn.session, turn.opens) == (0, None, epoch == 0)
            assert client.id not in {one.id for one in self.sessions}

    @invariant()
    def bounded(self) -> None:
        assert len(self.sessions) <= SLOTS
        assert self.sessions.partitions == sum(len(one.partitions) for one in self.sessions)
        assert self.sessions.partitions <= PARTITIONS


TestSessions = SessionsMachine.TestCase
TestSessions.settings = settings(max_examples=examples(60), stateful_step_count=40)


def _open(sessions: FetchSessions, size: int, now_ms: int) -> int:
    wanted = {("a", index): 0 for index in range(size)}
    turn = sessions.begin(request_of(0, 0, wanted), now_ms, by_ids=False)
    session = sessions.open(turn.topics, now_ms, by_ids=False)
    return 0 if session is None else session.id


def test_a_new_session_takes_the_place_of_an_idle_or_of_a_smaller_one() -> None:
    sessions = FetchSessions(2, 100, itertools.count(1).__next__)
    small, large = _open(sessions, 2, 0), _open(sessions, 5, 0)
    # All are younger than two minutes.
    assert _open(sessions, 90, TWO_MINUTES) == 0
    # Used a moment ago and two minutes old: the smaller one goes, for a larger one only.
    later_ms = TWO_MINUTES + 1
    for session_id in (small, large):
        assert sessions.begin(request_of(session_id, 1, {}), later_ms, by_ids=False).error is ErrorCode.NONE
    assert _open(sessions, 2, later_ms) == 0
    new = _open(sessions, 3, later_ms)
    assert new > 0
    assert (
        sessions.begin(request_of(small, 2, {}), later_ms, by_ids=False).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )
    # What nobody used for two minutes goes for anything.
    assert sessions.begin(request_of(new, 1, {}), later_ms + 10, by_ids=False).error is ErrorCode.NONE
    assert _open(sessions, 1, later_ms + TWO_MINUTES + 1) > 0
    assert (
        sessions.begin(request_of(large, 2, {}), later_ms, by_ids=False).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    )


def test_without_slots_every_session_is_declined() -> None:
    assert _open(FetchSessions(0, 100, itertools.count(1).__next__), 1, 0) == 0
    assert _open(FetchSessions(10, 3, itertools.count(1).__next__), 4, 0) == 0


# -- through the door ---------------------------------------------------------------------------------


class Consumer:
    """A consumer below every client."""

    def __init__(self, door: ByHand, version: int) -> None:
        self.connection: ManualConnection = door.connect()
        self.door = door
        self.version = version

    def send(
        self, session_id: int, epoch: int, offsets: dict[int, int], forgotten: list[int] | None = None, *,
        topic: Any = None, max_wait_ms: int = 0,
    ) -> None:  # fmt: skip
        found = self.door.manual.broker.streams.get("a").id if topic is None else topic
        topics = [FetchTopic(found, [FetchPartition(index, offset, 1 << 20) for index, offset in offsets.items()])]
        gone = [(found, forgotten)] if forgotten else []
        request = FetchRequest(
            -1, max_wait_ms, 1, 1 << 20, 0, session_id, epoch, topics if offsets else [], "", gone
        )  # fmt: skip
        self.connection.send(ApiKey.FETCH, self.version, fetch.encode_request(self.version, request))

    def receive(self) -> tuple[int, int, dict[int, tuple[int, int]]]:
        """(Error, session id, (error, bytes) by partition)."""
        answer = self.connection.answer(ApiKey.FETCH, self.version)
        assert answer is not None
        frame, start = answer
        _, code, session_id = struct.unpack_from(">ihi", frame, start)
        code, parts = fetch.decode_response(self.version, frame, start)
        return code, session_id, {part.partition: (part.error_code, len(part.records)) for part in parts}

    def fetch(self, *args: Any, **more: Any) -> tuple[int, int, dict[int, tuple[int, int]]]:
        self.send(*args, **more)
        return self.receive()


@pytest.fixture(params=[13, 16])
def consumer(request: pytest.FixtureRequest) -> Consumer:
    """A consumer of a stream with four partitions."""
    door = ByHand()
    door.manual.create("a", 4)
    return Consumer(door, request.param)


def _produce(consumer: Consumer, partition: int) -> None:
    consumer.door.manual.produce("a", b"x", partition=partition)
    consumer.door.manual.settle()


def test_only_what_changed_is_answered(consumer: Consumer) -> None:
    _produce(consumer, 2)
    code, session_id, parts = consumer.fetch(0, 0, dict.fromkeys(range(4), 0))
    assert code == 0
    assert session_id > 0
    assert {index: (error, size > 0) for index, (error, size) in parts.items()} == {
        0: (0, False), 1: (0, False), 2: (0, True), 3: (0, False)
    }  # fmt: skip
    assert consumer.fetch(session_id, 1, {2: 1}) == (0, session_id, {})
    _produce(consumer, 1)
    code, _, parts = consumer.fetch(session_id, 2, {})
    assert (code, list(parts)) == (0, [1])
    assert consumer.fetch(session_id, 3, {1: 1}, [0, 1, 2]) == (0, session_id, {})
    _produce(consumer, 1)
    assert consumer.fetch(session_id, 4, {}) == (0, session_id, {})
    _produce(consumer, 3)
    assert list(consumer.fetch(session_id, 5, {})[2]) == [3]
    # Nothing left in it: it ends with an answer without a session.
    assert consumer.fetch(session_id, 6, {}, [3]) == (0, 0, {})
    assert consumer.fetch(session_id, 7, {})[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_poll_of_a_session_waits_for_records(consumer: Consumer) -> None:
    _, session_id, _ = consumer.fetch(0, 0, dict.fromkeys(range(4), 0))
    consumer.send(session_id, 1, {}, max_wait_ms=500)
    assert consumer.connection.answer(ApiKey.FETCH, consumer.version) is None
    _produce(consumer, 3)
    assert list(consumer.receive()[2]) == [3]
    consumer.send(session_id, 2, {3: 1}, max_wait_ms=500)
    consumer.door.advance(500)
    assert consumer.receive() == (0, session_id, {})


def test_errors_of_sessions(consumer: Consumer) -> None:
    _, session_id, _ = consumer.fetch(0, 0, {0: 0})
    assert consumer.fetch(session_id + 1, 1, {})[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert consumer.fetch(session_id, 2, {})[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    # One that is overtaken by the next of its session is refused when it is answered.
    consumer.send(session_id, 1, {}, max_wait_ms=500)
    other = Consumer(consumer.door, consumer.version)
    assert other.fetch(session_id, 2, {})[0] == 0
    _produce(consumer, 0)
    assert consumer.receive()[0] == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    # The client ends its session.
    assert consumer.fetch(session_id, -1, {0: 1}) == (0, 0, {0: (0, 0)})
    assert consumer.fetch(session_id, 3, {})[0] == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_topic_made_anew_is_never_read_under_the_old_id(consumer: Consumer) -> None:
    _, session_id, _ = consumer.fetch(0, 0, {0: 0})
    old = consumer.door.manual.broker.streams.get("a").id
    consumer.door.manual.delete("a")
    consumer.door.manual.create("a", 4)
    _produce(consumer, 0)
    for epoch in (1, 2):
        assert consumer.fetch(session_id, epoch, {})[2] == {0: (ErrorCode.UNKNOWN_TOPIC_ID, 0)}
    assert consumer.fetch(0, -1, {0: 0}, topic=old)[2] == {0: (ErrorCode.UNKNOWN_TOPIC_ID, 0)}
    assert consumer.fetch(0, -1, {0: 0})[2][0][1] > 0


def test_an_error_is_said_until_it_is_gone(consumer: Consumer) -> None:
    _, session_id, _ = consumer.fetch(0, 0, {0: 0, 9: 0})
    for epoch in (1, 2):
        assert consumer.fetch(session_id, epoch, {})[2] == {9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)}
    assert consumer.fetch(session_id, 3, {0: 7})[2][0] == (ErrorCode.OFFSET_OUT_OF_RANGE, 0)
    assert consumer.fetch(session_id, 4, {0: 0}, [9])[2] == {0: (0, 0)}
    assert consumer.fetch(session_id, 5, {})[2] == {}


def test_a_session_s_consumer_above_its_quota_stays_in_it(consumer: Consumer) -> None:
    for _ in range(4):
        _produce(consumer, 0)
    _, session_id, _ = consumer.fetch(0, 0, {1: 0})
    quotas = consumer.door.manual.broker.quotas
    quotas.update({(("client-id", "by-hand"),): {"consumer_byte_rate": 10.0}})
    assert consumer.fetch(session_id, 1, {0: 0})[2][0][1] > 0
    assert consumer.fetch(session_id, 2, {0: 1}) == (0, session_id, {})
    quotas.update({})
    consumer.door.advance(60_000)
    assert consumer.fetch(session_id, 3, {})[2][0][1] > 0
