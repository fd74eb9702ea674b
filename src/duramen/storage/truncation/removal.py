"""Removes records: retention, a new log start, truncation, a deleted log.

Files are removed some time after that is durable.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final

from duramen.base.errors import DuramenError, StreamNotFound
from duramen.base.ports import Clock, FileSystem, Worker
from duramen.storage.log.empty_log import hold_place, placeholder
from duramen.storage.log.floors import floors_of
from duramen.storage.log.log import Log
from duramen.storage.maintenance.delayed_delete import Lingering, set_aside
from duramen.storage.maintenance.scheduler import Upkeep, trouble
from duramen.storage.maintenance.segment_rewrite import holds
from duramen.storage.planning.retention import Late, RetentionLimits, RetentionSegmentFacts, late, new_start
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.segment import Segment
from duramen.storage.truncation.truncation import Truncation
from duramen.storage.wal.control_frames import Notes
from duramen.storage.wal.frames import FrameType
from duramen.storage.wal.records import LogChange, encode_change

__all__ = ["Removal"]

Done = Callable[[DuramenError | None], None]

_NOT_DELETED: Final = "records cannot be deleted"

_RETIRED: Final = 16
"""The number of newest removed segments that stay open while they are read: a slice may not have opened them yet."""


class Removal:
    """Removes records and files of logs. Readers in the middle of a slice finish it: it holds its file open."""

    def __init__(
        self,
        files: FileSystem,
        worker: Worker,
        clock: Clock,
        handles: Handles,
        upkeep: Upkeep,
        notes: Notes,
        lingering: Lingering,
    ) -> None:
        self._files = files
        self._worker = worker
        self._clock = clock
        self._handles = handles
        self._upkeep = upkeep
        self._notes = notes
        self._lingering = lingering
        self.on_late: Callable[[Log, Late], None] = lambda _log, _late: None

    def _forget(self, segments: Sequence[Segment]) -> None:
        self._need_not_be_synced(segments)
        for segment in segments:
            self._handles.forget(segment)

    def _need_not_be_synced(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            self._upkeep.copier.unsynced.pop(segment, None)

    # -- whole logs ---------------------------------------------------------------------------------

    def delete(self, log: Log, done: Done | None) -> None:
        """Delete the log, which receives no more appends, and its files."""
        self._upkeep.copier.forget(log)
        self._forget(log.segments[:-_RETIRED])
        self._need_not_be_synced(log.segments[-_RETIRED:])
        for segment in log.segments[-_RETIRED:]:
            self._handles.quarantine.forget(segment)
            self._handles.retire(segment)
        log.release()
        if log.written:
            self._notes.write(FrameType.LOG_DELETED, log, b"", partial(self._remove_files, log, done))
        elif done is not None:
            self._worker.soon(partial(done, None))

    def _remove_files(self, log: Log, done: Done | None, error: DuramenError | None) -> None:
        if error is None:
            remove = partial(self._files.remove_directory, log.directory)
            self._lingering.after(log.config.file_delete_delay_ms, lambda: self._run(remove))
        if done is not None:
            done(error)

    # -- the oldest records -------------------------------------------------------------------------

    def enforce_retention(self, log: Log, now_ms: int) -> None:
        """Delete records according to the log's retention settings."""
        config = log.config
        facts = [
            RetentionSegmentFacts(segment.base_offset, end, segment.size, _newest_ms(segment), segment.begun_ms)
            for segment, end in log.with_ends()
        ]
        limits = RetentionLimits(config.retention_ms, config.retention_bytes, config.retention_records)
        start = new_start(facts, limits, floors_of(log), log.start_offset, now_ms)
        if start > log.start_offset:
            gone = late(facts, limits, log.start_offset, start)
            self.move_start(log, start)
            if gone.records:
                log.late = Late(log.late.records + gone.records, max(log.late.newest_ms, gone.newest_ms))
                self.on_late(log, gone)

    def delete_before(self, log: Log, offset: int, done: Done, *, patient: bool = False) -> None:
        """Delete everything before `offset`, at most the high watermark; calls `done` once that is durable.

        A `patient` deletion waits for room on a full disk.
        """
        again = partial(self.delete_before, log, offset, done, patient=patient)
        waits = any(
            segment.copied < segment.size and not segment.in_memory and end <= offset
            for segment, end in log.with_ends()
        )

        def copied(failure: OSError | None) -> None:
            if failure is None:
                again()
            elif patient:
                self._upkeep.retry_step(_NOT_DELETED, failure, again, done)
            else:
                done(trouble(_NOT_DELETED, failure))

        if log.deleted:
            self._worker.soon(partial(done, StreamNotFound("the stream was deleted meanwhile")))
        elif waits:
            self._upkeep.copy_all(copied)
        elif offset > log.start_offset:
            self.move_start(log, offset, done)
        else:
            self._worker.soon(partial(done, None))

    def move_start(self, log: Log, offset: int, done: Done | None = None) -> None:
        """Delete everything before `offset`, which must be copied; calls `done` once that is durable."""
        if offset == log.end_offset and log.active.size:
            log.roll()
        dropped = log.drop_before(offset)
        log.start_moved_ms = self._clock.wall_ms()
        log.version += 1
        for segment in dropped[:-_RETIRED]:
            self._handles.forget(segment)
        for segment in dropped[-_RETIRED:]:
            self._handles.retire(segment)
        let_go = self._remover(log, dropped)

        def durable(error: DuramenError | None) -> None:
            if error is None:
                # Not earlier: a checkpoint with older states names them, and a power loss may revert the new start.
                self._need_not_be_synced(dropped)
            if done is not None:
                done(error)
            if error is not None or not dropped:
                return
            if log.durability == "os":
                # Until a checkpoint has its producers, only the batches have them.
                self._upkeep.checkpointer.request(let_go)
            else:
                let_go(None)

        if log.written:
            change = LogChange(log.start_offset, log.end_offset, log.switching_to or log.durability)
            self._notes.write(FrameType.CHECKPOINT_ENTRY, log, encode_change(change), durable)
        else:
            self._need_not_be_synced(dropped)
            if done is not None:
                self._worker.soon(partial(done, None))

    def _remover(self, log: Log, dropped: list[Segment]) -> Callable[[OSError | None], None]:
        """The function that removes their files, later; it gets the error of the change, or None."""
        paths = [segment.path + ending for segment in dropped for ending in (".log", ".index")]
        last = placeholder(log)

        def let_go(failure: OSError | None) -> None:
            if failure is not None:
                return
            delay_ms = log.config.file_delete_delay_ms
            if delay_ms:
                self._worker.submit("disk", partial(self._set_aside, log, last, paths), partial(self._linger, delay_ms))
            else:
                self._run(partial(self._unlink, log, last, paths))

        return let_go

    def _run(self, job: Callable[[], None]) -> None:
        self._worker.submit("disk", job, lambda _: None)

    def _linger(self, delay_ms: int, aside: list[str] | BaseException) -> None:
        if not isinstance(aside, BaseException):
            self._lingering.after(delay_ms, lambda: self._run(partial(self._unlink_all, aside)))

    def _set_aside(self, log: Log, last: Segment | None, paths: list[str]) -> list[str]:
        self._hold_place(log, last)
        return set_aside(self._files, paths)

    def _unlink(self, log: Log, last: Segment | None, paths: list[str]) -> None:
        self._hold_place(log, last)
        self._unlink_all(paths)

    def _hold_place(self, log: Log, last: Segment | None) -> None:
        if last is not None and holds(log, last):
            hold_place(self._files, log, last)

    def _unlink_all(self, paths: list[str]) -> None:
        for path in paths:
            self._files.unlink(path)

    def end(self) -> None:
        """Remove delayed files now: the node stops."""
        self._lingering.end()

    # -- the newest records -------------------------------------------------------------------------

    def truncate(self, log: Log, end_offset: int, epoch: int, done: Done) -> None:
        """Truncate a log to `end_offset`, for the leader of `epoch`; calls `done` once that is durable and complete.

        The caller keeps others from appending to it, or reading truncated records, meanwhile.
        """
        Truncation(self._files, self._upkeep, self._notes, self._forget, log, done).begin(end_offset, epoch)


def _newest_ms(segment: Segment) -> int:
    """The timestamp of the newest record; for a compacted segment without records, the oldest possible."""
    return 0 if segment.generation and segment.max_timestamp < 0 else segment.max_timestamp
