"""Syncs of logs with durability=os: for `flush.messages`, `flush.ms` and bulk appends.

One job at a time for all logs that are due, with no copy in progress and no checkpoint started meanwhile: a failed sync
must not be followed by one that seems to succeed.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.ports import Clock, FileSystem, Worker
from duramen.storage.log.log import NEVER, Log
from duramen.storage.log.sync import SegmentSync, plan_sync, sync_segments, synced, write_index
from duramen.storage.maintenance.copier import Copier
from duramen.storage.maintenance.segment_rewrite import holds
from duramen.storage.segment.segment import Segment

__all__ = ["Flusher"]

_RETRY_MS: Final = 1000
_BULK_BYTES: Final = 4 << 20
_BULK_MS: Final = 100


class _Unsynced:
    """The unsynced part of a log: records, bytes, and the deadline of its sync."""

    __slots__ = ("deadline", "records", "size")

    def __init__(self) -> None:
        self.records = 0
        self.size = 0
        self.deadline: Deadline | None = None


class _Round:
    """The work of one job: `reached` has for each log its copied end, and its active segment then."""

    def __init__(self) -> None:
        self.logs: list[Log] = []
        self.syncs: list[SegmentSync] = []
        self.reached: list[tuple[Log, int, Segment]] = []

    def take(self, log: Log) -> None:
        """Add all copied bytes of `log`."""
        self.logs.append(log)
        self.syncs += (plan_sync(log, segment) for segment in _unsynced_segments(log))
        if log.durability == "os" and log.synced_offset < log.end_offset:
            self.reached.append((log, log.copied_offset(), log.active))


class Flusher:
    """Counts appends to each log since its last sync, and syncs it when due."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        deadlines: Deadlines,
        copier: Copier,
        on_segment_failure: Callable[[Log, OSError], None],
        *,
        copy_all: Callable[[Callable[[OSError | None], None]], None],
        on_synced: Callable[[Log, int, Segment], None],
        on_failed: Callable[[Log], None],
    ) -> None:
        """`on_segment_failure` gets a log one of whose segments could not be synced.

        `copy_all` copies all batches that wait in memory. `on_synced` gets the synced end of a log, and its active
        segment then; `on_failed` a log that never gets there.
        """
        self._files = files
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._copier = copier
        self._on_segment_failure = on_segment_failure
        self._copy_all = copy_all
        self._on_synced = on_synced
        self._on_failed = on_failed
        self._unsynced: dict[Log, _Unsynced] = {}
        self._due: dict[Log, None] = {}
        self._running = False

    def appended(self, log: Log, records: int) -> None:
        """Note the number of records appended to `log`, whose config has one of the two limits. Plain."""
        unsynced = self._due_in(log, log.config.flush_ms)
        unsynced.records += records
        if unsynced.records >= log.config.flush_messages:
            self._now_due(log)

    def appended_in_bulk(self, log: Log, size: int) -> None:
        """Note the number of bytes appended to `log` in bulk: only its segments get them."""
        unsynced = self._due_in(log, _BULK_MS)
        unsynced.size += size
        if unsynced.size >= _BULK_BYTES:
            self._now_due(log)

    def _due_in(self, log: Log, after_ms: int) -> _Unsynced:
        unsynced = self._unsynced.get(log)
        if unsynced is None:
            unsynced = self._unsynced[log] = _Unsynced()
        if unsynced.deadline is None and after_ms != NEVER:
            at_ms = self._clock.monotonic_ms() + after_ms
            unsynced.deadline = self._deadlines.at(at_ms, partial(self._now_due, log))
        return unsynced

    def _now_due(self, log: Log) -> None:
        self._due[log] = None
        self._sync_soon()

    def _sync_soon(self) -> None:
        # Deferred: logs that are due at the same time share a job, and copies that waited for one come first.
        if self._due and not self._running:
            self._running = True
            self._worker.soon(self._sync)

    def _sync(self) -> None:
        if any(_waits_in_memory(log) for log in self._due):
            self._copy_all(self._sync_copied)
        else:
            self._sync_copied(None)

    def _sync_copied(self, failure: OSError | None) -> None:
        if failure is not None:
            # The batches stay in memory, and are tried again.
            self._running = False
            self._deadlines.at(self._clock.monotonic_ms() + _RETRY_MS, self._sync_soon)
            return
        round_ = _Round()

        def plan() -> Callable[[], list[tuple[SegmentSync, OSError]]]:
            due, self._due = self._due, {}
            for log in due:
                self._forget(log)
                round_.take(log)
                if _waits_in_memory(log):
                    self._due_in(log, _BULK_MS)  # appended since the copy
            return partial(_sync_job, self._files, round_.syncs)

        self._copier.alone(plan, partial(self._synced, round_))

    def _forget(self, log: Log) -> None:
        unsynced = self._unsynced.pop(log, None)
        if unsynced is not None and unsynced.deadline is not None:
            unsynced.deadline.cancel()

    def _synced(self, round_: _Round, result: list[tuple[SegmentSync, OSError]] | BaseException) -> None:
        self._running = False
        if isinstance(result, BaseException):
            # No sync is certain, and nothing is lost: an index or a directory could not be written.
            self._deadlines.at(self._clock.monotonic_ms() + _RETRY_MS, lambda: self._again(round_.logs))
        elif result:
            for sync, error in result:
                sync.segment.suspect = True
                self._copier.unsynced[sync.segment] = sync.log
                self._on_segment_failure(sync.log, error)
            failed = {sync.log for sync, _ in result}
            self._again([log for log in round_.logs if log not in failed])  # their directories were not synced
        else:
            for sync in round_.syncs:
                # An earlier checkpoint may have found a failed sync of the segment: a later success proves nothing.
                if holds(sync.log, sync.segment) and not sync.segment.suspect:
                    synced(sync)
            for log, end_offset, active in round_.reached:
                if not log.failed:
                    self._on_synced(log, end_offset, active)
        for log in round_.logs:
            if log.failed:
                self._on_failed(log)
        self._sync_soon()

    def _again(self, logs: list[Log]) -> None:
        for log in logs:
            self._now_due(log)


def _waits_in_memory(log: Log) -> bool:
    return log.durability == "os" and log.copied_offset() < log.end_offset


def _unsynced_segments(log: Log) -> Iterator[Segment]:
    """The segments with unsynced bytes in their files, newest first."""
    if log.deleted or log.failed or log.durability != "os":
        return
    for segment in reversed(log.segments):
        if segment.copied > segment.synced and not segment.in_memory:
            yield segment
        elif segment.copied:
            return


def _sync_job(files: FileSystem, syncs: list[SegmentSync]) -> list[tuple[SegmentSync, OSError]]:
    for sync in syncs:
        write_index(files, sync)
    return sync_segments(files, syncs)
