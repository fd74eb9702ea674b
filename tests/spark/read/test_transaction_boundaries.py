"""Cuts against a cluster of lists: transactions interleave, markers come late, and looks at partitions take time."""

import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.client import TopicPartition
from duramen.client.transaction_states import EndedAt, MarkedUpTo
from duramen.codec.batch import TRANSACTIONAL, BatchInput, batches, encode, records
from duramen.codec.markers import encode_marker
from duramen.spark.read.committed import CommittedRecords
from duramen.spark.read.splits import Floors, ReadSplit, floors_left, passed_over, share
from duramen.spark.read.transaction_boundaries import cut

ATS = [TopicPartition("s", 0), TopicPartition("s", 1), TopicPartition("t", 2)]
Places = dict[TopicPartition, int]


class Entry(NamedTuple):
    """A batch of one record: of a transaction, a marker of one (`commit` is not None), or neither (`transaction` 0)."""

    producer: int
    transaction: int
    first: int = -1
    commit: bool | None = None


class World:
    """Logs, and producers whose transactions are begun, decided and marked one after another, at random."""

    def __init__(self, source: random.Random) -> None:
        self.random = source
        self.logs: dict[TopicPartition, list[Entry]] = {at: [] for at in ATS}
        self.seen: Places = dict.fromkeys(ATS, 0)
        self.current: dict[int, int] = {}  # the transaction of each producer
        self.decided: dict[int, tuple[int, bool]] = {}  # the sequence, and how it ends
        self.first: dict[tuple[int, TopicPartition], int] = {}
        self.unmarked: dict[int, list[TopicPartition]] = {}
        self.begun = 0
        self.still = False

    def step(self, *, ends_only: bool = False) -> None:
        producer, at = self.random.randrange(1, 4), self.random.choice(ATS)
        what = self.random.random()
        transaction = self.current.get(producer)
        if transaction in self.decided:
            self.mark(producer, self.random.choice(self.unmarked[transaction]))
        elif transaction is not None and (ends_only or what < 0.2):
            self.decide(transaction)
        elif ends_only:
            self.watermarks()
        elif what < 0.4:
            self.logs[at].append(Entry(0, 0))
        elif what < 0.6:
            self.watermarks()
        else:
            self.write(producer, at)

    def watermarks(self) -> None:
        at = self.random.choice(ATS)
        self.seen[at] = self.random.randint(self.seen[at], len(self.logs[at]))

    def write(self, producer: int, at: TopicPartition) -> None:
        if producer not in self.current:
            self.begun += 1
            self.current[producer] = self.begun
        transaction = self.current[producer]
        self.first.setdefault((transaction, at), len(self.logs[at]))
        self.logs[at].append(Entry(producer, transaction))

    def decide(self, transaction: int) -> None:
        """What was written is acknowledged before."""
        self.unmarked[transaction] = [at for at in ATS if (transaction, at) in self.first]
        for at in self.unmarked[transaction]:
            self.seen[at] = max(self.seen[at], self.first[transaction, at] + 1, self.last(transaction, at) + 1)
        self.decided[transaction] = (len(self.decided) + 1, self.random.random() < 0.7)

    def last(self, transaction: int, at: TopicPartition) -> int:
        return max(offset for offset, one in enumerate(self.logs[at]) if one.transaction == transaction)

    def mark(self, producer: int, at: TopicPartition) -> None:
        transaction = self.current[producer]
        first = self.first[transaction, at]
        self.logs[at].append(Entry(producer, transaction, first, self.decided[transaction][1]))
        self.unmarked[transaction].remove(at)
        if not self.unmarked[transaction]:
            for one in ATS:  # the next one begins once all markers are acknowledged
                if (transaction, one) in self.first:
                    self.seen[one] = max(self.seen[one], self.last(transaction, one) + 1)
            del self.current[producer]

    def settle(self) -> None:
        while self.current:
            self.step(ends_only=True)
        self.seen = {at: len(log) for at, log in self.logs.items()}
        self.still = True

    def marked(self, at: TopicPartition, offset: int) -> MarkedUpTo:
        """What the leader says."""
        log, high_watermark = self.logs[at], self.seen[at]
        below = log[:high_watermark]
        ended = {one.transaction for one in below if one.commit is not None}
        open_ = {
            (one.producer, self.first[one.transaction, at])
            for one in log
            if one.transaction and one.transaction not in ended
        }
        return MarkedUpTo(
            high_watermark,
            sorted(open_, key=lambda one: one[1]),
            [
                EndedAt(place, one.producer, one.first, self.decided[one.transaction][0], one.commit)
                for place, one in enumerate(below)
                if one.commit is not None and place >= offset
            ],
        )

    # -- a reader -----------------------------------------------------------------------------------

    def ends(self) -> Places:
        found = {}
        for at in self.shuffled():
            found[at] = self.seen[at]
            self.pass_time()
        return found

    def look(self, begin: Places) -> dict[TopicPartition, MarkedUpTo]:
        found = {}
        for at in self.shuffled():
            found[at] = self.marked(at, begin[at])
            self.pass_time()
        return found

    def shuffled(self) -> list[TopicPartition]:
        return self.random.sample(ATS, len(ATS))

    def pass_time(self) -> None:
        for _ in range(0 if self.still else self.random.randrange(4)):
            self.step()

    def record(self, at: TopicPartition, offset: int) -> BatchInput:
        return BatchInput(0, None, b"%d %d" % (at.partition, offset))

    def bytes_of(self, at: TopicPartition, first: int, end: int) -> Iterator[memoryview]:
        """The log's batches in pieces of any length."""
        piece = bytearray()
        for offset, one in enumerate(self.logs[at][:end]):
            if offset < first:
                continue
            record = self.record(at, offset)
            if one.commit is not None:
                batch = encode_marker(one.producer, 0, commit=one.commit, coordinator_epoch=0, now_ms=0)
            elif one.transaction:
                batch = encode(
                    [record], attributes=TRANSACTIONAL, producer_id=one.producer, producer_epoch=0,
                    base_sequence=0,
                )  # fmt: skip
            else:
                batch = encode([record])
            batch[:8] = offset.to_bytes(8, "big")
            piece += batch
            if self.random.random() < 0.3:
                yield memoryview(piece)
                piece = bytearray()
        yield memoryview(piece)

    def read(self, at: TopicPartition, first: int, end: int, one: ReadSplit | None) -> list[int]:
        """The offsets that a task shows."""
        found: list[int] = []
        committed = CommittedRecords(first, end, one or ReadSplit(first))
        for piece in self.bytes_of(at, first if one is None else one.base, end):
            for shown in committed.pass_on(piece):
                for place, head in batches(shown.data):
                    offsets = [record.offset for record in records(shown.data[place : place + head.size])]
                    found += [offset for offset in offsets if shown.first <= offset < end]
        return found


