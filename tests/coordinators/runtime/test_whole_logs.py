"""Coordinators whose logs have all that their state needs: rows made anew, round damage, and memory beside the rows."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import partial
from types import SimpleNamespace
from typing import Final, cast

from duramen.base.errors import DuramenError, StorageFailed
from duramen.base.ids import LogId
from duramen.base.leader_epochs import LeaderEpochCache
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.codec.batch import BatchInput, DecodedRecord, encode, stamp
from duramen.coordinators.runtime.row_state import RowState
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, RowKind, ShardKind
from duramen.sim.broker import CallbackResult, ManualBroker
from duramen.sim.machine.clock import ManualWorker
from duramen.sim.machine.views import MemoryStateStore
from duramen.storage.log.log import Log

STREAM: Final = "words"

Word = tuple[bytes, bytes | None]


class Words:
    """Keeps the newest value of each word as a row, and all words in memory."""

    def __init__(self) -> None:
        self.words: dict[bytes, bytes] = {}
        self.told: list[bytes] = []

    def keys_of(self, command: Word) -> Collection[Hashable]:
        return (command[0],)

    def decide(self, command: Word, rows: StateRows, now_ms: int) -> Decision:
        del rows, now_ms
        return Decision([command], self.words.get(command[0]))

    def apply(self, record: DecodedRecord) -> None:
        key = record.key or b""
        self.told.append(key)
        if record.value is None:
            self.words.pop(key, None)
        else:
            self.words[key] = record.value

    def loaded(self, rows: StateRows) -> Iterator[None]:
        self.words.clear()
        self.told.clear()
        for key, value in rows.scan(b"", b"\xff"):
            self.words[key] = value
            yield

    def next_ms(self) -> int | None:
        return None

    def due(self, now_ms: int) -> Iterable[object]:
        del now_ms
        return ()


def changes(found: Sequence[DecodedRecord], rows: StateRows) -> Mapping[bytes, bytes | None]:
    del rows
    return {record.key or b"": record.value for record in found}


def make(_: int) -> CoordinatorShard[Word]:
    return Words()


KIND: Final = RowKind(changes, is_cut=False, has_memory=True)


class Node:
    """A node that is alone, with words on it."""

    def __init__(self) -> None:
        kind = ShardKind(STREAM, make, KIND, cost="so a word is forgotten")
        self.hand = ManualBroker(kinds=[kind])
        self.hand.create(STREAM, retention_ms=-1, durability="sync")

    def say(self, key: bytes, value: bytes | None) -> None:
        answer: CallbackResult[object] = CallbackResult()
        self.hand.broker.coordinators.submit(STREAM, 0, (key, value), answer)
        self.hand.settle()
        assert not isinstance(answer.calls[0][0], DuramenError)

    def look(self) -> tuple[dict[bytes, bytes], dict[bytes, bytes], list[bytes]]:
        """The rows, what is in memory, and of which records the shard was told."""

        def query(shard: Words, rows: StateRows) -> object:
            return dict(rows.scan(b"", b"\xff")), dict(shard.words), list(shard.told)

        answer: CallbackResult[object] = CallbackResult()
        self.hand.broker.coordinators.read(STREAM, 0, query, answer)
        self.hand.settle()
        return cast("tuple[dict[bytes, bytes], dict[bytes, bytes], list[bytes]]", answer.value)

    @property
    def log(self) -> Log:
        return self.hand.broker.streams.get(STREAM).partitions[0].log

    def cut(self, offset: int) -> None:
        """As the coordinator cuts its log below what counts."""
        self.hand.store.delete_before(self.log, offset, lambda _: None)
        self.hand.settle()


def test_memory_is_made_of_rows_and_kept_up_to_date_behind_them() -> None:
    node = Node()
    for number in range(3):
        node.say(b"w%d" % number, b"1")
    assert node.look()[2] == [b"w0", b"w1", b"w2"]
    node.hand.restart()
    node.say(b"w1", None)
    rows, memory, told = node.look()
    assert rows == memory == {b"w0": b"1", b"w2": b"1"}
    assert told == [b"w1"]


def test_rows_behind_the_start_of_their_log_are_made_anew() -> None:
    node = Node()
    node.say(b"gone", b"1")
    node.hand.stop()
    old = deepcopy(node.hand.rows)
    node.hand.start()
    node.say(b"gone", None)
    node.say(b"kept", b"1")
    node.cut(2)
    node.hand.stop()
    node.hand.rows = old
    node.hand.start()
    assert node.look()[:2] == ({b"kept": b"1"}, {b"kept": b"1"})
    node.say(b"more", b"1")
    assert node.look()[0] == {b"kept": b"1", b"more": b"1"}


def test_lost_rows_come_from_the_log() -> None:
    node = Node()
    for number in range(5):
        node.say(b"w%d" % (number % 3), b"%d" % number)
    node.cut(2)
    node.hand.stop()
    node.hand.rows = MemoryStateStore()
    node.hand.start()
    assert node.look()[:2] == ({b"w0": b"3", b"w1": b"4", b"w2": b"2"},) * 2


def test_what_is_damaged_is_reported_and_the_rest_applied() -> None:
    node = Node()
    for number in range(5):
        node.say(b"w%d" % number, b"1")
    node.hand.advance(61_000)
    assert all(segment.copied == segment.size for segment in node.log.segments)
    node.hand.stop()
    path = node.log.active.path + ".log"
    node.hand.files.corrupt(path, node.log.active.size // 5 * 2 + 65, 1)
    node.hand.rows = MemoryStateStore()
    node.hand.start()
    assert node.look()[0] == {b"w0": b"1", b"w1": b"1", b"w3": b"1", b"w4": b"1"}
    assert [report for report in node.hand.reports if "so a word is forgotten" in report] == [
        report for report in node.hand.reports if f"record 2 in partition 0 of {STREAM} cannot be read" in report
    ]
    assert any("so a word is forgotten" in report for report in node.hand.reports)


class BrokenStore(MemoryStateStore):
    broken = True

    def checkpoints(self) -> list[str]:
        if self.broken:
            raise StorageFailed("the disk is full")
        return super().checkpoints()


def test_who_waits_for_a_load_hears_why_there_is_none() -> None:
    node = Node()
    node.say(b"a", b"1")
    node.hand.stop()
    node.hand.rows = broken = BrokenStore()
    node.hand.start()
    first, later = CallbackResult[None](), CallbackResult[None]()
    node.hand.broker.coordinators.when_loaded(STREAM, first)
    node.hand.settle()
    assert not first.there
    node.hand.advance(10_000)
    assert isinstance(first.error, StorageFailed)
    broken.broken = False
    node.hand.advance(10_000)
    node.hand.broker.coordinators.when_loaded(STREAM, later)
    assert later.value is None
    assert node.look()[0] == {b"a": b"1"}


class FakeLog:
    """What of a log the rows look at."""

    def __init__(self) -> None:
        self.id = LogId(7)
        self.start_offset = self.cleaned_offset = 0
        self.end_offset = 6
        self.durability = "sync"
        self.takeovers = LeaderEpochCache(((0, 1, 0),))


def test_rows_that_may_lack_tombstones_are_made_anew_once() -> None:
    log, worker, done = FakeLog(), ManualWorker(), list[DuramenError | None]()
    store = MemoryStateStore()
    states = RowStates(lambda: store, worker, lambda _: None, 100, lambda: [cast("Log", log)])
    states.open()
    state = RowState(states, KIND, cast("Partition", SimpleNamespace(log=log)), lambda: True, lambda _: None)
    position = partial(state.position, cast("Log", log))

    def apply(offset: int, key: bytes) -> None:
        data = encode([BatchInput(0, key, b"1")])
        stamp(data, offset, 0)
        state.apply(cast("Log", log), [bytes(data)], offset + 1, done.append)
        worker.settle()

    worker.settle()
    apply(0, b"a")
    apply(1, b"b")
    assert position() == 2
    log.cleaned_offset = 2
    assert position() == 2
    log.cleaned_offset = 4  # a tombstone of a row may have been at offset 2, and be gone
    assert position() == 0
    for offset, key in ((1, b"b"), (3, b"c")):
        apply(offset, key)
        assert position() == offset + 1
    assert dict(state.scan(b"", b"\xff")) == {b"b": b"1", b"c": b"1"}
    log.cleaned_offset = 5
    assert position() == 0
    assert dict(state.scan(b"", b"\xff")) == {}
    assert done == [None] * 4
