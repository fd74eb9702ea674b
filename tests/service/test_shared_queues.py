"""Share groups on queue topics, on a node by hand: gaps, deletions, edits, starts, limits, lag, the end of a space."""

from collections.abc import Iterable, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.coordinators.share.keeping import partitions_of
from tests.examples import examples

from duramen.base.errors import RecordStateInvalid
from duramen.base.ids import Position
from duramen.codec.batch import BatchInput, DecodedRecord, batches, encode, records
from duramen.coordinators.share.fetch import ShareFetched, ShareLimits
from duramen.coordinators.share.partition import ACCEPT, GAP, REJECT, RELEASE, Acknowledged
from duramen.coordinators.share.shares import ShareOffset
from duramen.groups.share_group import ShareHeartbeat, ShareHeartbeatResult
from duramen.groups.share_records import ShareKey
from duramen.queues.machine import Delete, Edit, Empty, QueueCommand, Replace
from duramen.queues.names import Queue
from duramen.queues.operations import NewEntry
from duramen.service.queue_topics import QueueTopic, QueueTopics
from duramen.service.queues import queue_of
from duramen.sim.broker import CallbackResult, ManualBroker

_MOST_DELIVERIES = 3
_TYPES = st.sampled_from([ACCEPT, RELEASE, REJECT])
_OWNERS = st.sampled_from(["m", "n"])
LIMITS = ShareLimits(1, 1 << 20, 0, 500, 500)
GROUP = "g"


class SharedQueues:
    """A group that reads queues of a space with one shard, each step settled."""

    def __init__(self, **config: str) -> None:
        self.hand = ManualBroker()
        self.epochs: dict[int, int] = {}
        self.hand.create("mail", 1, kind="queues", **{"queue.topic.prefix": "mail.", **config})
        self.topics = QueueTopics(self.hand.broker)
        self.do(self.hand.broker.internal_streams.ensure_shares)
        self.configure({"share.auto.offset.reset": "earliest"})

    def do(self, action: Any, *args: Any) -> None:
        """Do something that ends in `done(None)`; raises its error."""
        answer: CallbackResult[None] = CallbackResult()
        action(*args, answer)
        self.hand.settle()
        if answer.error is not None:
            raise answer.error

    def configure(self, changes: dict[str, str | None]) -> None:
        self.do(self.hand.broker.group_configs.change, GROUP, changes)

    def crash(self) -> None:
        self.hand.crash()
        self.topics = QueueTopics(self.hand.broker)

    def topic(self, name: str) -> QueueTopic:
        found = self.topics.shared(f"mail.{name}")
        assert found is not None
        return found

    def put(self, name: str, *values: bytes) -> list[int]:
        """Produce to a queue; the offsets."""
        answer: CallbackResult[object] = CallbackResult()
        batch = encode([BatchInput(self.hand.clock.wall_ms(), b"key", value) for value in values])
        self.topic(name).append(memoryview(batch), answer, all_replicas=True)
        self.hand.settle()
        offset, error = answer.calls[0]
        assert error is None
        offsets = list(range(offset, offset + len(values)))
        self.epochs |= dict.fromkeys(offsets, self.hand.broker.streams.get("mail").partition(0).leader_epoch)
        return offsets

    def submit(self, command: QueueCommand) -> None:
        answer: CallbackResult[object] = CallbackResult()
        self.hand.broker.coordinators.submit("mail", 0, command, answer)
        self.hand.settle()
        assert answer.there

    def queue(self, name: str) -> Queue:
        return queue_of(*self.topic(name).place)

    def delete(self, name: str, *offsets: int) -> None:
        self.submit(Delete(self.queue(name), [(self.position(offset), None) for offset in offsets]))

    def edit(self, name: str, offset: int, value: bytes) -> None:
        self.submit(Edit(self.queue(name), [(self.position(offset), None, value)]))

    def purge(self, name: str) -> None:
        self.submit(Empty(self.queue(name), "purge"))

    def position(self, offset: int) -> Position:
        return Position(self.epochs[offset], offset)

    def beat(self, member: str, epoch: int, *names: str) -> ShareHeartbeatResult:
        answer: CallbackResult[ShareHeartbeatResult] = CallbackResult()
        topics = [f"mail.{name}" for name in names] or None
        heartbeat = ShareHeartbeat(member, epoch, None, topics, "c", "/h")
        self.hand.broker.share_groups.heartbeat(GROUP, heartbeat, answer)
        self.hand.settle()
        return answer.value

    def key(self, name: str) -> ShareKey:
        return ShareKey(GROUP, self.topic(name).id, 0)

    def begin(self, owner: str, names: Sequence[str], limits: ShareLimits) -> CallbackResult[list[ShareFetched]]:
        answer: CallbackResult[list[ShareFetched]] = CallbackResult()
        self.hand.broker.sharing.fetch([self.key(name) for name in names], owner, limits, answer)
        self.hand.settle()
        return answer

    def take(self, owner: str, name: str, **limits: Any) -> dict[int, tuple[int, bytes | None]]:
        """What `owner` gets at once of a queue: the delivery and the value, by offset."""
        (found,) = self.begin(owner, [name], LIMITS._replace(**limits)).value
        return acquired(found)

    def say(self, owner: str, name: str, *said: tuple[int, int, int]) -> None:
        spoken = [Acknowledged(first, last, [type_]) for first, last, type_ in said]
        self.do(self.hand.broker.sharing.acknowledge, self.key(name), owner, spoken)

    def offset(self, name: str) -> ShareOffset | None:
        answer: CallbackResult[ShareOffset | None] = CallbackResult()
        self.hand.broker.sharing.offset(self.key(name), answer)
        self.hand.settle()
        return answer.value


