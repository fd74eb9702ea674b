"""A log that is taken in bulk: written once, and what counts as synced survives whatever happens."""

import errno
import os
import random
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule
from tests.examples import examples
from tests.storage.jobs import JobsMachine

from duramen.base.errors import DuramenError, StorageFailed, StreamNotFound
from duramen.codec.batch import BatchInput, batches, check, encode, stamp
from duramen.sim.machine.store import AppendOutcome, StoreOnDoubles
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.log.replication import Replicated
from duramen.storage.segment.reader import Slice
from duramen.storage.store import StoreLimits

CONFIG: Final = LogConfig(segment_bytes=900)
LIMITS: Final = StoreLimits(64 << 10, 1 << 20, 256 << 10, 4 << 10, 1000)
Row = tuple[int, int, bytes]
"""Offset, epoch, value."""


def followed(doubles: StoreOnDoubles, config: LogConfig = CONFIG, *, bulk: bool = True) -> Log:
    """A log of which another node orders the batches."""
    log = doubles.log(0, config)
    if log.replicated is None:
        log.replicated = Replicated(log.start_offset, log.end_offset)
    doubles.store.take_in_bulk(log, bulk=bulk)
    return log


def bring(doubles: StoreOnDoubles, log: Log, value: bytes, offset: int, epoch: int = 1) -> AppendOutcome:
    """A batch of one record comes from the leader of that epoch."""
    if epoch > log.takeovers.latest_epoch:
        doubles.store.follow(log, epoch, 9, lambda _: None)
    batch = encode([BatchInput(1, None, value)])
    stamp(batch, offset, epoch)
    appended = AppendOutcome((value,))
    doubles.store.append_ordered(log, memoryview(bytes(batch)), check(batch), appended.done)
    return appended


def rows(doubles: StoreOnDoubles, log: Log) -> list[Row]:
    """All that is synced."""
    assert log.replicated is not None
    committed, log.replicated.high_watermark = log.replicated.high_watermark, log.synced_offset
    found = [
        (record.offset, log.takeovers.epoch_at(record.offset), record.value or b"") for record in doubles.read(log)
    ]
    log.replicated.high_watermark = committed
    return found


def wal_bytes(doubles: StoreOnDoubles) -> int:
    return doubles.store.wal_end & 0xFFFFFFFF


def test_it_is_written_once_and_acknowledged_when_its_segments_are_synced() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    before = wal_bytes(doubles)
    appends = [bring(doubles, log, b"%d" % number * 300, number) for number in range(9)]
    doubles.settle()
    assert wal_bytes(doubles) - before < 900  # frames that say of what epoch they are, and nothing of them
    assert not any(append.decided for append in appends)
    assert log.synced_offset == 0
    doubles.advance(300)
    assert all(append.acknowledged for append in appends)
    assert log.synced_offset == 9
    doubles.crash()
    assert [row[2][:1] for row in rows(doubles, followed(doubles))] == [b"%d" % number for number in range(9)]


def test_what_is_in_memory_only_counts_for_nothing() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    bring(doubles, log, b"a", 0)
    doubles.advance(300)
    bring(doubles, log, b"b", 1)
    doubles.settle()
    assert (log.synced_offset, log.end_offset) == (1, 2)
    written = log.plan_written(0, 10_000)
    assert isinstance(written, Slice)
    assert len(list(batches(doubles.bytes_of(written)))) == 2  # other replicas may have it
    doubles.crash()
    assert [row[2] for row in rows(doubles, followed(doubles))] == [b"a"]


def test_segments_are_believed_once_it_is_durable_whose_they_are() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    bring(doubles, log, b"a", 0)
    doubles.advance_without_syncing(300)
    assert log.active.synced == log.active.size > 0
    assert log.synced_offset == 0
    doubles.settle()
    assert log.synced_offset == 1


def test_what_comes_while_it_is_synced_is_synced_next() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    bring(doubles, log, b"a", 0)
    doubles.settle()
    doubles.clock.advance(300)
    doubles.deadlines.fire(doubles.clock.monotonic_ms())
    doubles.worker.run_soon()
    second = bring(doubles, log, b"b", 1)
    doubles.settle()
    assert (log.synced_offset, second.decided) == (1, False)
    doubles.advance(300)
    assert (log.synced_offset, second.acknowledged) == (2, True)