def batch_of(
    world: World, begin: Places, end: Places, marked: Mapping[TopicPartition, MarkedUpTo], floors: Floors
) -> list[tuple[TopicPartition, int]]:
    """The records of a micro-batch, read in shares."""
    over = passed_over(floors, begin, end, marked)
    shown = []
    for at in ATS:
        middle = world.random.randint(begin[at], max(begin[at], end[at]))
        for first, behind in ((begin[at], middle), (middle, end[at])):
            one = share(first, behind, marked[at], floors.named.get(at, 0), over.get(at, ()))
            shown += [(at, offset) for offset in world.read(at, first, behind, one)] if first < behind else []
    return shown


class Reader:
    """Micro-batches until nothing is left: `batches` are their records."""

    def __init__(self, world: World, begin: Places, floors: Floors) -> None:
        self.world = world
        self.begin = begin
        self.floors = floors
        self.batches: list[list[tuple[TopicPartition, int]]] = []

    def step(self, most: int | None) -> bool:
        world, begin = self.world, self.begin
        ends = world.ends()
        marked = world.look(begin)
        end = cut(begin, ends, marked, most)
        assert all(begin[at] <= end[at] <= ends[at] for at in ATS)
        if end == begin:
            return False
        shown = batch_of(world, begin, end, marked, self.floors)
        # A restart plans the batch again from its two ends, with what is known by then.
        assert sorted(batch_of(world, begin, end, world.look(begin), self.floors)) == sorted(shown)
        self.batches.append(shown)
        self.floors = floors_left(self.floors, end, marked)
        self.begin = end
        return True

    def finish(self) -> None:
        self.world.settle()
        while self.step(1):
            pass
        assert self.begin == {at: len(log) for at, log in self.world.logs.items()}

    def judge(self) -> set[int]:
        """Each transaction wholly in one batch or in none, nothing twice, nothing aborted; which are shown."""
        world = self.world
        flat = [record for one in self.batches for record in one]
        assert len(flat) == len(set(flat))
        wholes: dict[int, set[tuple[TopicPartition, int]]] = {}
        for at, log in world.logs.items():
            for offset, one in enumerate(log):
                if one.transaction and one.commit is None:
                    wholes.setdefault(one.transaction, set()).add((at, offset))
        shown = set()
        for transaction, whole in wholes.items():
            found = [whole & set(one) for one in self.batches]
            parts = [one for one in found if one]
            assert parts in ([], [whole])
            assert not parts or world.decided[transaction][1], "it is aborted"
            shown |= {transaction} if parts else set()
        return shown