def acquired(found: ShareFetched) -> dict[int, tuple[int, bytes | None]]:
    """The delivery and the value of each acquired record, by offset. Each acquired offset has a record."""
    if found.error is not None:
        raise found.error
    if found.taken is None:
        return {}
    data = found.taken.records
    decoded: dict[int, DecodedRecord] = {
        record.offset: record for at, head in batches(data) for record in records(data[at : at + head.size])
    }
    return {
        offset: (deliveries, decoded[offset].value)
        for first, last, deliveries in found.taken.acquired
        for offset in range(first, last + 1)
    }


_IDLE = SharedQueues()


def shared(*names: str, **config: str) -> SharedQueues:
    made = SharedQueues(**config)
    made.beat("m", 0, *names)
    return made


def test_entries_of_the_queue_alone_are_delivered_and_done_with_also_after_a_crash() -> None:
    mail = shared("ann")
    offsets = []
    for number in range(3):
        offsets += mail.put("ann", b"%d" % number)
        mail.put("bob", *[b"other"] * 1000)
    assert mail.take("m", "ann") == {offset: (1, b"%d" % at) for at, offset in enumerate(offsets)}
    assert mail.take("n", "ann") == {}
    mail.say("m", "ann", (offsets[0], offsets[0], ACCEPT), (offsets[2], offsets[2], REJECT))
    mail.crash()
    assert mail.take("n", "ann") == {offsets[1]: (1, b"1")}
    mail.say("n", "ann", (offsets[1], offsets[1], RELEASE))
    assert mail.take("n", "ann") == {offsets[1]: (2, b"1")}
    mail.say("n", "ann", (offsets[1], offsets[1], ACCEPT))
    mail.crash()
    new = mail.put("ann", b"new")
    assert mail.take("n", "ann") == {new[0]: (1, b"new")}


def test_deleted_entries_are_passed_over_and_edits_show_at_the_next_delivery() -> None:
    mail = shared("ann")
    first, second, third, fourth = mail.put("ann", b"1", b"2", b"3", b"4")
    mail.delete("ann", second)
    mail.edit("ann", third, b"three")
    assert mail.take("m", "ann") == {first: (1, b"1"), third: (1, b"three"), fourth: (1, b"4")}
    mail.delete("ann", fourth)
    mail.edit("ann", first, b"one")
    mail.say("m", "ann", (first, first, RELEASE), (third, third, ACCEPT), (fourth, fourth, RELEASE))
    assert mail.take("n", "ann") == {first: (2, b"one")}
    assert mail.offset("ann") == ShareOffset(first, 1, 1)
    mail.say("n", "ann", (first, first, ACCEPT))
    assert mail.take("n", "ann") == {}
    (fifth,) = mail.put("ann", b"5")
    mail.purge("ann")
    (sixth,) = mail.put("ann", b"6")
    assert mail.take("n", "ann") == {sixth: (1, b"6")}
    assert fifth < sixth


