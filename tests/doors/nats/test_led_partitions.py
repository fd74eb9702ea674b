"""Several nodes that all hear every message: the leader takes it, and answers once all replicas have it."""

import json
import random
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.broker.several import Several
from tests.doors.nats.capturing import message
from tests.sim import planted as planting
from tests.sim.planted import Bug, planted

from duramen.base.errors import DuramenError
from duramen.broker.gaps import OpenGap
from duramen.broker.streams import Stream
from duramen.codec.batch import DecodedRecord, Header, records
from duramen.codec.nats import Message
from duramen.codec.partitioner import partition_of
from duramen.doors.nats.bound import MessageBatch
from duramen.doors.nats.capture import Capture
from duramen.doors.nats.led_partitions import LedPartitions
from duramen.metadata.decisions import Definition
from duramen.service.admission import Service
from duramen.sim.broker import CallbackResult
from duramen.storage.scan import scan_log

_LISTENED_MS = 1
_MODELS: Final = 300


class Ear:
    """What the NATS door of a node has but its connection; `answers` is what went out, as (reply subject, JSON)."""

    def __init__(self, several: Several, node_id: int) -> None:
        hand = several.hands[node_id]
        self.broker = hand.broker
        self.writes: list[bytes] = []
        self.followed: list[tuple[str, bool]] = []
        self.awaited: list[Callable[[], None]] | None = None  # what waits for a server that takes its time
        self.reports: list[str] = []
        self.capture = Capture(
            self.broker, Service(self.broker), fingerprint_key=b"k", duplicate_entries=1000, limit_bytes=1 << 20,
            soon=hand.worker.soon, send=self.writes.append, on_room=lambda: None,
        )  # fmt: skip
        self.leading = LedPartitions(
            self.broker, self.capture,
            listened_ms=_LISTENED_MS, report=self.reports.append, follow=self._follow, ready=self._ready,
        )  # fmt: skip
        for stream in self.broker.streams:
            self._changed(stream)
        self.broker.streams.listeners.append(self._changed)
        self.leading.start()
        self.leading.listening()

    def _ready(self, action: Callable[[], None]) -> None:
        if self.awaited is None:
            action()
        else:
            self.awaited.append(action)

    def _changed(self, stream: Stream) -> None:
        self.capture.bind(stream)
        if stream.deleted:
            self.leading.deleted(stream)

    def _follow(self, stream: Stream) -> None:
        self.followed.append((stream.name, self.leading.leads(stream)))

    def answers(self) -> list[tuple[str, dict[str, Any]]]:
        """What was sent since the last call."""
        return sent(self.writes)


def sent(writes: list[bytes]) -> list[tuple[str, dict[str, Any]]]:
    """What was sent, as (reply subject, JSON); it is forgotten then."""
    data, found = b"".join(writes), []
    writes.clear()
    while data:
        line, _, rest = data.partition(b"\r\n")
        _, reply, size = line.split(b" ")
        found.append((reply.decode(), json.loads(rest[: int(size)])))
        data = rest[int(size) + 2 :]
    return found


