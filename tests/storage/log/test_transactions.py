"""What a log knows of transactions: the last stable offset and what was aborted, over rolls, cuts and crashes."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from duramen.codec.batch import TRANSACTIONAL, BatchInput, batches, check, encode, header
from duramen.codec.markers import encode_marker
from duramen.sim.machine.store import StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.segment.reader import Blocked

PRODUCERS = st.integers(1, 4)
STEPS = st.one_of(
    st.tuples(st.just("write"), PRODUCERS),
    st.tuples(st.just("commit"), PRODUCERS),
    st.tuples(st.just("abort"), PRODUCERS),
    st.tuples(st.just("plain"), st.just(0)),
    st.tuples(st.just("settle"), st.just(0)),
    st.tuples(st.just("roll"), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("crash"), st.just(0)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("start"), st.integers(0, 40)),
    st.tuples(st.just("truncate"), st.integers(0, 40)),
)


class Entry(NamedTuple):
    """A batch of the model: its kind (`plain`, `write`, `commit`, `abort`) and its producer."""

    kind: str
    producer: int


class Model:
    """Batches of one record each, by offset; everything is computed from the list."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.start = 0

    def transactions(self) -> Iterator[tuple[int, int, int | None, bool]]:
        """(Producer, first offset, marker's offset or None while it is open, aborted)."""
        begun: dict[int, int] = {}
        for offset, (kind, producer) in enumerate(self.entries):
            if kind == "write":
                begun.setdefault(producer, offset)
            elif kind in ("commit", "abort") and producer in begun:
                yield producer, begun.pop(producer), offset, kind == "abort"
        for producer, first in begun.items():
            yield producer, first, None, False

    def stable(self, high_watermark: int) -> int:
        unstable = [first for _, first, end, _ in self.transactions() if end is None or end >= high_watermark]
        return max(self.start, min([high_watermark, *unstable]))

    def aborted(self, start: int, end: int) -> set[tuple[int, int]]:
        return {
            (producer, first)
            for producer, first, last, aborted in self.transactions()
            if aborted and last is not None and last >= start and first < end and last >= self.start
        }


