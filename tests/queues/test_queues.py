"""Queues of a shard beside a model, a dict of lists: operations in any order, steps of any size, restarts anywhere."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.base.errors import (
    DuramenError,
    QueueEntryGone,
    QueueHistoryRewritten,
    QueuePositionFuture,
    QueuePositionUnknown,
)
from duramen.base.ids import Position
from duramen.codec.batch import BatchInput, encode, header
from duramen.codec.queue_entries import entry_fields
from duramen.queues.changes import changes
from duramen.queues.leases import Lease, LeasedEntry, ShardLeases
from duramen.queues.machine import Delete, Edit, Empty, Enqueue, Queue, Replace, records_for, repeated
from duramen.queues.names import hash_by
from duramen.queues.operations import NewEntry, delete_record, due_record, edit_record
from duramen.queues.positions import position_text
from duramen.queues.reading import EntryFinder, Retrieved, Where, retrieve, retrieve_batches
from duramen.queues.requests import MOST_REQUESTS, RequestId
from duramen.queues.rows import POSITION_KEY, HistoryRange, state_of
from duramen.sim.machine.views import MemoryViewStore

HASH = hash_by(b"a space")
ALL = 1 << 30
ALICE = Queue(b"alice", HASH(b"alice"))
OLD = Lease(7, 1)  # of a leadership that has ended
Command = Enqueue | Edit | Delete | Replace | Empty
NAMES = (b"alice", b"bob", "zoë".encode())


def queue(name: bytes) -> Queue:
    return Queue(name, HASH(name))


@dataclass
class ModelEntry:
    at: Position
    version: int
    value: bytes | None
    key: bytes | None
    visible_ms: int = 0
    expires_ms: int = 0


@dataclass
class Model:
    """What has to be in the queues."""

    queues: dict[bytes, list[ModelEntry]] = field(default_factory=lambda: {name: [] for name in NAMES})
    was: dict[bytes, list[Position]] = field(default_factory=lambda: {name: [] for name in NAMES})
    ranges: dict[bytes, list[HistoryRange]] = field(default_factory=lambda: {name: [] for name in NAMES})


class Shard:
    """A log, the view of it, and the model."""

    def __init__(self) -> None:
        self.rows = MemoryViewStore()
        self.log: list[bytes] = []
        self.end = 0
        self.applied = 0  # batches
        self.epoch = 0
        self.now_ms = 1_000
        self.due_ms = 0
        self.model = Model()
        self.saved: list[tuple[dict[bytes, bytes], int]] = [({}, 0)]

    def submit(self, command: Command) -> DuramenError | None:
        """Decided on everything before, as the runtime does, and put into the log."""
        if not isinstance(command, Enqueue) or command.request is not None:
            self.apply(len(self.log))
        try:
            found = [] if repeated(command, self.rows) is not None else records_for(command, self.rows, self.now_ms)
        except DuramenError as error:
            return error
        if found:
            self._follow(command, self.end)
            self.append(found)
        return None

    def append(self, found: Sequence[BatchInput]) -> None:
        batch = bytes(encode(found, base_offset=self.end, leader_epoch=self.epoch))
        self.log.append(batch)
        self.end = header(batch).next_offset

    def ack(self, name: bytes, positions: Sequence[Position]) -> None:
        """With leases of an earlier leadership."""
        self.apply(len(self.log))
        entries = [(queue(name), LeasedEntry(at, OLD)) for at in positions]
        records, refused = ShardLeases().ack(self.rows, entries, self.now_ms, again=False)
        assert not refused
        self.append(records)
        self.model.queues[name] = [one for one in self.model.queues[name] if one.at not in positions]

    def wait(self, ms: int) -> None:
        self.now_ms += ms
        for name, live in self.model.queues.items():
            self.model.queues[name] = [one for one in live if not 0 < one.expires_ms <= self.now_ms]

    def due(self) -> None:
        self.append([due_record(self.due_ms, self.now_ms, self.now_ms)])
        self.due_ms = self.now_ms

    def apply(self, until: int, at_once: int = 3) -> None:
        while self.applied < until:
            some = self.log[self.applied : min(until, self.applied + at_once)]
            found = changes(some, header(some[0]).base_offset, self.rows, HASH)
            puts = [(key, value) for key, value in found.items() if value is not None]
            self.rows.write(puts, [key for key, value in found.items() if value is None])
            self.applied += len(some)

    def save(self) -> None:
        self.saved.append((dict(self.rows.scan(b"", b"\xff")), self.applied))

    def restart(self, at: int, at_once: int) -> None:
        """Go on from rows as they were once, and apply the rest in other steps."""
        rows, applied = self.saved[at % len(self.saved)]
        self.rows = MemoryViewStore()
        self.rows.write(rows.items(), ())
        self.applied = applied
        self.apply(len(self.log), at_once)

    def _follow(self, command: Command, base: int) -> None:
        model = self.model
        match command:
            case Enqueue(entries, _):
                for offset, (name, entry) in enumerate(entries, base):
                    self._put(name, entry, offset)
            case Edit((name, _), edits, _):
                for offset, (at, _, value) in enumerate(edits, base):
                    for one in model.queues[name]:
                        if one.at == at:
                            one.version, one.value = offset, value
            case Delete((name, _), deleted, _):
                gone = {at for at, _ in deleted}
                model.queues[name] = [one for one in model.queues[name] if one.at not in gone]
            case Replace((name, _), start, new, by, reason, _):
                first = {"start": Position(0, 0), "end": Position(self.epoch, base)}.get(str(start), start)
                assert isinstance(first, Position)
                model.queues[name] = [one for one in model.queues[name] if one.at.offset < first.offset]
                model.ranges[name] = [one for one in model.ranges[name] if one.start.offset < first.offset]
                model.ranges[name].append(HistoryRange(first, base, by, reason))
                for offset, entry in enumerate(new, base + 1):
                    self._put(name, entry, offset)
            case Empty((name, _), kind, _):
                model.queues[name] = []
                if kind == "drop":
                    model.ranges[name] = []

    def _put(self, name: bytes, entry: NewEntry, offset: int) -> None:
        at = Position(self.epoch, offset)
        visible_ms = self.now_ms + entry.delay_ms if entry.delay_ms else 0
        expires_ms = self.now_ms + entry.ttl_ms if entry.ttl_ms else 0
        self.model.queues[name].append(ModelEntry(at, offset, entry.value, entry.key, visible_ms, expires_ms))
        self.model.was[name].append(at)

    # -- what has to be -----------------------------------------------------------------------------

    def read(
        self, name: bytes, where: Where, limit: int = ALL, max_bytes: int = ALL, *, delayed: bool = True
    ) -> Retrieved:
        now_ms = self.now_ms
        try:
            found = retrieve(self.rows, HASH(name), where, limit, max_bytes, now_ms, delayed=delayed)
        except DuramenError as error:
            with pytest.raises(type(error)):
                retrieve_batches(self.rows, queue(name), where, limit, max_bytes, now_ms, delayed=delayed)
            raise
        batches = retrieve_batches(self.rows, queue(name), where, limit, max_bytes, now_ms, delayed=delayed)
        fields = zip(*entry_fields(b"".join(batches.batches)), strict=True)
        assert list(fields) == [(position_text(one.position), *one[1:6]) for one in found.entries]
        assert batches.next == found.next
        return found

    def check(self) -> None:
        self.apply(len(self.log))
        for name in NAMES:
            found = [
                ModelEntry(one.position, one.version, one.value, one.key, one.visible_ms, one.expires_ms)
                for one in self.read(name, "start").entries
            ]
            assert found == self.model.queues[name]
            shown = [one.position for one in self.read(name, "start", delayed=False).entries]
            assert shown == [one.at for one in found if one.visible_ms <= self.now_ms]
            there = {one.at: one for one in found}
            for at in self.model.was[name]:
                self._check_position(name, at, there.get(at))
            for other in set(NAMES) - {name}:
                for at in self.model.was[other]:
                    assert isinstance(refusal(self, name, at), DuramenError)

    def _check_position(self, name: bytes, at: Position, expected: ModelEntry | None) -> None:
        taken = [one for one in self.model.ranges[name] if one.start.offset <= at.offset <= one.end]
        error = refusal(self, name, at)
        if taken:
            assert isinstance(error, QueueHistoryRewritten)
        else:
            assert (error is None) == (expected is not None)
            assert error is None or isinstance(error, QueueEntryGone)
        behind = Position(at.leader_epoch, at.offset + 1)
        if any(one.start.offset < behind.offset <= one.end for one in self.model.ranges[name]):
            with pytest.raises(QueueHistoryRewritten):
                self.read(name, behind)
        else:
            left = [one.at for one in self.model.queues[name] if one.at.offset > at.offset]
            assert [one.position for one in self.read(name, behind).entries] == left


def refusal(shard: Shard, name: bytes, at: Position) -> DuramenError | None:
    """Why there is no entry at a position: alone, and together with others that are there."""
    finder, live = EntryFinder(shard.rows, HASH(name), shard.now_ms), shard.model.queues[name]
    live = live[:: 1 + len(live) // 10]
    found = raised(lambda: finder.find(at))
    together = raised(lambda: finder.check([*((one.at, one.version) for one in live), (at, None)]))
    assert str(together) == str(found)
    return found


def raised(work: Callable[[], object]) -> DuramenError | None:
    try:
        work()
    except DuramenError as error:
        return error
    return None


names = st.sampled_from(NAMES)
entries = st.builds(
    NewEntry, st.none() | st.binary(max_size=9), st.none() | st.binary(max_size=3), st.just(()), st.none(),
    st.sampled_from((0, 0, 50)), st.sampled_from((0, 0, 100)),
)  # fmt: skip
indices = st.integers(0, 9)
steps = st.one_of(
    st.tuples(st.just("put"), st.lists(st.tuples(names, entries), min_size=1, max_size=12)),
    st.tuples(st.just("edit"), names, st.lists(st.integers(0, 40), min_size=1, max_size=8)),
    st.tuples(st.just("delete"), names, st.lists(st.integers(0, 40), min_size=1, max_size=8)),
    st.tuples(st.just("delete"), names, st.builds(lambda at, count: [*range(at, at + count)], indices, indices)),
    st.tuples(st.just("ack"), names, st.lists(st.integers(0, 40), min_size=1, max_size=8)),
    st.tuples(st.just("ack"), names, st.builds(lambda at, count: [*range(at, at + count)], indices, indices)),
    st.tuples(st.just("empty"), names, st.sampled_from(("purge", "drop"))),
    st.tuples(st.just("wait"), st.integers(1, 60)),
    st.tuples(st.just("due")),
    st.tuples(st.just("replace"), names, st.integers(-1, 40), st.lists(entries, max_size=3)),
    st.tuples(st.just("epoch")),
    st.tuples(st.just("save")),
    st.tuples(st.just("restart"), st.integers(0, 9), st.integers(1, 9)),
)


def take(shard: Shard, step: tuple[object, ...]) -> None:
    match step:
        case ("epoch",):
            shard.epoch += 1
        case ("save",):
            shard.save()
        case ("restart", int(at), int(at_once)):
            shard.restart(at, at_once)
        case ("wait", int(ms)):
            shard.wait(ms)
        case ("due",):
            shard.due()
        case _:
            operate(shard, step)


def operate(shard: Shard, step: tuple[object, ...]) -> None:
    match step:
        case ("put", list(found)):
            shard.submit(Enqueue(found))
        case ("edit", bytes(name), list(numbers)):
            live = shard.model.queues[name]
            chosen = [live[number] for number in numbers if number < len(live)]
            if chosen:
                assert (
                    shard.submit(Edit(queue(name), [(one.at, None, b"edited %d" % one.at.offset) for one in chosen]))
                    is None
                )
        case ("delete", bytes(name), list(numbers)):
            live = shard.model.queues[name]
            chosen = [live[number] for number in sorted(set(numbers)) if number < len(live)]
            if chosen:
                assert shard.submit(Delete(queue(name), [(one.at, one.version) for one in chosen])) is None
        case ("ack", bytes(name), list(numbers)):
            live = shard.model.queues[name]
            acked = [live[number].at for number in sorted(set(numbers)) if number < len(live)]
            if acked:
                shard.ack(name, acked)
        case ("empty", bytes(name), "purge" | "drop" as kind):
            assert shard.submit(Empty(queue(name), kind)) is None
        case ("replace", bytes(name), int(number), list(new)):
            was = shard.model.was[name]
            shard.submit(
                Replace(queue(name), was[number] if 0 <= number < len(was) else "start", new, "a test", "because")
            )
        case _:
            raise AssertionError(step)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(steps, max_size=40))
def test_queues_are_what_the_operations_made_of_them(given_steps: list[tuple[object, ...]]) -> None:
    shard = Shard()
    for step in given_steps:
        take(shard, step)
        if step[0] == "restart":
            shard.check()
    shard.check()
    for at in range(len(shard.saved)):
        shard.restart(at, 1 + at)
        shard.check()


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(names, entries), min_size=1, max_size=60), st.integers(1, 7), st.integers(1, 300))
def test_pages_of_a_queue_are_the_whole_of_it(found: list[tuple[bytes, NewEntry]], limit: int, max_bytes: int) -> None:
    shard = Shard()
    for first, last in pairwise(range(0, len(found) + 5, 5)):
        if found[first:last]:
            shard.submit(Enqueue(found[first:last]))
    shard.apply(len(shard.log))
    for name in NAMES:
        where: Where = "start"
        pages: list[Position] = []
        while page := shard.read(name, where, limit, max_bytes).entries:
            assert len(page) <= limit
            pages += [one.position for one in page]
            where = shard.read(name, where, limit, max_bytes).next
        assert pages == shard.model.was[name]


def one_queue(count: int, size: int = 100) -> Shard:
    shard = Shard()
    shard.submit(Enqueue([(b"alice", NewEntry(b"%d" % number + b"." * size)) for number in range(count)]))
    shard.apply(1)
    return shard


def test_a_run_is_written_anew_once_a_quarter_of_it_was_edited() -> None:
    shard = one_queue(40)
    at = shard.model.was[b"alice"]
    for number in range(10):
        shard.submit(Edit(ALICE, [(at[number], None, b"new")]))
    shard.apply(len(shard.log), 1)
    assert len(list(shard.rows.scan(b"o", b"p"))) == 10
    shard.submit(Delete(ALICE, [(at[10], None)]))
    shard.apply(len(shard.log))
    assert list(shard.rows.scan(b"o", b"p")) == []
    shard.check()
    assert shard.read(b"alice", "start").entries[0].version == 40


def test_an_emptied_run_leaves_nothing_and_moves_the_head() -> None:
    shard = one_queue(3)
    shard.submit(Enqueue([(b"alice", NewEntry(b"last"))]))
    shard.submit(Delete(ALICE, [(at, None) for at in shard.model.was[b"alice"][:3]]))
    shard.apply(len(shard.log))
    assert [key[-1] for key, _ in shard.rows.scan(b"r", b"s")] == [3]
    assert isinstance(refusal(shard, b"alice", Position(0, 1)), QueueEntryGone)
    shard.check()


def test_the_head_stays_before_what_is_there() -> None:
    shard = one_queue(2)
    shard.submit(Enqueue([(b"alice", NewEntry(b"x")), (b"alice", NewEntry(b"y"))]))
    shard.apply(len(shard.log))
    first, second, *others = shard.model.was[b"alice"]
    shard.submit(Delete(ALICE, [(at, None) for at in others]))
    shard.check()
    shard.submit(Delete(ALICE, [(first, None), (second, None)]))
    shard.check()


def test_what_is_taken_back_leaves_nothing() -> None:
    shard = one_queue(40)
    shard.submit(Edit(ALICE, [(shard.model.was[b"alice"][7], None, b"edited")]))
    shard.submit(Replace(ALICE, "start", ()))
    shard.apply(len(shard.log))
    assert [key for key, _ in shard.rows.scan(b"o", b"s") if key != POSITION_KEY] == []


def test_positions_of_other_queues_and_of_no_epoch_are_refused_each_as_what_it_is() -> None:
    shard = Shard()
    shard.submit(Enqueue([(b"alice", NewEntry(b"a")), (b"bob", NewEntry(b"b")), (b"alice", NewEntry(b"c"))]))
    shard.epoch = 4
    shard.submit(Enqueue([(b"alice", NewEntry(b"d"))]))
    shard.apply(len(shard.log))
    assert isinstance(refusal(shard, b"alice", Position(0, 1)), QueuePositionUnknown)
    assert isinstance(refusal(shard, b"alice", Position(4, 2)), QueuePositionUnknown)
    for where in (Position(0, 4), Position(9, 1), Position(9, 0)):
        with pytest.raises(QueuePositionUnknown):
            shard.read(b"alice", where)
    assert len(shard.read(b"alice", Position(0, 0)).entries) == 3
    with pytest.raises(QueuePositionFuture):
        shard.read(b"alice", Position(0, 5))
    assert shard.read(b"alice", Position(0, 3)).entries[0].value == b"d"
    assert shard.read(b"alice", "end").next == Position(4, 4)


def test_a_position_of_no_epoch_is_not_taken_for_one_that_was_taken_back() -> None:
    shard = one_queue(3)
    assert shard.submit(Replace(ALICE, Position(0, 1), [], "Ann", "")) is None
    shard.apply(len(shard.log))
    assert isinstance(refusal(shard, b"alice", Position(0, 1)), QueueHistoryRewritten)
    assert isinstance(refusal(shard, b"alice", Position(99, 1)), QueuePositionUnknown)


def test_history_keeps_the_newest_hundred_ranges() -> None:
    shard = one_queue(1)
    for number in range(130):
        end = Position(0, shard.end)
        assert shard.submit(Replace(ALICE, end, [NewEntry(b"%d" % number)], "Ann", f"reason {number}")) is None
    shard.apply(len(shard.log))
    assert len(shard.read(b"alice", "start").entries) == 131
    with pytest.raises(QueueHistoryRewritten) as rewritten:
        shard.read(b"alice", Position(0, 3))
    assert (rewritten.value.by, rewritten.value.start) == ("Ann", "0.1")


def test_what_is_deleted_stays_so_whatever_the_log_says() -> None:
    for at_once in (1, 9):
        shard = one_queue(40)
        at = shard.model.was[b"alice"][5]
        for record in (delete_record(b"alice", at, 0), edit_record(b"alice", at, b"again", 0)):
            shard.log.append(bytes(encode([record], base_offset=shard.end, leader_epoch=0)))
            shard.end += 1
        shard.apply(len(shard.log), at_once)
        assert len(shard.read(b"alice", "start").entries) == 39


def test_a_stale_version_changes_nothing() -> None:
    shard = one_queue(2)
    first, second = shard.model.was[b"alice"]
    assert shard.submit(Edit(ALICE, [(first, 0, b"x")])) is None
    error = shard.submit(Edit(ALICE, [(second, 1, b"y"), (first, 0, b"z")]))
    assert error is not None
    assert error.id == "queue-version-stale"
    shard.check()


def test_the_head_moves_over_what_is_acknowledged_and_not_past_an_entry_that_is_not() -> None:
    shard = Shard()
    for number in range(20):
        shard.submit(Enqueue([(b"alice", NewEntry(b"%d" % number)), (b"bob", NewEntry(b"between"))]))
    at = shard.model.was[b"alice"]
    for position in [*at[1:10], *reversed(at[11:])]:
        shard.ack(b"alice", [position])
    shard.apply(len(shard.log))
    state = state_of(shard.rows, ALICE.hash)
    assert (state.head, len(state.done)) == (0, 2)  # positions have gaps, and what is acknowledged is one range
    assert [one.position for one in shard.read(b"alice", "start").entries] == [at[0], at[10]]
    shard.ack(b"alice", [at[0]])
    shard.apply(len(shard.log))
    state = state_of(shard.rows, ALICE.hash)
    assert (at[9].offset < state.head <= at[10].offset, len(state.done)) == (True, 1)
    shard.ack(b"alice", [at[10]])
    shard.check()
    assert list(shard.rows.scan(b"r" + ALICE.hash, b"r" + ALICE.hash + b"\xff" * 9)) == []


def test_acknowledgements_far_from_each_other_are_many_rows_and_not_a_large_one() -> None:
    shard = one_queue(600)
    at = shard.model.was[b"alice"]
    shard.ack(b"alice", at[::2])
    shard.check()
    assert len(state_of(shard.rows, ALICE.hash).done) <= 100
    shard.ack(b"alice", at[1::2])
    shard.check()
    assert list(shard.rows.scan(b"o", b"s")) == [(POSITION_KEY, shard.rows.get(POSITION_KEY))]


def request(number: int) -> RequestId:
    return RequestId(b"request %d" % number, HASH(b"request %d" % number))


def test_a_request_that_is_repeated_is_made_once_through_a_replay_too() -> None:
    shard = Shard()
    put = Enqueue([(b"alice", NewEntry(b"one")), (b"alice", NewEntry(b"two"))], request(1))
    shard.submit(put)
    shard.save()
    shard.submit(put)
    [first, second] = shard.model.was[b"alice"]
    edit = Edit(ALICE, [(first, None, b"1")], request(2))
    shard.submit(edit)
    shard.submit(Delete(ALICE, [(second, None)], request(3)))
    shard.restart(0, 9)
    assert shard.submit(Delete(ALICE, [(second, None)], request(3))) is None
    assert repeated(put, shard.rows) == first
    assert shard.submit(edit) is None
    shard.check()
    error = shard.submit(Delete(ALICE, [(first, None)], request(2)))
    assert error is not None
    assert error.id == "queue-request-reused"


@pytest.mark.parametrize("name", [b"alice", b"nobody"])
def test_a_queue_is_not_replaced_from_a_position_of_another_one(name: bytes) -> None:
    shard = Shard()
    shard.epoch = 1
    shard.submit(Enqueue([(b"bob", NewEntry(b"x")), (b"bob", NewEntry(b"x")), (b"alice", NewEntry(b"a"))]))
    shard.submit(Enqueue([(b"bob", NewEntry(b"x")), (b"bob", NewEntry(b"x")), (b"alice", NewEntry(b"b"))]))
    bob = shard.model.was[b"bob"]
    for at in (bob[0], bob[1], bob[3]):
        assert isinstance(shard.submit(Replace(queue(name), at, [NewEntry(b"z")])), QueuePositionUnknown)
    shard.check()
    assert len(shard.log) == 2


def test_a_queue_is_replaced_from_each_position_that_answers_had() -> None:
    def here(shard: Shard) -> list[Where]:
        was = shard.model.was[b"alice"]
        return [*was, *(Position(at.leader_epoch, at.offset + 1) for at in was), "start", "end"]

    def made() -> Shard:
        shard = Shard()
        shard.epoch = 1
        for value in (b"a", b"b", b"c"):
            shard.submit(Enqueue([(b"bob", NewEntry(b"x")), (b"alice", NewEntry(value)), (b"bob", NewEntry(b"x"))]))
        return shard

    for number in range(len(here(made()))):
        shard = made()
        shard.ack(b"alice", [shard.model.was[b"alice"][0]])
        assert shard.submit(Replace(ALICE, here(shard)[number], [NewEntry(b"z")])) is None
        shard.check()
    for number in range(len(here(made()))):
        shard = made()
        assert shard.submit(Empty(ALICE, "purge")) is None
        assert shard.submit(Replace(ALICE, here(shard)[number], [NewEntry(b"z")])) is None
        shard.check()
    shard = made()
    first = shard.model.was[b"alice"][0]
    for _ in range(2):  # where the history was rewritten is where a reader goes on
        assert shard.submit(Replace(ALICE, first, [NewEntry(b"z")])) is None
    shard.check()
    for where in ("start", "end", Position(0, 0), None):
        shard = made()
        shard.apply(len(shard.log))
        at = shard.read(NAMES[2], "end").next if where is None else where
        assert shard.submit(Replace(queue(NAMES[2]), at, [NewEntry(b"z")])) is None
        shard.check()


ONE = NewEntry(b"1", b"k", ((b"h", None),), 17, 5, 90)


@pytest.mark.parametrize(
    "other",
    [
        Enqueue([(b"bob", ONE)]),
        Enqueue([(b"alice", ONE._replace(value=b"2"))]),
        Enqueue([(b"alice", ONE._replace(value=None))]),
        Enqueue([(b"alice", ONE._replace(key=b"other"))]),
        Enqueue([(b"alice", ONE._replace(headers=((b"h", b""),)))]),
        Enqueue([(b"alice", ONE._replace(delay_ms=6))]),
        Enqueue([(b"alice", ONE._replace(ttl_ms=91))]),
        Enqueue([(b"alice", ONE), (b"alice", ONE)]),
        Replace(ALICE, "start", []),
        Empty(ALICE, "purge"),
    ],
)
def test_the_same_request_id_with_another_content_is_refused_and_stores_nothing(other: Command) -> None:
    shard = Shard()
    first = Enqueue([(b"alice", ONE)], request(1))
    shard.save()
    shard.submit(first)
    for _ in range(2):
        error = shard.submit(other._replace(request=request(1)))
        assert error is not None
        assert error.id == "queue-request-reused"
        assert shard.submit(first._replace(entries=[(b"alice", ONE._replace(timestamp=18))])) is None
        shard.restart(0, 9)
    shard.check()
    assert len(shard.log) == 1


def test_requests_that_differ_in_positions_values_or_versions_are_not_the_same() -> None:
    shard = one_queue(4)
    at = shard.model.was[b"alice"]
    edit = Edit(ALICE, [(at[0], None, b"x")], request(1))
    delete = Delete(ALICE, [(at[1], None)], request(2))
    replace = Replace(ALICE, at[3], [NewEntry(b"y")], "Eve", "lost", request(3))
    for made in (edit, delete, replace):
        assert shard.submit(made) is None
    others: list[Command] = [
        edit._replace(edits=[(at[2], None, b"x")]),
        edit._replace(edits=[(at[0], None, b"z")]),
        edit._replace(edits=[(at[0], 0, b"x")]),
        edit._replace(queue=queue(b"bob")),
        delete._replace(entries=[(at[2], None)]),
        replace._replace(start="start"),
        replace._replace(entries=[NewEntry(b"z")]),
        replace._replace(by="Bob"),
    ]
    for other in others:
        error = shard.submit(other)
        assert error is not None
        assert error.id == "queue-request-reused"
    for made in (edit, delete, replace):
        assert shard.submit(made) is None
    shard.check()


def test_a_request_is_forgotten_after_ten_minutes_and_among_too_many() -> None:
    shard = Shard()
    for number in range(605):
        shard.submit(Enqueue([(b"alice", NewEntry(b"x"))], request(number)))
        shard.wait(1000)
    shard.apply(len(shard.log))
    assert [number for number in range(605) if shard.rows.get(b"i" + request(number).hash)] == [*range(5, 605)]
    assert MOST_REQUESTS >= 10_000
