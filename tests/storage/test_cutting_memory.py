"""A replicated log is cut: what goes was mostly never copied, and nothing is left of it, whatever it was."""

from itertools import accumulate
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.base.errors import DuramenError
from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode, header, stamp
from duramen.codec.markers import encode_marker
from duramen.sim.machine.store import SMALL, StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.log.producers import ProducerRow, ProducerTable
from duramen.storage.log.replication import Replicated
from duramen.storage.log.transactions import TransactionTable, enter
from duramen.storage.segment.segment import Segment
from tests.examples import examples

PRODUCERS = st.integers(1, 3)
STEPS = st.one_of(
    st.tuples(st.just("plain"), st.sampled_from([0, 30_000, 70_000])),
    st.tuples(st.just("idempotent"), PRODUCERS),
    st.tuples(st.just("epoch"), PRODUCERS),
    st.tuples(st.just("transactional"), PRODUCERS),
    st.tuples(st.just("commit"), PRODUCERS),
    st.tuples(st.just("abort"), PRODUCERS),
    st.tuples(st.just("committed"), st.integers(0, 6)),
    st.tuples(st.just("cut"), st.integers(0, 6)),
    st.tuples(st.just("cut"), st.integers(0, 6)),
    st.tuples(st.just("copy"), st.just(0)),
    st.tuples(st.just("checkpoint"), st.just(0)),
    st.tuples(st.just("kill"), st.just(0)),
    st.tuples(st.just("crash"), st.just(0)),
)
LIMITS = SMALL._replace(wal_file_bytes=1 << 20, wal_max_bytes=16 << 20, copy_bytes=1 << 20, pending_bytes=4 << 20)
"""Copies come with time: blocks of the index are in memory only."""
CONFIGS = st.sampled_from([LogConfig(segment_bytes=100_000), LogConfig(), LogConfig(durability="memory")])


def _plain(rows: list[ProducerRow]) -> list[tuple[int, int, tuple[tuple[int, int, int], ...]]]:
    """What the table says but for times."""
    return sorted((row[0], row[1], row[3]) for row in rows)


class Seen(NamedTuple):
    """What batches say of those who wrote them."""

    producers: ProducerTable
    transactions: TransactionTable


class Run:
    """A log, and the batches that it has to have: each of one record."""

    def __init__(self, config: LogConfig) -> None:
        self.store = StoreOnDoubles(LIMITS)
        self.config = config
        self.batches: list[bytes] = []
        self.log, self.replicated = self._opened(0)

    def _opened(self, high_watermark: int) -> tuple[Log, Replicated]:
        log = self.store.log(0, self.config)
        replicated = log.replicated = Replicated(high_watermark, log.end_offset)
        replicated.leader_epoch = self.store.store.node_epoch
        return log, replicated

    @property
    def expected(self) -> Seen:
        seen = Seen(ProducerTable(), TransactionTable())
        for offset, batch in enumerate(self.batches):
            found = header(batch)
            if found.producer_id >= 0:
                enter(seen, found, batch, offset, found.max_timestamp)
        return seen

    def write(self, kind: str, number: int) -> None:
        self.store.clock.advance(7)
        epoch, sequence = -1, -1
        if kind != "plain":
            known = self.expected.producers.row(number)
            epoch = 0 if known is None else known[1]
            sequence = known[3][-1][1] + 1 if known is not None and known[3] else 0
            if kind == "epoch":
                epoch, sequence = epoch + 1, 0
        if kind in ("commit", "abort"):
            batch = encode_marker(number, epoch, commit=kind == "commit", coordinator_epoch=0, now_ms=1)
        else:
            batch = encode(
                [BatchInput(self.store.clock.wall_ms(), None, b"x" * (number if kind == "plain" else 1))],
                attributes=TRANSACTIONAL if kind == "transactional" else 0,
                producer_id=-1 if kind == "plain" else number,
                producer_epoch=epoch,
                base_sequence=sequence,
            )
        self.store.store.append(self.log, bytearray(batch), header(batch), self.store.store.node_epoch, None)
        stamp(batch, len(self.batches), self.store.store.node_epoch)
        self.batches.append(bytes(batch))

    def start_again(self, how: str) -> None:
        """What is synced is there again, of a log in memory nothing; its offsets go on."""
        self.store.settle()
        if how == "kill":
            self.store.kill()
        else:
            self.store.crash()
        assert self.store.findings == []
        self.log, self.replicated = self._opened(self.replicated.high_watermark)

    def step(self, kind: str, number: int) -> None:
        if kind == "committed":
            self.replicated.high_watermark = max(self.replicated.high_watermark, len(self.batches) - number)
            self.log.last_stable_offset  # noqa: B018 - readers ask for it, which forgets what is committed
        elif kind == "cut":
            self.cut(max(self.replicated.high_watermark, len(self.batches) - number))
        elif kind == "copy":
            self.store.advance(1000)
        elif kind == "checkpoint":
            self.store.advance(61_000)
        elif kind in ("kill", "crash"):
            if self.config.durability == "sync":
                self.start_again(kind)
        else:
            self.write(kind, number)

    def cut(self, end_offset: int) -> None:
        answers: list[DuramenError | None] = []
        self.store.store.truncate(self.log, end_offset, self.store.store.node_epoch, answers.append)
        self.store.settle()
        assert answers == [None]
        del self.batches[end_offset:]
        self.check()

    def check(self) -> None:
        log, end_offset = self.log, len(self.batches)
        producers, transactions = self.expected
        assert (log.end_offset, log.synced_offset, log.size_bytes()) == (
            end_offset,
            end_offset,
            sum(map(len, self.batches)),
        )
        assert _plain(log.producers.rows()) == _plain(producers.rows())
        assert log.transactions.opened() == transactions.opened()
        assert log.transactions.aborted == transactions.aborted
        high_watermark = self.replicated.high_watermark
        if self.replicated.settled:
            assert log.last_stable_offset == transactions.stable_end(high_watermark)
        assert self.store.metrics.counter("duramen_pending_bytes").value == sum(
            segment.size - segment.copied for segment in log.segments if not segment.in_memory
        )
        self.check_segments()

    def check_segments(self) -> None:
        """Each is as if nothing else had ever been appended."""
        for segment, end in self.log.with_ends():
            fresh = Segment(segment.path, segment.base_offset)
            for offset in range(segment.base_offset, end):
                batch = self.batches[offset]
                fresh.append(batch, offset, offset + 1, header(batch).max_timestamp)
            assert (segment.size, segment.max_timestamp) == (fresh.size, fresh.max_timestamp)
            if segment.size:
                assert (segment.first_timestamp, segment.end_offset) == (fresh.first_timestamp, end)
            if not segment.closed and segment.index is not None and fresh.index is not None:
                assert (segment.index.entries, segment.index.last()) == (fresh.index.entries, fresh.index.last())

    def read(self) -> list[bytes]:
        self.replicated.high_watermark = len(self.batches)
        found = []
        for offset in range(len(self.batches)):
            plan = self.store.plan(self.log, offset, 1)
            assert plan is not None
            found.append(self.store.bytes_of(plan))
        return found