class Run:
    """A store and the model, side by side."""

    def __init__(self, config: LogConfig) -> None:
        self.config = config
        self.hand = StoreOnDoubles()
        self.model = Model()
        self.sequences: dict[int, int] = {}

    @property
    def log(self) -> Log:
        return self.hand.log(0, self.config)

    def step(self, what: str, value: int) -> None:
        if what in ("write", "plain"):
            self.write(value)
        elif what in ("commit", "abort"):
            self.end(value, commit=what == "commit")
        elif what == "settle":
            self.hand.settle()
        elif what == "roll":
            self.hand.settle()
            self.hand.clock.advance(self.config.segment_ms + 1)
            self.hand.store.enforce_retention(self.hand.clock.wall_ms())
        elif what == "checkpoint":
            self.hand.settle()
            self.hand.advance(60_000)
        elif what == "crash":
            self.hand.crash()
            self.lose(self.log.end_offset)
        elif what == "kill":
            self.hand.store.flush()
            self.hand.kill()
            self.lose(self.log.end_offset)
        elif what == "start":
            self.move_start(value)
        else:
            self.truncate(value)

    def append(self, batch: bytearray) -> None:
        self.hand.store.append(self.log, batch, header(batch), self.hand.store.node_epoch, None)

    def write(self, producer: int) -> None:
        record = BatchInput(self.hand.clock.wall_ms(), None, b"v")
        if producer:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + 1
            batch = encode(
                [record], attributes=TRANSACTIONAL, producer_id=producer, producer_epoch=0, base_sequence=sequence
            )
            check(batch)
        else:
            batch = encode([record])
        self.append(batch)
        self.model.entries.append(Entry("write" if producer else "plain", producer))

    def end(self, producer: int, *, commit: bool) -> None:
        self.append(encode_marker(producer, 0, commit=commit, coordinator_epoch=0, now_ms=self.hand.clock.wall_ms()))
        self.model.entries.append(Entry("commit" if commit else "abort", producer))

    def lose(self, end_offset: int) -> None:
        assert end_offset <= len(self.model.entries)
        del self.model.entries[end_offset:]
        self.sequences.clear()
        for kind, producer in self.model.entries:
            if kind == "write":
                self.sequences[producer] = self.sequences.get(producer, 0) + 1
        self.hand.settle()

    def move_start(self, offset: int) -> None:
        self.hand.settle()
        until = min(offset, self.log.high_watermark)
        if until > self.model.start:
            self.hand.store.delete_before(self.log, until, lambda _: None)
            self.hand.settle()
            self.model.start = until

    def truncate(self, end_offset: int) -> None:
        self.hand.settle()
        if self.model.start <= end_offset < len(self.model.entries) and self.log.end_offset:
            self.hand.store.truncate(self.log, end_offset, self.hand.store.node_epoch, lambda _: None)
            self.hand.settle()
            self.lose(end_offset)

    def compare(self) -> None:
        log, model = self.log, self.model
        assert log.end_offset == len(model.entries)
        assert log.last_stable_offset == model.stable(log.high_watermark)
        unstable = {producer for producer, _ in log.transactions.unstable(log.high_watermark)}
        assert unstable == {
            producer for producer, _, end, _ in model.transactions() if end is None or end >= log.high_watermark
        }
        marked = [offset for offset, (kind, _) in enumerate(model.entries) if kind in ("commit", "abort")]
        assert log.transactions.marked_offset > max(marked, default=-1)
        for start in range(log.start_offset, log.end_offset):
            for end in range(start + 1, min(start + 4, log.end_offset + 1)):
                found = {row[:2] for row in log.transactions.aborted_within(start, end)}
                assert found == model.aborted(start, end)

    def check_reads(self) -> None:
        """What readers of committed records see ends at the last stable offset."""
        log, at = self.log, self.log.start_offset
        while at < log.last_stable_offset:
            plan = log.plan_read(at, 100_000, committed=True)
            while isinstance(plan, Blocked):
                self.hand.store.unblock(plan, lambda _: None)
                self.hand.settle()
                plan = log.plan_read(at, 100_000, committed=True)
            assert plan is not None
            at = [found.next_offset for _, found in batches(self.hand.bytes_of(plan))][-1]
        assert at == max(log.start_offset, log.last_stable_offset)
        assert log.plan_read(at, 100_000, committed=True) is None


# Without cuts of the start the first offset of a transaction is known for ever; with one it may be the log's start.
@settings(max_examples=examples(60))
@given(steps=st.lists(STEPS.filter(lambda step: step[0] != "start"), max_size=40))
def test_a_log_against_a_list(steps: list[tuple[str, int]]) -> None:
    run = Run(LogConfig(segment_bytes=64 << 10, segment_ms=1000))
    for what, value in steps:
        run.step(what, value)
        run.compare()
    run.step("settle", 0)
    run.compare()
    run.check_reads()


@settings(max_examples=examples(40))
@given(steps=st.lists(STEPS.filter(lambda step: step[0] not in ("truncate", "crash", "kill")), max_size=40))
def test_a_log_whose_start_moves_against_a_list(steps: list[tuple[str, int]]) -> None:
    run = Run(LogConfig(segment_bytes=64 << 10, segment_ms=1000))
    for what, value in steps:
        run.step(what, value)
        run.compare()


@pytest.mark.parametrize("durability", ["sync", "os"])
def test_without_checkpoints_the_batches_say_it(durability: str) -> None:
    run = Run(LogConfig(durability=durability, segment_bytes=64 << 10, segment_ms=1000))
    for step in (("write", 1), ("write", 2), ("roll", 0), ("abort", 1), ("checkpoint", 0), ("write", 3), ("roll", 0),
                 ("commit", 3), ("checkpoint", 0)):  # fmt: skip
        run.step(*step)
    run.compare()
    for name in list(run.hand.files.names("")):
        if name.startswith("checkpoint-"):
            run.hand.files.unlink(name)
    run.hand.kill()
    run.hand.settle()
    run.compare()
    assert run.log.transactions.opened() == [(2, 1)]
    assert run.hand.findings


