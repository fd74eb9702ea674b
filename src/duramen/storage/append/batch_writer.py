"""Writes one batch: assigns offset and leader epoch, adds it to the active segment and to the write-ahead log."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, StorageFailed, StorageFull
from duramen.base.leader_epochs import Takeover
from duramen.base.ports import Buffer, Clock, FileSystem, Worker
from duramen.codec.batch import stamp
from duramen.storage.append.bulk import Bulk
from duramen.storage.append.leaderships import created_frames
from duramen.storage.append.queue import AppendDone, QueuedAppend, TurnAppend, kept
from duramen.storage.append.reserved_offsets import is_reserved, reserve
from duramen.storage.io import is_full, is_passing
from duramen.storage.log.log import NEVER, Log
from duramen.storage.log.refused_batches import Refusals
from duramen.storage.log.transactions import enter
from duramen.storage.maintenance.due import DueLogs
from duramen.storage.maintenance.flush import Flusher
from duramen.storage.maintenance.scheduler import Upkeep, segment_failed
from duramen.storage.wal.frames import FrameType
from duramen.storage.wal.records import encode_takeover
from duramen.storage.wal.wal import Wal

__all__ = ["BatchWriter"]

_MEMORY_SEGMENTS: Final = 8


class BatchWriter:
    """Writes batches in the order of the calls; the next flush of the write-ahead log makes them durable."""

    def __init__(
        self, files: FileSystem, worker: Worker, clock: Clock, deadlines: Deadlines, wal: Wal, upkeep: Upkeep,
        due: DueLogs, bulk: Bulk, refusals: Refusals, *, node_id: int,
    ) -> None:  # fmt: skip
        self._clock = clock
        self._wal = wal
        self._upkeep = upkeep
        self._copier = upkeep.copier
        self._due = due
        self._bulk = bulk
        self._refusals = refusals
        self._flusher = Flusher(
            files, worker, clock, deadlines, self._copier, segment_failed,
            copy_all=upkeep.copy_all, on_synced=bulk.copied, on_failed=bulk.give_up,
        )  # fmt: skip
        self._node_id = node_id

    def write(self, append: QueuedAppend) -> DuramenError | None:
        """Write a batch that passed all checks; returns the error if its segment does not accept it."""
        log, batch, head, epoch = append.log, append.batch, append.head, append.epoch
        base_offset = log.end_offset
        next_offset = base_offset + head.records
        if not append.ordered:
            stamp(batch, base_offset, epoch)
        elif head.base_offset != base_offset:
            raise AssertionError(f"a batch at {head.base_offset} does not follow what ends at {base_offset}")
        if epoch > log.takeovers.latest_epoch:
            self._introduce(log, epoch)
        elif not log.written:
            self._create(log)
        self._roll_if_due(append, next_offset)
        if log.durability == "sync":
            data = kept(batch)
            until = self._wal.stage(FrameType.APPEND, log.id, data)
            log.segments[-1].append(data, base_offset, next_offset, head.max_timestamp)
            self._copier.add(log, len(batch))
            self._advance(append, base_offset, next_offset)
            self._wal.wait_appended(until, append.done, base_offset, log, next_offset)
            self._upkeep.copy_later()
        elif log.in_bulk:
            self._write_in_bulk(append, base_offset, next_offset)
        else:
            error = self._write_unlogged(append, base_offset, next_offset)
            if error is not None:
                return error
            self._advance(append, base_offset, next_offset)
            self._written_unlogged(log, base_offset, next_offset, append.done)
        return None

    def write_all(
        self, log: Log, appends: Sequence[TurnAppend], epoch: int, pending_bytes: int,
        done: Callable[[DuramenError | None], None],
    ) -> bool:  # fmt: skip
        """Write batches of one log in one step if none needs a decision of its own; else do nothing.

        At most `pending_bytes` wait in memory then. `done` is called once all of them are acknowledged.
        """
        # Inlined loops: a single request finds cold caches, and each function call counts.
        active, config, wal = log.segments[-1], log.config, self._wal
        first_offset = next_offset = log.end_offset
        size, newest, idempotent = 0, active.first_timestamp, False
        for append in appends:
            head = append.head
            if head.producer_id >= 0:
                idempotent = True
            size += len(append.batch)
            next_offset += head.records
            newest = max(newest, head.max_timestamp)
        waiting_bytes = self._copier.pending_bytes
        if not (
            log.durability == "sync"
            and log.replicated is None
            and log.written
            and epoch <= log.takeovers.latest_epoch
            and active.size
            and active.fits(size, next_offset, config.segment_bytes)
            and newest - active.first_timestamp <= config.segment_ms - config.segment_jitter_ms
            and (not waiting_bytes or waiting_bytes + size <= pending_bytes)
            and wal.fits(size, len(appends))
            and not (idempotent and self._refusals)
            and (not idempotent or log.producers.follow(appends))
        ):
            return False
        batches: list[Buffer] = []
        for append in appends:
            batch = append.batch
            stamp(batch, first_offset, epoch)
            batches.append(kept(batch))
            append.base_offset = first_offset
            first_offset += append.head.records
        until = wal.stage_all(FrameType.APPEND, log.id, batches)
        active.append_all(batches, appends)
        if idempotent:
            log.producers.add_all(appends, self._clock.wall_ms())
        log.end_offset = next_offset
        log.version += 1
        wal.wait(until, done, log, next_offset, len(appends))
        self._copier.add(log, size)
        self._due.changed[log] = None
        self._upkeep.copy_later()
        return True

    def _write_unlogged(self, append: QueuedAppend, base_offset: int, next_offset: int) -> DuramenError | None:
        log, batch, head = append.log, append.batch, append.head
        if log.durability == "memory":
            if not is_reserved(log, next_offset):
                log.introduced = self._wal.stage(FrameType.CHECKPOINT_ENTRY, log.id, reserve(log, next_offset))
            log.active.append(kept(batch), base_offset, next_offset, head.max_timestamp)
            self._evict(log)
            return None
        try:
            self._copier.write_through(log, batch, base_offset, next_offset, head.max_timestamp)
        except OSError as error:
            if is_full(error):
                return StorageFull("the disk is full: nothing was written")
            if is_passing(error):
                return StorageFull(f"nothing was written: {error.strerror}")
            log.failed = f"writing {log.active.path}.log failed ({error.strerror}); no writes until restart"
            return StorageFailed(log.failed)
        except DuramenError as error:
            return error
        if log.config.flush_messages != NEVER or log.config.flush_ms != NEVER:
            self._flusher.appended(log, append.head.records)
        self._upkeep.checkpoint_later()
        return None

    def _write_in_bulk(self, append: QueuedAppend, base_offset: int, next_offset: int) -> None:
        """Add the batch to memory; the copier writes it to the segment."""
        log, head, size = append.log, append.head, len(append.batch)
        log.active.append(kept(append.batch), base_offset, next_offset, head.max_timestamp)
        self._copier.add(log, size)
        self._advance(append, base_offset, next_offset)
        if append.done is not None:
            self._bulk.wait(log, next_offset, partial(_acknowledge, append.done, base_offset))
        self._flusher.appended_in_bulk(log, size)
        self._upkeep.copy_in_bulk()
        self._upkeep.checkpoint_after(size)

    def _written_unlogged(self, log: Log, base_offset: int, next_offset: int, done: AppendDone | None) -> None:
        if log.introduced > self._wal.synced:
            # A recovery ignores it without its epoch's frame, so it is not visible before that frame is durable.
            self._wal.wait_appended(self._wal.end, done, base_offset, log, next_offset)
            return
        log.synced_to(next_offset)
        if done is not None:
            done(base_offset, None)
        log.notify()

    def _advance(self, append: QueuedAppend, base_offset: int, next_offset: int) -> None:
        log, head = append.log, append.head
        if head.producer_id >= 0 and log.replicated is not None:
            log.replicated.remember(base_offset, head.producer_id, log.producers.row(head.producer_id))
        if head.producer_id >= 0 and self._refusals:
            self._refusals.taken(log.key, head)
        if head.producer_id >= 0 or append.ordered:
            enter(log, head, append.batch, base_offset, self._clock.wall_ms())
        active = log.segments[-1]
        if base_offset == active.base_offset and not log.bulk:
            active.begun_ms = self._clock.wall_ms()
        log.end_offset = next_offset
        log.version += 1
        self._due.changed[log] = None
        if log.replicated is not None:
            log.replicated.on_append(append.epoch, base_offset, next_offset)

    def _create(self, log: Log) -> None:
        for type_, payload in created_frames(log):
            self._wal.stage(type_, log.id, payload)
        log.written = True

    def _introduce(self, log: Log, epoch: int) -> None:
        """The frames before a log's first batch in an epoch; without them its segments belong to no log."""
        if not log.written:
            self._create(log)
        takeover = Takeover(epoch, self._node_id, log.end_offset)
        log.takeovers.add(takeover)
        log.version += 1  # even if the batch itself is refused: the next checkpoint may include the frame
        log.introduced = self._wal.stage(FrameType.TAKEOVER, log.id, encode_takeover(*takeover))

    def _roll_if_due(self, append: QueuedAppend, next_offset: int) -> None:
        log, size = append.log, len(append.batch)
        active, config = log.segments[-1], log.config
        segment_bytes = config.segment_bytes
        if log.durability == "memory":
            segment_bytes = min(segment_bytes, config.memory_max_bytes // _MEMORY_SEGMENTS)
        age_ms = append.head.max_timestamp - active.first_timestamp
        least_ms = config.segment_ms - config.segment_jitter_ms
        aged = age_ms > least_ms and active.first_timestamp >= 0 and age_ms > log.roll_ms
        apart = append.ordered and append.epoch < 0  # it stands for missing records, and is recognised by that
        if active.size and (apart or aged or not active.fits(size, next_offset, segment_bytes)):
            self.roll(log)

    def roll(self, log: Log) -> None:
        """Roll the segment; the WAL records the position, so that recovery has the same segments as the file names."""
        if log.durability == "sync" and log.written:
            self._wal.stage(FrameType.ROLL, log.id, b"")
        self._copier.finish(log, log.active)
        log.roll()
        log.version += 1

    def _evict(self, log: Log) -> None:
        while len(log.segments) > 1 and log.size_bytes() > log.config.memory_max_bytes:
            if log.replicated is not None and log.segments[1].base_offset > log.replicated.high_watermark:
                return
            log.drop_before(log.segments[1].base_offset)


def _acknowledge(done: AppendDone, base_offset: int, error: DuramenError | None) -> None:
    done(base_offset if error is None else -1, error)