class Place:
    """Three nodes with a NATS door each."""

    def __init__(self) -> None:
        self.several = Several()
        self.ears = {node_id: Ear(self.several, node_id) for node_id in self.several.hands}

    def create(self, name: str, *subjects: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        created: CallbackResult[None] = CallbackResult()
        self.several.broker(1).create_stream(Definition(name, partitions, config or {}, subjects), created)
        self.several.advance(1000)
        assert created.value is None

    def publish(self, *messages: Message) -> list[tuple[str, dict[str, Any]]]:
        """Everybody who listens hears them; what publishers hear of it."""
        for ear in self.ears.values():
            ear.capture.take(messages)
        return self.answers()

    def answers(self) -> list[tuple[str, dict[str, Any]]]:
        self.several.settle()
        return [answer for ear in self.ears.values() for answer in ear.answers()]

    def elect(self, name: str, leader: int | None, index: int = 0) -> None:
        self.several.elect(self.several.place(name, index), leader)

    def records(self, node_id: int, name: str, index: int = 0) -> list[DecodedRecord]:
        found: list[DecodedRecord] = []
        ended: list[object] = []

        def take(_: Header, batch: bytes) -> None:
            found.extend(records(batch))

        broker = self.several.broker(node_id)
        log = broker.streams.get(name).partition(index).log
        scan_log(broker.store, log, 0, take, ended.append)
        self.several.settle()
        assert ended == [None]
        return found


@pytest.fixture
def place() -> Place:
    return Place()


def _errors(answers: list[tuple[str, dict[str, Any]]]) -> list[tuple[str, int]]:
    return [(reply, answer["error"]["err_code"]) for reply, answer in answers]


def test_the_leader_alone_takes_a_message_and_answers_it(place: Place) -> None:
    place.create("s", "a.*", partitions=3)
    subjects = [f"a.{number}" for number in range(20)]
    acks = place.publish(*[message(subject, subject.encode(), subject) for subject in subjects])
    assert sorted(reply for reply, _ in acks) == sorted(subjects)
    for reply, ack in acks:
        assert ack["partition"] == partition_of(reply.encode(), 3)
    place.several.advance(1000)
    for node_id in place.ears:
        values = [record.value for index in range(3) for record in place.records(node_id, "s", index)]
        assert sorted(value or b"" for value in values) == sorted(subject.encode() for subject in subjects)


def test_messages_with_headers_go_by_their_key(place: Place) -> None:
    place.create("s", "a", partitions=3)
    acks = place.publish(*[message("a", b"x", f"r{n}", {"Duramen-Key": f"k{n}"}) for n in range(20)])
    assert sorted((reply, ack["partition"]) for reply, ack in acks) == sorted(
        (f"r{n}", partition_of(f"k{n}".encode(), 3)) for n in range(20)
    )


@pytest.mark.parametrize(
    "refused",
    [
        message("a", b"", "r", {"Nats-TTL": "1"}),
        message("a", b"", "r", {"Nats-Expected-Stream": "other"}),
        message("a", bytes(2 << 20), "r"),
        message("a", bytes(2 << 20), "r", {"X": "y"}),
    ],
)
def test_only_the_leader_refuses(place: Place, refused: Message) -> None:
    place.create("s", "a")
    ((reply, answer),) = place.publish(refused)
    assert (reply, "error" in answer) == ("r", True)
    place.elect("s", None)
    assert place.publish(refused) == []


def test_streams_of_several_leaders_on_one_subject(place: Place) -> None:
    place.create("one", "a")
    place.create("two", "a")
    place.elect("two", 2)
    place.several.settle()
    acks = place.publish(message("a", b"x", "r"))
    assert sorted(ack["stream"] for _, ack in acks) == ["one", "two"]
    ((_, ack),) = place.publish(message("a", b"y", "r", {"Nats-Expected-Stream": "two"}))
    assert ack["stream"] == "two"
    assert [len(place.records(1, name)) for name in ("one", "two")] == [2, 2]
    ((_, answer),) = place.publish(message("a", b"z", "r", {"Nats-Expected-Stream": "three"}))
    assert answer["error"]["err_code"] == 10060


def test_a_stream_is_followed_where_it_is_led(place: Place) -> None:
    place.create("s", "a", partitions=3)
    place.elect("s", 2, 0)
    place.elect("s", 3, 1)
    place.several.settle()
    assert [ear.followed[-1] for ear in place.ears.values()] == [("s", False), ("s", True), ("s", True)]
    assert [ear.leading.leads(ear.broker.streams.get("s")) for ear in place.ears.values()] == [False, True, True]


def test_nothing_is_acknowledged_that_a_leader_could_not_replicate(place: Place) -> None:
    place.create("s", "a")
    place.several.cut = {1}
    assert place.publish(message("a", b"lost", "r", {"Nats-Msg-Id": "i"})) == []
    place.elect("s", 2)
    place.several.advance(1000)
    place.several.cut = set()
    place.several.elect(place.several.place("s"), 3)
    place.several.advance(1000)
    assert _errors(place.answers()) == [("r", 10008)]
    ((_, ack),) = place.publish(message("a", b"again", "r", {"Nats-Msg-Id": "i"}))
    assert "duplicate" not in ack
    assert [record.value for record in place.records(3, "s")] == [b"again"]


def test_the_next_leader_knows_the_message_ids_of_the_last(place: Place) -> None:
    place.create("s", "a", "b")
    place.publish(message("a", b"1", "r", {"Nats-Msg-Id": "i"}))
    place.elect("s", 2)
    place.several.advance(1000)
    ((_, ack),) = place.publish(message("a", b"2", "r", {"Nats-Msg-Id": "i"}))
    assert (ack["offset"], ack["duplicate"]) == (0, True)
    place.elect("s", 1)
    place.several.advance(1000)
    ((_, ack),) = place.publish(message("b", b"3", "r", {"Nats-Msg-Id": "i"}))
    assert (ack["offset"], ack["duplicate"]) == (0, True)
    assert len(place.records(1, "s")) == 1


def test_what_was_not_acknowledged_and_is_there_is_known_too(place: Place) -> None:
    place.create("s", "a")
    place.ears[1].capture.take([message("a", b"1", "r", {"Nats-Msg-Id": "i"})])
    while not place.several.broker(2).streams.get("s").partition(0).log.end_offset:
        place.several.hands[1].settle()
        place.several.hands[2].settle()
        place.several.step()
    place.several.said.clear()
    assert place.ears[1].answers() == []
    place.elect("s", 2)
    place.several.advance(1000)
    assert _errors(place.answers()) == [("r", 10008)]
    ((_, ack),) = place.publish(message("a", b"2", "q", {"Nats-Msg-Id": "i"}))
    assert (ack["offset"], ack["duplicate"]) == (0, True)


def test_an_id_stays_with_what_was_appended_and_not_acknowledged(place: Place) -> None:
    place.create("s", "a", config={"min.insync.replicas": "2"})
    several = place.several
    several.cut = {2, 3}
    assert place.publish(message("a", b"1", "r", {"Nats-Msg-Id": "i"})) == []
    several.shrink(several.place("s"))
    assert _errors(place.answers()) == [("r", 10008)]
    assert _errors(place.publish(message("a", b"2", "q", {"Nats-Msg-Id": "i"}))) == [("q", 10008)]
    several.heal(2)
    several.heal(3)
    several.advance(5000)
    acks = place.publish(message("a", b"3", "r", {"Nats-Msg-Id": "i"}), message("a", b"4", "n", {"Nats-Msg-Id": "j"}))
    assert [(reply, ack["offset"], "duplicate" in ack) for reply, ack in acks] == [("r", 0, True), ("n", 1, False)]
    assert [record.value for record in place.records(3, "s")] == [b"1", b"4"]


def test_a_repetition_waits_until_what_was_appended_is_acknowledged(place: Place) -> None:
    place.create("s", "a", config={"min.insync.replicas": "2"})
    several = place.several
    several.cut = {2, 3}
    place.publish(message("a", b"1", "r", {"Nats-Msg-Id": "i"}))
    several.session(1, lately=False)
    assert _errors(place.answers()) == [("r", 10008)]
    several.session(1, lately=True)
    assert place.publish(message("a", b"2", "q", {"Nats-Msg-Id": "i"})) == []
    several.heal(2)
    several.heal(3)
    several.advance(5000)
    ((reply, ack),) = place.answers()
    assert (reply, ack["offset"], ack["duplicate"]) == ("q", 0, True)


def test_an_id_goes_with_what_the_next_leader_lacks(place: Place) -> None:
    place.create("s", "a", config={"min.insync.replicas": "2"})
    several = place.several
    several.cut = {2, 3}
    several.hands[1].settle()
    place.ears[1].capture.take([message("a", b"1", "r", {"Nats-Msg-Id": "i"})])
    several.settle()
    several.cut = {1}
    place.elect("s", 2)
    several.advance(1000)
    several.heal(1)
    several.advance(1000)
    place.elect("s", 1)
    several.advance(1000)
    place.answers()
    ((_, ack),) = place.publish(message("a", b"2", "r", {"Nats-Msg-Id": "i"}))
    assert (ack["offset"], "duplicate" in ack) == (0, False)


def test_ids_belong_to_a_partition(place: Place) -> None:
    place.create("s", "a.*", partitions=2)
    first = next(f"a.{n}" for n in range(9) if partition_of(f"a.{n}".encode(), 2) == 0)
    second = next(f"a.{n}" for n in range(9) if partition_of(f"a.{n}".encode(), 2) == 1)
    for leader in (2, 3):
        place.elect("s", leader, 1)
        place.elect("s", 2, 0)
        place.several.advance(1000)
        acks = place.publish(*[message(subject, b"x", "r", {"Nats-Msg-Id": "i"}) for subject in (first, second)])
        assert ["duplicate" in ack for _, ack in acks] == [leader == 3] * 2


def test_a_leader_that_does_not_know_what_is_committed_refuses(place: Place) -> None:
    place.create("s", "a")
    place.publish(message("a", b"1", "r"))
    for leader in (2, 3):
        place.ears[1].capture.take([message("a", b"%d" % leader, None)])
        place.several.hands[1].settle()
    place.several.cut = {3}
    while place.several.broker(2).streams.get("s").partition(0).log.end_offset < 3:
        place.several.hands[1].settle()
        place.several.hands[2].settle()
        place.several.step()
    place.several.cut = {1, 3}
    place.elect("s", 2)
    place.several.settle()
    early = [message("a", b"early", "q"), message("a", b"early", "h", {"Nats-Msg-Id": "i"})]
    place.ears[2].capture.take(early)
    place.several.hands[2].settle()
    assert _errors(place.ears[2].answers()) == [("q", 10008), ("h", 10008)]
    place.several.cut = set()
    place.elect("s", 2)
    place.several.advance(1000)
    ((_, ack),) = place.publish(message("a", b"late", "q"))
    assert ack["offset"] == 3
    assert [record.value for record in place.records(2, "s")] == [b"1", b"2", b"3", b"late"]


# -- gaps -------------------------------------------------------------------------------------------


def _open(ear: Ear, name: str) -> OpenGap | None:
    return ear.broker.gaps.of(ear.broker.streams.get(name)).open


def test_a_new_stream_has_no_gap(place: Place) -> None:
    place.create("s", "a")
    assert _open(place.ears[1], "s") is None


def test_the_next_leader_says_what_may_be_missing_until_it_listens(place: Place) -> None:
    place.create("s", "a")
    ear, stream = place.ears[2], place.several.broker(2).streams.get("s")
    moment_ms = ear.broker.now_ms()
    ear.awaited = []
    place.elect("s", 2)
    place.several.settle()
    assert _open(ear, "s") == OpenGap(moment_ms - 1000, "leader change")
    (action,) = ear.awaited
    action()
    gaps = ear.broker.gaps.of(stream)
    assert (gaps.gaps, gaps.open) == (1, None)
    assert gaps.recent[0] == (moment_ms - 1000, ear.broker.now_ms(), "leader change")


def test_a_leader_whose_connection_is_lost_has_a_gap_until_it_leads_no_more(place: Place) -> None:
    place.create("s", "a")
    place.create("other", "b")
    place.elect("other", 2)
    place.several.settle()
    ear, stream = place.ears[1], place.several.broker(1).streams.get("s")
    before = ear.broker.gaps.of(ear.broker.streams.get("other"))
    lost_ms = ear.broker.now_ms()
    ear.leading.deaf(lost_ms, "reconnect")
    assert _open(ear, "s") == OpenGap(lost_ms, "reconnect")
    place.several.advance(3000)
    place.elect("s", 3)
    place.several.settle()
    gaps = ear.broker.gaps.of(stream)
    assert (gaps.recent, gaps.open) == (((lost_ms, lost_ms + 3000, "reconnect"),), None)
    assert ear.broker.gaps.of(ear.broker.streams.get("other")) == before


def test_a_node_that_led_before_its_restart_says_since_when(place: Place) -> None:
    place.create("s", "a")
    ear = Ear(place.several, 1)
    gaps = ear.broker.gaps.of(ear.broker.streams.get("s"))
    assert (gaps.recent, gaps.open) == (((_LISTENED_MS, ear.broker.now_ms(), "restart"),), None)


def test_what_begins_to_be_led_while_nothing_comes_has_a_gap(place: Place) -> None:
    ear = place.ears[1]
    ear.leading.deaf(ear.broker.now_ms(), "reconnect")
    ear.awaited = []
    moment_ms = ear.broker.now_ms()
    place.create("s", "a")
    found = _open(ear, "s")
    assert found is not None
    assert found.cause == "reconnect"
    assert found.start_ms >= moment_ms


def test_what_was_sent_to_an_earlier_leadership_is_not_taken(place: Place) -> None:
    place.create("s", "a")
    ear = place.ears[1]
    ear.awaited = []
    place.elect("s", 2)
    place.several.settle()
    place.elect("s", 1)
    place.several.settle()
    place.elect("s", 1)
    place.several.settle()
    first, second = ear.awaited
    assert _errors(place.publish(message("a", b"stale", "r"))) == [("r", 10008)]
    first()
    assert _errors(place.publish(message("a", b"stale", "r"))) == [("r", 10008)]
    second()
    ((_, ack),) = place.publish(message("a", b"new", "r"))
    assert ack["offset"] == 0


def test_a_new_connection_brings_nothing_from_before(place: Place) -> None:
    place.create("s", "a")
    ear = place.ears[2]
    ear.awaited = []
    place.elect("s", 2)
    place.several.settle()
    ear.leading.deaf(ear.broker.now_ms(), "reconnect")
    ear.leading.listening()
    ((_, ack),) = place.publish(message("a", b"x", "r"))
    assert ack["offset"] == 0


def test_a_stream_that_is_deleted_is_followed_no_more(place: Place) -> None:
    place.create("s", "a")
    deleted: CallbackResult[None] = CallbackResult()
    place.several.broker(1).delete_stream("s", deleted)
    place.several.settle()
    assert deleted.value is None
    assert place.ears[1].followed[-1] == ("s", False)
    assert place.publish(message("a", b"x", "r")) == []


# -- against a model --------------------------------------------------------------------------------

_PUBLISH = st.tuples(st.just("publish"), st.integers(0, 5))
_STEPS = st.tuples(st.just("steps"), st.integers(1, 12))
_ELECT = st.tuples(st.just("elect"), st.integers(1, 3))
_CUT = st.tuples(st.just("cut"), st.integers(1, 3))
_HEAL = st.tuples(st.just("heal"), st.just(0))
_SHRINK = st.tuples(st.just("shrink"), st.just(0))


def _do(place: Place, what: str, number: int, published: int) -> None:
    several, partition = place.several, place.several.place("s")
    if what == "publish":
        for ear in place.ears.values():
            ear.capture.take([message("a", b"%d" % number, f"{number}/{published}", {"Nats-Msg-Id": str(number)})])
    elif what == "steps":
        for _ in range(number):
            for hand in several.hands.values():
                hand.settle()
            several.step()
    elif what == "elect" and number in several.partitions[partition].isr and number not in several.cut:
        several.elect(partition, number)
    elif what == "cut":
        several.cut = {number}
    elif what == "heal":
        several.cut = set()
    elif what == "shrink" and several.partitions[partition].leader not in several.cut:
        several.shrink(partition)


_WISHES = (_PUBLISH, _PUBLISH, _STEPS, _STEPS, _ELECT, _CUT, _HEAL, _SHRINK)


def _lived(wishes: list[tuple[str, int]]) -> tuple[Place, list[bytes | None]]:
    """What is stored after these."""
    place = Place()
    place.create("s", "a", config={"min.insync.replicas": "2"})
    for published, (what, number) in enumerate(wishes):
        _do(place, what, number, published)
    place.several.cut = set()
    last = min(place.several.partitions[place.several.place("s")].isr)
    place.elect("s", last)
    place.several.advance(3000)
    return place, [record.value for record in place.records(last, "s")]


@given(st.lists(st.one_of(_WISHES), max_size=40))
def test_no_answer_is_false_and_no_id_is_there_twice(wishes: list[tuple[str, int]]) -> None:
    place, found = _lived(wishes)
    assert len(set(found)) == len(found)
    answers = place.answers()
    assert len({reply for reply, answer in answers if "error" not in answer}) == len(
        [reply for reply, answer in answers if "error" not in answer]
    )
    for reply, answer in answers:
        if "error" not in answer:
            assert found[answer["offset"]] == reply.partition("/")[0].encode()
    for number in range(6):
        ((_, ack),) = place.publish(message("a", b"%d" % number, "r", {"Nats-Msg-Id": str(number)}))
        assert ("duplicate" in ack) == (b"%d" % number in found)


def _forget_ids(right: Callable[..., Any]) -> Callable[..., Any]:
    def _appended(self: Capture, taken: MessageBatch, base_offset: int, error: DuramenError | None) -> None:
        right(self, taken, base_offset if error is None else -1, error)

    return _appended


def _stores_twice() -> bool:
    """Whether an id is stored twice in one of so many lives."""
    chance = random.Random("ids")
    kinds = [("publish", 0, 5), ("steps", 1, 12), ("elect", 1, 3), ("cut", 1, 3), ("heal", 0, 0), ("shrink", 0, 0)]
    wished = [kinds[at] for at in (0, 0, 1, 1, 2, 3, 4, 5)]
    for _ in range(_MODELS):
        wishes = [(what, chance.randint(least, most)) for what, least, most in chance.choices(wished, k=40)]
        _, found = _lived(wishes)
        if len(set(found)) != len(found):
            return True
    return False


def test_the_model_finds_a_leader_that_forgets_ids_on_an_error() -> None:
    bug = Bug("forget-ids", "", (planting.Place(Capture, "_appended", _forget_ids),), "forget ids on an error")
    with planted(bug):
        assert _stores_twice()