def test_a_marker_is_stable_once_it_is_below_the_high_watermark() -> None:
    run = Run(LogConfig())
    run.step("plain", 0)
    run.step("write", 1)
    run.step("settle", 0)
    assert (run.log.high_watermark, run.log.last_stable_offset) == (2, 1)
    run.step("commit", 1)
    assert (run.log.high_watermark, run.log.last_stable_offset) == (2, 1), "the marker is not synced"
    run.step("settle", 0)
    assert (run.log.high_watermark, run.log.last_stable_offset) == (3, 3)


def test_a_marker_with_a_newer_epoch_fences_the_older_one() -> None:
    run = Run(LogConfig())
    run.step("write", 1)
    run.append(encode_marker(1, 1, commit=True, coordinator_epoch=0, now_ms=0))
    late = encode([BatchInput(0, None, b"v")], attributes=TRANSACTIONAL, producer_id=1, producer_epoch=0,
                  base_sequence=1)  # fmt: skip
    errors: list[object] = []
    run.hand.store.append(run.log, late, header(late), 1, lambda _, error: errors.append(error))
    assert errors
    run.hand.settle()
    assert run.log.end_offset == 2


# -- in one step --------------------------------------------------------------------------------------


def plain() -> bytearray:
    return encode([BatchInput(0, None, b"together")])


def append_together(hand: StoreOnDoubles, logs: list[Log]) -> list[tuple[list[int], object]]:
    """A record for each log; where what it was answered with comes to stand."""
    outcome: list[tuple[list[int], object]] = []
    batches = [(log, batch, check(batch)) for log in logs for batch in (plain(),)]
    hand.store.append_together(batches, hand.store.node_epoch, lambda *values: outcome.append(values))
    return outcome


def test_what_goes_together_is_seen_together_wherever_a_file_of_the_wal_ends() -> None:
    hand = StoreOnDoubles()
    logs = [hand.log(number) for number in range(4)]
    ends = [0] * len(logs)
    for size in range(500, 9000, 211):
        hand.append(logs[0], bytes(size))
        ends[0] += 1
        outcome = append_together(hand, logs)
        while not outcome:
            hand.worker.run_soon()
            before = [log.high_watermark for log in logs[1:]]
            assert hand.worker.step("sync") or hand.worker.step("disk") or hand.worker.step("read")
            after = [log.high_watermark for log in logs[1:]]
            assert [end - start for start, end in zip(before, after, strict=True)] in ([0, 0, 0], [1, 1, 1])
        assert outcome == [(ends, None)]
        ends = [end + 1 for end in ends]
        assert [log.high_watermark for log in logs] == ends
        hand.settle()


def test_what_goes_together_waits_for_a_log_that_is_held_and_leaves_out_one_that_is_deleted() -> None:
    hand = StoreOnDoubles()
    first, second, third = (hand.log(number) for number in range(3))
    for log in (first, second, third):
        hand.append(log, b"v")
    hand.settle()
    hand.store.truncate(second, 0, hand.store.node_epoch, lambda _: None)  # holds the log until it is cut
    outcome = append_together(hand, [first, second, third])
    later = hand.append(first, b"behind")
    hand.store.delete(third)
    hand.settle()
    assert outcome == [([2, 0, -1], None)], "what came later to another log did not wait"
    assert later.acknowledged
    assert second.high_watermark == 1


def test_what_goes_together_is_refused_together_once_writing_has_ended() -> None:
    hand = StoreOnDoubles()
    log = hand.log()
    assert hand.stop() is None
    outcome = append_together(hand, [log])
    assert outcome[0][0] == []
    assert outcome[0][1] is not None
    assert log.end_offset == 0
