"""One truncation of a log: the frame that records it, then the removal from memory alone or from files too.

If it fails on a full disk, it is retried until there is room; the log is held meanwhile.
"""

from collections.abc import Callable, Sequence
from functools import partial

from duramen.base.errors import DuramenError
from duramen.base.ports import FileSystem
from duramen.storage.log.log import Log
from duramen.storage.maintenance.scheduler import Upkeep
from duramen.storage.segment.segment import Segment
from duramen.storage.truncation.cuts import TruncatedLog, apply_cut, cut_files, cut_memory, end_in_memory, end_of_cut
from duramen.storage.truncation.tail import cut_ending, end_of_ending, ending_of
from duramen.storage.wal.control_frames import Notes
from duramen.storage.wal.frames import FrameType
from duramen.storage.wal.records import encode_truncate

__all__ = ["Truncation"]

Done = Callable[[DuramenError | None], None]

_WHAT = "a log cannot be truncated"


class Truncation:
    """Truncates `log`; calls `done` once that is durable and complete. `forget` drops cached state of segments.

    The caller keeps others from appending to the log, or reading truncated records, meanwhile.
    """

    def __init__(
        self,
        files: FileSystem,
        upkeep: Upkeep,
        notes: Notes,
        forget: Callable[[Sequence[Segment]], None],
        log: Log,
        done: Done,
    ) -> None:
        self._files = files
        self._upkeep = upkeep
        self._notes = notes
        self._forget = forget
        self._log = log
        self._done = done
        self._end_offset = log.end_offset
        self._let_go: Callable[[], None] | None = None

    def begin(self, end_offset: int, epoch: int) -> None:
        """Truncate it to `end_offset`, for the leader of `epoch`; a batch that reaches beyond is removed as a whole.

        If files must be truncated, the whole rest may be read (see `ending_of`). A follower with a new leader usually
        removes so few and so recent records that no file has them.
        """
        end = end_in_memory(self._log, end_offset)
        if end is not None:
            self._note(epoch, end)
            return
        again = partial(self.begin, end_offset, epoch)

        def look(failure: OSError | None) -> None:
            if failure is not None:
                self._retry(failure, again)
            else:
                self._upkeep.copier.alone(partial(self._find, end_offset), found)

        def found(end: int | BaseException) -> None:
            if isinstance(end, BaseException):
                self._retry(end, again)
            else:
                self._note(epoch, end)

        self._upkeep.copy_all(look)

    def _find(self, end_offset: int) -> Callable[[], int]:
        ending = ending_of(self._log, end_offset)
        if ending is None:
            return partial(end_of_cut, self._files, self._log, end_offset)
        return partial(end_of_ending, self._files, self._log, ending)

    def _note(self, epoch: int, end_offset: int) -> None:
        """Record the new end, which is the end of a batch or the start of the log."""
        self._end_offset = end_offset
        self._notes.write(
            FrameType.TRUNCATE, self._log, encode_truncate(end_offset, epoch), self._noted, staged=self._hold
        )

    def _hold(self) -> None:
        self._let_go = self._upkeep.checkpointer.hold()

    def _noted(self, error: DuramenError | None) -> None:
        if error is not None:
            self._finish(error)
        else:
            self._carry_out()

    def _carry_out(self, _: OSError | None = None) -> None:
        """The frame is durable; a copy may have written removed bytes to the file meanwhile."""
        log, copier = self._log, self._upkeep.copier
        if copier.running:
            copier.when_idle(self._carry_out)
        elif end_in_memory(log, self._end_offset) == self._end_offset:
            freed = cut_memory(log, self._end_offset)
            if not log.active.in_memory:
                copier.taken_back(freed)
            self._finish(None)
        else:
            self._upkeep.copy_all(self._cut_files)

    def _cut_files(self, failure: OSError | None) -> None:
        if failure is not None:
            self._retry(failure, self._carry_out)
        else:
            self._upkeep.copier.alone(self._cut, self._take_over)

    def _cut(self) -> Callable[[], TruncatedLog]:
        ending = ending_of(self._log, self._end_offset)
        if ending is None:
            return partial(cut_files, self._files, self._log, self._end_offset)
        return partial(cut_ending, self._files, self._log, ending)

    def _take_over(self, result: TruncatedLog | BaseException) -> None:
        log = self._log
        if isinstance(result, BaseException):
            self._retry(result, self._carry_out)
            return
        if log.deleted:
            self._finish(None)  # all of it is removed
            return
        self._forget(log.segments)
        apply_cut(log, result)
        log.cut_again = log.durability == "os"
        # The rest may have bytes that only the WAL vouches for; the last one's index is rewritten.
        for segment in log.segments:
            if segment.size and not segment.in_memory and (segment.synced < segment.size or segment is log.active):
                self._upkeep.copier.unsynced[segment] = log
        self._finish(None)

    def _retry(self, failure: BaseException, step: Callable[[], None]) -> None:
        def again() -> None:
            if self._log.deleted:
                self._finish(None)  # all of it is removed
            else:
                step()

        self._upkeep.retry_step(_WHAT, failure, again, self._give_up)

    def _give_up(self, error: DuramenError) -> None:
        if self._let_go is not None:
            # A recovery truncates it, unless a checkpoint comes first.
            self._upkeep.unfinished = error
            if self._log.durability == "os":  # nothing else has the records after it
                self._log.failed = f"truncating {self._log.directory} failed ({error}); no writes until restart"
        self._finish(error)

    def _finish(self, error: DuramenError | None) -> None:
        if self._let_go is not None:
            self._let_go()
        self._done(error)