def test_what_comes_behind_a_copy_is_not_taken_for_synced_with_it() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    bring(doubles, log, b"a", 0)
    doubles.clock.advance(300)
    doubles.deadlines.fire(doubles.clock.monotonic_ms())
    doubles.worker.run_soon()
    doubles.worker.start("disk")()  # the copy that its sync has waited for
    bring(doubles, log, b"b", 1)
    doubles.worker.run_soon()
    doubles.worker.step("disk")  # the sync
    while doubles.worker.step("sync"):
        pass
    assert log.synced_offset == 1
    doubles.crash()
    assert [row[2] for row in rows(doubles, followed(doubles))] == [b"a"]


def test_after_it_the_write_ahead_log_has_what_comes() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    first = bring(doubles, log, b"a", 0)
    doubles.settle()
    doubles.store.take_in_bulk(log, bulk=False)
    second = bring(doubles, log, b"b", 1)
    doubles.settle()
    assert first.acknowledged
    assert second.acknowledged
    assert (log.durability, log.synced_offset) == ("sync", 2)
    third = bring(doubles, log, b"c", 2)
    doubles.settle()
    assert third.acknowledged
    doubles.crash()
    assert [row[2] for row in rows(doubles, followed(doubles, bulk=False))] == [b"a", b"b", b"c"]


def test_who_begins_to_lead_appends_through_the_write_ahead_log() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    bring(doubles, log, b"a", 0)
    doubles.settle()
    doubles.store.take_in_bulk(log, bulk=False)
    assert log.replicated is not None
    log.replicated.leader_epoch = doubles.store.node_epoch
    together: list[list[int] | DuramenError] = []
    batch = encode([BatchInput(1, None, b"b")])
    doubles.store.append_together(
        [(log, batch, check(batch))],
        doubles.store.node_epoch,
        lambda offsets, error: together.append(offsets if error is None else error),
    )
    doubles.settle()
    assert together == [[1]]
    doubles.crash()
    assert [row[2] for row in rows(doubles, followed(doubles))] == [b"a", b"b"]


def test_another_durability_meanwhile_keeps_the_order() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    bring(doubles, log, b"a", 0)
    followed(doubles, CONFIG._replace(durability="os"))
    second = bring(doubles, log, b"b", 1)
    doubles.advance(300)
    third = bring(doubles, log, b"c", 2)
    doubles.advance(300)
    assert second.acknowledged
    assert third.acknowledged
    doubles.kill()
    assert [row[2] for row in rows(doubles, followed(doubles, CONFIG._replace(durability="os")))] == [b"a", b"b", b"c"]


def test_a_failed_sync_is_told_to_all_who_wait() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)

    def interfere(call: str, path: str, size: int) -> int:
        if call == "sync" and path.startswith(f"{log.directory}/"):
            doubles.files.drop(path)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return size

    appends = [bring(doubles, log, b"x", number) for number in range(3)]
    doubles.files.interfere = interfere
    doubles.advance(300)
    assert all(isinstance(append.error, StorageFailed) for append in appends)
    assert isinstance(bring(doubles, log, b"y", 3).error, StorageFailed)
    assert log.synced_offset == 0


def test_a_deleted_log_answers_who_waits() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    append = bring(doubles, log, b"x", 0)
    doubles.store.delete(log)
    doubles.advance(300)
    assert isinstance(append.error, StreamNotFound)