def test_entries_that_were_taken_back_are_not_delivered_again_and_their_successors_are() -> None:
    mail = shared("ann")
    first, second, third = mail.put("ann", b"1", b"2", b"3")
    assert sorted(mail.take("m", "ann")) == [first, second, third]
    mail.submit(Replace(mail.queue("ann"), mail.position(second), [NewEntry(b"two")]))
    mail.say("m", "ann", (first, first, RELEASE), (second, second, RELEASE), (third, third, ACCEPT))
    (one, another) = mail.take("m", "ann").values()
    assert (one, another) == ((2, b"1"), (1, b"two"))


def test_a_queue_that_was_dropped_and_made_again_is_read_on() -> None:
    mail = shared("ann")
    (first,) = mail.put("ann", b"1")
    assert mail.take("m", "ann") == {first: (1, b"1")}
    mail.submit(Empty(mail.queue("ann"), "drop"))
    mail.say("m", "ann", (first, first, RELEASE))
    assert mail.take("m", "ann") == {}
    (again,) = mail.put("ann", b"again")
    assert mail.take("m", "ann") == {again: (1, b"again")}


def test_what_is_released_between_what_is_held_and_done_with_is_delivered_again_alone() -> None:
    mail = shared("ann")
    offsets = []
    for number in range(200):
        offsets += mail.put("ann", b"%d" % number)
        mail.put("bob", b"x")
    assert len(mail.take("m", "ann")) == 200
    accepted, released = offsets[10:190:2], [*offsets[1:10:3], *offsets[191::3]]
    mail.say("m", "ann", *((offset, offset, ACCEPT) for offset in accepted))
    mail.say("m", "ann", *((offset, offset, RELEASE) for offset in released))
    assert sorted(mail.take("n", "ann")) == released
    mail.crash()
    assert sorted(mail.take("n", "ann")) == sorted({*offsets} - {*accepted})


def test_only_what_is_held_is_decided_and_gaps_are_over() -> None:
    mail = shared("ann")
    (first,) = mail.put("ann", b"1")
    mail.put("bob", b"x", b"x")
    (second,) = mail.put("ann", b"2")
    mail.take("m", "ann")
    for wrong in ((first, second, ACCEPT), (first + 1, first + 1, GAP), (second, second + 1, ACCEPT)):
        with pytest.raises(Exception, match="acquired"):
            mail.say("m", "ann", wrong)
    with pytest.raises(RecordStateInvalid):
        mail.say("n", "ann", (first, first, ACCEPT))
    mail.say("m", "ann", (first, first, ACCEPT), (second, second, ACCEPT))


@pytest.mark.parametrize(("reset", "wanted"), [("latest", 0), ("earliest", 3), ("by_duration:PT5S", 1)])
def test_where_a_group_starts(reset: str, wanted: int) -> None:
    mail = shared("ann")
    mail.configure({"share.auto.offset.reset": reset})
    mail.put("ann", b"1")
    mail.put("bob", b"x")
    mail.hand.clock.advance(10_000)
    for value in (b"2", b"3"):
        mail.put("ann", value)
        mail.hand.clock.advance(6_000 if value == b"2" else 0)
    assert len(mail.take("m", "ann")) == wanted
    later = mail.put("ann", b"4")
    assert mail.take("m", "ann") == {later[0]: (1, b"4")}


def test_a_group_that_begins_after_the_last_entry_by_time_starts_at_the_end() -> None:
    mail = shared("ann")
    mail.configure({"share.auto.offset.reset": "by_duration:PT5S"})
    mail.put("ann", b"1")
    mail.hand.clock.advance(10_000)
    assert mail.take("m", "ann") == {}
    assert mail.offset("ann") == ShareOffset(1, 1, 0)


def test_limits_of_a_response_and_of_what_is_in_flight() -> None:
    mail = shared("ann", "bob")
    mail.configure({"share.partition.max.record.locks": "100"})
    for number in range(150):
        mail.put("ann", b"%d" % number)
        mail.put("bob", b"x" * 100)
    assert len(mail.take("m", "ann", max_records=7)) == 7
    assert len(mail.take("m", "ann", max_bytes=1)) == 1
    assert len(mail.take("m", "ann")) == 92  # offsets between entries do not count
    assert mail.take("m", "ann") == {}
    ann, bob = mail.begin("m", ["ann", "bob"], LIMITS).value
    assert (len(acquired(ann)), len(acquired(bob))) == (0, 100)
    mail.say("m", "ann", *((offset, offset, ACCEPT) for offset in range(0, 200, 2)))
    assert len(mail.take("m", "ann")) == 50
    mail.configure({"share.partition.max.record.locks": "2000"})
    mail.put("ann", *[b"x"] * 1200)
    assert len(mail.take("n", "ann", max_records=5000)) == 1000
    assert len(mail.take("n", "ann", max_records=5000)) == 200