RANDOMS = st.integers(0, (1 << 32) - 1).map(random.Random)
LIMITS = st.none() | st.integers(1, 6)


@settings(max_examples=examples(100))
@given(RANDOMS, LIMITS, st.integers(0, 40))
def test_a_batch_has_a_transaction_wholly_or_not(source: random.Random, most: int | None, rounds: int) -> None:
    world = World(source)
    reader = Reader(world, dict.fromkeys(ATS, 0), Floors())
    for _ in range(rounds):
        world.step()
        world.step()
        reader.step(most)
    reader.finish()
    shown = reader.judge()
    assert shown == {one for one, (_, commit) in world.decided.items() if commit}
    plain = {(at, offset) for at, log in world.logs.items() for offset, one in enumerate(log) if not one.transaction}
    assert plain <= {record for one in reader.batches for record in one}


@settings(max_examples=examples(60))
@given(RANDOMS, LIMITS, st.integers(0, 40))
@pytest.mark.long
def test_a_query_that_begins_at_the_latest_offset(source: random.Random, most: int | None, before: int) -> None:
    world = World(source)
    for _ in range(before):
        world.step()
    begin = world.ends()
    marked = world.look(begin)
    whole = {at: marked[at].high_watermark for at in ATS}
    reader = Reader(world, begin, floors_left(Floors(whole=whole), begin, marked))
    begun = world.begun
    for _ in range(30):
        world.step()
        reader.step(most)
    reader.finish()
    shown = reader.judge()
    assert shown >= {one for one, (_, commit) in world.decided.items() if commit and one > begun}


@settings(max_examples=examples(60))
@given(RANDOMS, LIMITS, st.integers(0, 40))
@pytest.mark.long
def test_offsets_that_are_named_are_taken_as_they_are(source: random.Random, most: int | None, before: int) -> None:
    world = World(source)
    for _ in range(before):
        world.step()
    begin = {at: source.randint(0, world.seen[at]) for at in ATS}
    marked = world.look(begin)
    reader = Reader(world, begin, floors_left(Floors(named=begin), begin, marked))
    for _ in range(30):
        world.step()
        reader.step(most)
    reader.finish()
    expected = {
        (at, offset)
        for at, log in world.logs.items()
        for offset, one in enumerate(log)
        if offset >= begin[at] and one.commit is None and (not one.transaction or world.decided[one.transaction][1])
    }
    flat = [record for one in reader.batches for record in one]
    assert len(flat) == len(set(flat))
    assert set(flat) == expected


def test_a_producer_that_never_rests_is_followed() -> None:
    """Its newest transaction may go on elsewhere; the one before is over."""
    one, other = ATS[:2]
    marked = {
        one: MarkedUpTo(8, [], [EndedAt(1, 7, 0, 1, True), EndedAt(3, 7, 2, 2, True), EndedAt(7, 7, 4, 3, True)]),
        other: MarkedUpTo(5, [(7, 4)], []),
    }
    assert cut({one: 0, other: 0}, {one: 8, other: 5}, marked) == {one: 7, other: 5}
    marked[other].ended.append(EndedAt(2, 7, 1, 3, True))
    assert cut({one: 0, other: 0}, {one: 8, other: 5}, marked) == {one: 8, other: 5}, "what is open is a later one"


def test_a_limit_gives_way_to_a_transaction() -> None:
    one, other = ATS[:2]
    marked = {
        one: MarkedUpTo(100, [], [EndedAt(0, 7, 0, 1, True), EndedAt(99, 8, 1, 2, True)]),
        other: MarkedUpTo(50, [], [EndedAt(40, 7, 0, 1, True)]),
    }
    begin, end = {one: 0, other: 0}, {one: 100, other: 50}
    near = cut(begin, end, marked, 10)
    assert near == {one: 0, other: 3} or near[other] < 40
    assert cut({one: 0, other: 40}, end, marked, 1) == {one: 1, other: 41}


def test_ends_before_their_beginning_stay() -> None:
    one = ATS[0]
    assert cut({one: 10}, {one: 3}, {one: MarkedUpTo(3, [], [])}, 5) == {one: 3}


@pytest.mark.parametrize("skipped", [(), (3,)])
def test_a_stream_without_transactions_needs_no_share(skipped: tuple[int, ...]) -> None:
    assert share(0, 10, MarkedUpTo(10, [], []), 0, skipped) is None
    assert share(0, 10, MarkedUpTo(20, [(7, 10)], [EndedAt(15, 8, 11, 1, True)]), 0, skipped) is None
    assert share(0, 10, MarkedUpTo(20, [(7, 9)], []), 0, skipped) is not None
