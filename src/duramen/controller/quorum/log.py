"""A replica's metadata log on the node's storage: writes, truncations and reads for the state machine.

Its newest batches stay in memory: all that are not applied or synced yet, because they may still be read, and a bounded
rest. Epochs are those in the batches; the leader-epoch cache belongs to the storage.
"""

from bisect import bisect_left
from collections.abc import Callable
from functools import partial

from duramen.base.errors import BatchCorrupt, DuramenError, LogDamaged, OffsetOutOfRange
from duramen.base.ports import Clock
from duramen.codec.batch import batches, header
from duramen.controller.quorum.entries import data_of, gap, leader_of, read_batch
from duramen.raft.epochs import EpochEnd, EpochTable
from duramen.raft.messages import EntryBatch
from duramen.storage.followed_log import FollowedLog
from duramen.storage.log.log import Log
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = ["MetadataLog"]

Done = Callable[[DuramenError | None], None]
BatchesRead = Callable[[tuple[EntryBatch, ...] | DuramenError], None]


class MetadataLog:
    """A log with appends, truncation, and restart; `begin` first sets its present content."""

    def __init__(self, store: Store, log: Log, clock: Clock, kept_bytes: int) -> None:
        """`kept_bytes` of batches stay in memory beyond the needed ones."""
        self._kept_bytes = kept_bytes
        self._store = store
        self._log = log
        self._clock = clock
        self._epochs = EpochTable()
        self._recent: list[EntryBatch] = []
        self._recent_bytes = 0
        store.drop_empty_leaderships(log)
        self._followed = FollowedLog(store, log)
        self._in_memory = False  # whether writes have ended

    def begin(self, start: EpochEnd, found: list[EntryBatch]) -> None:
        """Set its batches after the snapshot that ends at `start`."""
        self._epochs.restart(start)
        self._recent.clear()
        self._recent_bytes = 0
        for batch in found:
            self._note(batch)

    @property
    def end(self) -> EpochEnd:
        """Its end, including unsynced batches."""
        return self._epochs.end

    @property
    def synced_offset(self) -> int:
        """The offset below which everything is synced."""
        return min(self._log.synced_offset, self.end.offset)

    @property
    def directory(self) -> str:
        """The directory of its files, for messages."""
        return self._log.directory

    def stay_in_memory(self) -> None:
        """The disk accepts no writes: from now on nothing is written, and nothing is reported as synced."""
        self._in_memory = True

    # -- writing ------------------------------------------------------------------------------------

    def append(self, batch: EntryBatch, done: Done) -> None:
        """Append a batch; `done(None)` once it is synced. It waits for room on a full disk."""
        if batch.first != self.end.offset:
            raise AssertionError(f"a batch at {batch.first} does not follow what ends at {self.end.offset}")
        self._note(batch)
        if self._in_memory:
            return
        self._followed.enter(batch.epoch, leader_of(batch))
        data = bytearray(data_of(batch))

        def appended(base_offset: int, error: DuramenError | None) -> None:
            if error is None and base_offset != batch.first:
                raise AssertionError(f"the batch at {batch.first} was written at {base_offset}")
            done(error)

        self._store.append(self._log, data, header(data), batch.epoch, appended, patient=True)

    def cut(self, end_offset: int, done: Done) -> None:
        """Truncate the log; `done(None)` once that is durable, and all records before the end are synced."""
        self._epochs.cut(end_offset)
        while self._recent and self._recent[-1].first >= end_offset:
            self._recent_bytes -= len(data_of(self._recent.pop()))
        if self._in_memory:
            done(None)
        else:
            self._followed.cut(end_offset, done)

    def restart(self, start: EpochEnd, done: Done) -> None:
        """Restart after the snapshot that ends at `start`, which is durable; `done(None)` once the restart is too.

        The snapshot's entries become a gap of the log: one empty batch, which is deleted with everything before it.
        """
        self.begin(start, [])
        if self._in_memory:
            done(None)
            return
        log = self._log

        def fill(filled: Done) -> None:
            missing = start.offset - log.end_offset
            if missing <= 0:
                filled(None)
                return
            data = gap(missing, self._clock.wall_ms())
            head = header(data)._replace(records=missing)
            epoch = max(log.takeovers.latest_epoch, 0)
            self._store.append(log, data, head, epoch, lambda _, error: filled(error), patient=True)

        # Nothing is kept: the rest could have later epochs than the following batches.
        self._followed.restart(start.offset, lambda: log.start_offset, fill, done)

    def start_at(self, offset: int) -> None:
        """A durable snapshot has the entries below `offset`: they may be deleted."""
        self._epochs.start_at(offset)
        self._store.delete_before(self._log, offset, lambda _: None)

    # -- reading ------------------------------------------------------------------------------------

    def between(self, first: int, end: int) -> list[EntryBatch]:
        """The batches from the offset `first` to `end`, which are in memory until they are applied."""
        found = self._recent[self._at(first) : self._at(end)]
        if first < end and (not found or found[0].first != first):
            raise AssertionError(f"the batch at {first} is not in memory")
        return found

    def read(self, offset: int, max_bytes: int, done: BatchesRead) -> None:
        """Batches from `offset` on, synced or not: at least one if there is any, then as many as fit."""
        if offset >= self.end.offset:
            done(())
        elif self._recent and self._recent[0].first <= offset:
            done(_fitting(self._recent, self._at(offset), max_bytes))
        else:
            self._read_files(offset, max_bytes, done)

    def forget(self, end_offset: int) -> None:
        """Entries below are applied: synced ones need not stay in memory."""
        if not self._in_memory:
            end_offset = min(end_offset, self._log.synced_offset)
        count = 0
        while self._recent_bytes > self._kept_bytes and count < len(self._recent):
            batch = self._recent[count]
            if batch.first + batch.entries > end_offset:
                break
            self._recent_bytes -= len(data_of(batch))
            count += 1
        del self._recent[:count]

    def _read_files(self, offset: int, max_bytes: int, done: BatchesRead) -> None:
        def planned(error: BaseException | None) -> None:
            if error is not None:
                done(error if isinstance(error, DuramenError) else LogDamaged(f"{self.directory}: {error}"))
                return
            try:
                plan = self._log.plan_read(offset, max_bytes)
            except (LogDamaged, OffsetOutOfRange) as refused:
                done(refused)
                return
            if plan is None:
                done(())
            elif isinstance(plan, Blocked):
                self._store.unblock(plan, planned)
            else:
                read_slice(self._store, plan, partial(_read, offset, done))

        planned(None)

    # -- in memory ----------------------------------------------------------------------------------

    def _note(self, batch: EntryBatch) -> None:
        self._epochs.append(batch.epoch, batch.entries)
        self._recent.append(batch)
        self._recent_bytes += len(data_of(batch))

    def _at(self, offset: int) -> int:
        """The index of the batch in memory that starts there, or of the next one."""
        return bisect_left(self._recent, offset, key=lambda batch: batch.first)


def _fitting(recent: list[EntryBatch], at: int, max_bytes: int) -> tuple[EntryBatch, ...]:
    end, size = at, 0
    while end < len(recent):
        size += len(data_of(recent[end]))
        if end > at and size > max_bytes:
            break
        end += 1
    return tuple(recent[at:end])


def _read(offset: int, done: BatchesRead, data: bytes | DuramenError | OSError) -> None:
    if isinstance(data, OSError):
        done(LogDamaged(f"the metadata log cannot be read at offset {offset}: {data}"))
        return
    if isinstance(data, DuramenError):
        done(data)
        return
    try:
        found = [read_batch(data[at : at + head.size]) for at, head in batches(data)]
    except BatchCorrupt as error:
        done(error)
        return
    done(tuple(batch for batch in found if batch.first >= offset))