def test_an_entry_is_given_up_at_the_limit_of_deliveries_and_its_lock_expires() -> None:
    mail = shared("ann")
    mail.configure({"share.delivery.count.limit": "2"})
    (first,) = mail.put("ann", b"1")
    for delivery in (1, 2):
        assert mail.take("m", "ann") == {first: (delivery, b"1")}
        mail.hand.advance(31_000)
    assert mail.take("m", "ann") == {}
    mail.crash()
    assert mail.take("m", "ann") == {}


def test_a_waiting_consumer_is_woken_by_its_own_queue_by_a_release_and_by_the_end_of_the_space() -> None:
    mail = shared("ann", "bob")
    waiting = mail.begin("m", ["ann", "bob"], LIMITS._replace(max_wait_ms=60_000))
    mail.put("eve", b"x")
    assert not waiting.there
    (first,) = mail.put("bob", b"y")
    assert [acquired(found) for found in waiting.value] == [{}, {first: (1, b"y")}]
    waiting = mail.begin("n", ["ann", "bob"], LIMITS._replace(max_wait_ms=60_000))
    mail.say("m", "bob", (first, first, RELEASE))
    assert [acquired(found) for found in waiting.value] == [{}, {first: (2, b"y")}]
    waiting = mail.begin("n", ["ann"], LIMITS._replace(max_wait_ms=60_000))
    mail.hand.delete("mail")
    assert waiting.value[0].error is not None


def test_members_share_queues_and_the_group_is_told_by_name() -> None:
    mail = shared("ann", "bob")
    groups = mail.hand.broker.share_groups
    assigned = mail.beat("n", 0, "ann", "bob").assignment
    assert assigned is not None
    assert len(assigned) == 1
    assert partitions_of(mail.hand.broker, GROUP) == {"mail.ann": [0], "mail.bob": [0]}
    mail.crash()
    assert groups is not mail.hand.broker.share_groups
    assert partitions_of(mail.hand.broker, GROUP) == {"mail.ann": [0], "mail.bob": [0]}


def test_lag_counts_entries_also_where_no_one_reads() -> None:
    mail = shared("ann")
    first, second, third = mail.put("ann", b"1", b"2", b"3")
    mail.put("bob", *[b"x"] * 10)
    assert mail.offset("ann") == ShareOffset(-1, 1, -1)
    mail.take("m", "ann")
    assert mail.offset("ann") == ShareOffset(first, 1, 3)
    mail.say("m", "ann", (second, second, ACCEPT))
    mail.crash()
    assert mail.offset("ann") == ShareOffset(first, 1, 2)
    mail.delete("ann", first)
    assert mail.offset("ann") == ShareOffset(third, 1, 1)


def test_what_is_trimmed_is_not_delivered() -> None:
    mail = shared("ann", **{"retention.records": "2"})
    offsets = mail.put("ann", b"1", b"2", b"3", b"4")
    (found,) = mail.begin("m", ["ann"], LIMITS._replace(max_wait_ms=1000)).value
    assert sorted(acquired(found)) == offsets[2:]


def test_state_ends_with_the_space_and_not_with_its_prefix() -> None:
    mail = shared("ann")
    (first,) = mail.put("ann", b"1")
    mail.take("m", "ann")
    mail.say("m", "ann", (first, first, ACCEPT))
    mail.do(mail.hand.broker.configure_stream, "mail", {"queue.topic.prefix": None})
    mail.crash()
    mail.hand.advance(3_600_000)
    mail.do(mail.hand.broker.configure_stream, "mail", {"queue.topic.prefix": "mail."})
    assert mail.take("m", "ann") == {}
    assert mail.hand.broker.share_groups.has(GROUP)
    mail.hand.delete("mail")
    mail.hand.advance(3_600_000)
    assert not mail.hand.broker.share_groups.has(GROUP)