@settings(max_examples=examples(100), deadline=None)
@given(CONFIGS, st.lists(STEPS, max_size=40))
def test_nothing_is_left_of_what_is_cut(config: LogConfig, steps: list[tuple[str, int]]) -> None:
    run = Run(config)
    for kind, number in steps:
        run.step(kind, number)
    run.write("plain", 1)
    run.store.settle()
    run.check()
    assert run.read() == run.batches
    if config.durability == "sync":
        run.start_again("kill")
        run.check()
        run.start_again("crash")
        assert run.read() == run.batches


def test_of_a_long_log_nothing_is_read_where_its_end_was_never_copied() -> None:
    run = Run(LogConfig())
    for _ in range(20):
        run.write("idempotent", 1)
    run.store.settle()
    run.store.advance(1000)
    run.replicated.high_watermark = 20
    for _ in range(8):  # more than are remembered of a producer
        run.write("idempotent", 1)

    def interfere(call: str, path: str, size: int) -> int:
        assert not path.startswith(run.log.directory), f"{call} {path}"
        return size

    run.store.files.interfere = interfere
    run.cut(21)
    run.store.files.interfere = None
    run.write("idempotent", 1)
    run.store.settle()
    run.check()
    run.start_again("crash")
    assert run.read() == run.batches


def test_a_copy_that_comes_before_the_cut_is_durable_is_cut_from_the_file() -> None:
    run = Run(LogConfig())
    for number in (1, 2, 3):
        run.write("plain", number)
    run.store.settle()
    answers: list[DuramenError | None] = []
    run.store.store.truncate(run.log, 2, run.store.store.node_epoch, answers.append)
    run.store.advance_without_syncing(1000)
    assert run.log.active.copied == sum(map(len, run.batches))
    assert answers == []
    run.store.settle()
    assert answers == [None]
    del run.batches[2:]
    run.check()
    assert len(run.store.files.content(run.log.active.path + ".log")) == list(accumulate(map(len, run.batches)))[-1]
    run.start_again("crash")
    assert run.read() == run.batches


@pytest.mark.parametrize("kept", range(5))
def test_durability_memory_what_is_cut_is_not_read_any_more(kept: int) -> None:
    store = StoreOnDoubles()
    log = store.log(0, LogConfig(durability="memory", segment_bytes=200))
    for value in (b"a", b"b", b"c", b"d", b"e"):
        store.append(log, value, producer=(7, 0, store.log().end_offset))
    store.settle()
    assert len(log.segments) > 1
    answers: list[DuramenError | None] = []
    store.store.truncate(log, kept, store.store.node_epoch, answers.append)
    store.settle()
    assert answers == [None]
    following = store.append(log, b"f", producer=(7, 0, kept))
    store.settle()
    assert following.base_offset == kept
    assert store.values(log) == [*[b"a", b"b", b"c", b"d", b"e"][:kept], b"f"]