def test_a_full_disk_is_waited_for() -> None:
    doubles = StoreOnDoubles()
    log = followed(doubles)
    full = True

    def interfere(call: str, path: str, size: int) -> int:
        if full and call == "write" and path.startswith(f"{log.directory}/"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return size

    doubles.files.interfere = interfere
    first = bring(doubles, log, b"a", 0)
    doubles.settle()
    doubles.advance(300)
    assert not first.decided
    full = False
    doubles.advance(1000)
    doubles.advance(1000)
    assert first.acknowledged
    doubles.crash()
    assert [row[2] for row in rows(doubles, followed(doubles))] == [b"a"]


@settings(max_examples=examples(30), deadline=None)
@given(st.integers(1, 60), st.integers(0, 1 << 30))
def test_more_than_memory_is_to_hold_waits(count: int, seed: int) -> None:
    doubles = StoreOnDoubles(LIMITS._replace(pending_bytes=8 << 10))
    log = followed(doubles, CONFIG._replace(segment_bytes=20_000))
    appends = [bring(doubles, log, b"%d" % number + b"x" * 1000, number) for number in range(count)]
    assert log.size_bytes() <= 10 << 10
    doubles.advance(300)
    doubles.advance(300)
    assert all(append.acknowledged for append in appends)
    doubles.crash(random.Random(seed))
    assert len(rows(doubles, followed(doubles))) == count


class BulkMachine(JobsMachine):
    """What a follower has said to have synced is there after any end, and nothing that it never had or has let go."""

    durations_ms = (1, 100, 250, 5000, 60_000)

    @initialize(copy_bytes=st.sampled_from([500, 4000]), bulk=st.sampled_from([True, True, False]))
    def start(self, copy_bytes: int, bulk: bool) -> None:
        self.doubles = StoreOnDoubles(LIMITS._replace(copy_bytes=copy_bytes))
        self.rows: list[Row] = []
        self.epoch = 1
        self.bulk = bulk
        self.restarted()

    def restarted(self) -> None:
        self.undelivered.clear()
        self.cutting = 0
        self.appends: list[AppendOutcome] = []
        self.log = followed(self.doubles, bulk=self.bulk)

    @rule(count=st.integers(1, 4), size=st.integers(0, 300))
    @precondition(lambda self: not self.cutting)
    def batches_come(self, count: int, size: int) -> None:
        for _ in range(count):
            offset = len(self.rows)
            value = b"%d/%d" % (offset, self.epoch) + b"x" * size
            self.rows.append((offset, self.epoch, value))
            self.appends.append(bring(self.doubles, self.log, value, offset, self.epoch))

    @rule()
    def another_leads(self) -> None:
        self.epoch += 1

    @rule(bulk=st.booleans())
    def much_is_lacking_or_not(self, bulk: bool) -> None:
        self.bulk = bulk
        self.doubles.store.take_in_bulk(self.log, bulk=bulk)

    @rule(count=st.integers(0, 2), then=st.booleans())
    def segments_are_synced_before_the_write_ahead_log(self, count: int, then: bool) -> None:
        """While more comes; then the write-ahead log is, too."""
        self.doubles.worker.run_soon()
        if self.undelivered:
            return
        self.time_passes(250)
        self.doubles.worker.run_soon()
        while self.doubles.worker.jobs["disk"]:
            deliver = self.doubles.worker.start("disk")
            if count and not self.cutting:
                self.batches_come(1, 9)
                count -= 1
            deliver()
            self.doubles.worker.run_soon()
        if then:
            self.doubles.worker.step("sync")

    @rule(number=st.integers(0, 1))
    def a_log_that_syncs_each_record(self, number: int) -> None:
        self.doubles.append(self.doubles.log(1 + number, LogConfig(segment_bytes=3000)), b"y" * 2000)

    @rule(share=st.floats(0, 1))
    @precondition(lambda self: not self.cutting and self.rows)
    def the_histories_part(self, share: float) -> None:
        """Its new leader has less: the end is cut before anything else comes. What was synced of it is no promise."""
        end_offset = int(share * len(self.rows))
        self.epoch += 1
        self.cutting += 1
        self.cut_rows = self.rows[:end_offset]

        def cut(error: DuramenError | None) -> None:
            assert error is None
            self.cutting -= 1
            self.rows = self.cut_rows
            assert self.log.end_offset == len(self.rows)

        self.doubles.store.truncate(self.log, end_offset, self.epoch, cut)

    @rule()
    def all_is_synced_in_the_end(self) -> None:
        self.settle()
        for _ in range(3):
            self.doubles.advance(300)
        assert not self.cutting
        assert self.log.synced_offset == self.log.end_offset == len(self.rows)
        assert all(append.acknowledged for append in self.appends)
        assert rows(self.doubles, self.log) == self.rows

    @rule(seed=st.integers(0, 2**32 - 1), how=st.sampled_from(["power", "power, all unsynced lost", "kill"]))
    def it_ends(self, seed: int, how: str) -> None:
        promised = self.log.synced_offset
        if self.cutting:
            promised = min(promised, len(self.cut_rows))
        if how == "kill":
            self.doubles.kill()
        else:
            self.doubles.crash(random.Random(seed) if how == "power" else None)
        self.restarted()
        found = rows(self.doubles, self.log)
        assert found == self.rows[: len(found)]
        assert len(found) >= promised
        assert not self.doubles.findings
        self.rows = found

    @rule()
    @precondition(lambda self: not self.cutting)
    def it_stops_in_good_order(self) -> None:
        self.settle()
        self.doubles.restart()
        self.restarted()
        assert rows(self.doubles, self.log) == self.rows

    def teardown(self) -> None:
        if hasattr(self, "doubles"):
            self.all_is_synced_in_the_end()


TestBulk = BulkMachine.TestCase
TestBulk.settings = settings(max_examples=examples(400), stateful_step_count=40, deadline=None)