class SharedQueueMachine(RuleBasedStateMachine):
    """Entries come, change and go; two consumers acquire, decide and fall silent; the node loses its power."""

    def __init__(self) -> None:
        super().__init__()
        self.mail = _IDLE
        self.entries: dict[int, bytes] = {}
        self.deliveries: dict[int, int] = {}
        self.held: dict[int, str] = {}
        self.over: set[int] = set()
        self.number = 0

    @initialize()
    def begin(self) -> None:
        self.mail = shared("ann", "bob")
        self.mail.configure({"share.delivery.count.limit": str(_MOST_DELIVERIES)})
        for _ in range(6):
            self.put(1)
            self.put_another(1)
        self.take("m", 6)

    def _value(self) -> bytes:
        self.number += 1
        return b"%d" % self.number

    @rule(count=st.integers(1, 4))
    def put(self, count: int) -> None:
        values = [self._value() for _ in range(count)]
        self.entries.update(zip(self.mail.put("ann", *values), values, strict=True))

    @rule(count=st.sampled_from([1, 200]))
    def put_another(self, count: int) -> None:
        self.mail.put("bob", *[b"x"] * count)

    @precondition(lambda self: self.entries)
    @rule(pick=st.integers(0, 1000), edits=st.booleans())
    def change(self, pick: int, *, edits: bool) -> None:
        offset = sorted(self.entries)[pick % len(self.entries)]
        if edits:
            self.entries[offset] = self._value()
            self.mail.edit("ann", offset, self.entries[offset])
        else:
            del self.entries[offset]
            self.mail.delete("ann", offset)

    @rule()
    def purge(self) -> None:
        if self.entries:
            self.entries.clear()
            self.mail.purge("ann")

    @rule(owner=_OWNERS, most=st.integers(1, 9))
    def take(self, owner: str, most: int) -> None:
        free = [offset for offset in sorted(self.entries) if offset not in self.over | self.held.keys()][:most]
        for offset in free:
            self.deliveries[offset] = self.deliveries.get(offset, 0) + 1
            self.held[offset] = owner
        wanted = {offset: (self.deliveries[offset], self.entries[offset]) for offset in free}
        assert self.mail.take(owner, "ann", max_records=most) == wanted

    @precondition(lambda self: self.held)
    @rule(
        picks=st.lists(st.integers(0, 1000), min_size=1, max_size=4), type_=st.sampled_from([ACCEPT, RELEASE, REJECT])
    )
    def say(self, picks: list[int], type_: int) -> None:
        owner = self.held[sorted(self.held)[picks[0] % len(self.held)]]
        mine = sorted(offset for offset, other in self.held.items() if other == owner)
        offsets = sorted({mine[pick % len(mine)] for pick in picks})
        self.mail.say(owner, "ann", *((offset, offset, type_) for offset in offsets))
        if type_ == RELEASE:
            self._released(offsets)
        else:
            self.over.update(offsets)
            for offset in offsets:
                del self.held[offset]

    def _released(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            del self.held[offset]
            if self.deliveries[offset] >= _MOST_DELIVERIES:
                self.over.add(offset)

    @rule(owner=_OWNERS)
    def leave(self, owner: str) -> None:
        done: CallbackResult[None] = CallbackResult()
        self.mail.hand.broker.sharing.release(owner, [self.mail.key("ann")], lambda: done(None))
        self.mail.hand.settle()
        assert done.there
        self._released([offset for offset, other in self.held.items() if other == owner])

    @rule(later_ms=st.sampled_from([31_000, 700_000]))
    def time_goes_by(self, later_ms: int) -> None:
        self.mail.hand.advance(later_ms)
        self.mail.hand.broker.sharing.tidy()
        self._released(list(self.held))

    @rule()
    def power_fails(self) -> None:
        self.mail.crash()
        for offset in self.held:
            self.deliveries[offset] -= 1
        self.held.clear()

    @invariant()
    def lag(self) -> None:
        left = [offset for offset in sorted(self.entries) if offset not in self.over]
        found = self.mail.offset("ann") if self.mail is not _IDLE else None
        if found is not None and found.lag >= 0:
            assert found.lag == len(left)
            assert not left or found.start_offset == left[0]


SharedQueueMachine.TestCase.settings = settings(max_examples=examples(20), stateful_step_count=20)
TestSharedQueue = SharedQueueMachine.TestCase
