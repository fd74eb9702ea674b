"""The logs of a directory during recovery, and the pending changes of their files. Blocking.

Appended batches wait in memory until `write`; nothing is removed before all of them are synced.
"""

from collections.abc import Callable, Iterable
from typing import Final

from duramen.base.ids import LogId
from duramen.base.ports import FileSystem
from duramen.storage.log.log import Log
from duramen.storage.log.sync import plan_sync, sync_segments, synced, write_index
from duramen.storage.maintenance.copier import plan_writes, take_over, write_segment
from duramen.storage.recovery.rescue import Rescue
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.segment import Segment

__all__ = ["WRITE_BYTES", "LogsFound"]

WRITE_BYTES: Final = 16 * 1024 * 1024


class LogsFound:
    """Logs by id, as far as they are brought back, and what every step of a recovery has to know."""

    def __init__(self, files: FileSystem, handles: Handles, report: Callable[[str], None]) -> None:
        """`report` is told each finding as it is made."""
        self.files = files
        self.handles = handles
        self.logs: dict[LogId, Log] = {}
        self.next_log_id = 1
        self.believing = False  # whether segments are believed, because the checkpoint or the WAL is not whole
        self.gaps_only = False  # where they are believed: only for what the WAL has lost, or from the start
        self.lost_epoch = -1  # the newest epoch seen in what no log has any more
        self.rescue = Rescue(files, handles, self.find)
        self.findings: list[str] = []  # what an operator must hear of
        self.unsynced: dict[Segment, Log] = {}
        self.let_go_files: list[str] = []
        self.let_go_directories: list[str] = []
        self._report = report
        self._touched: dict[Log, None] = {}
        self._waiting_bytes = 0

    def find(self, message: str) -> None:
        """Note what an operator must hear of."""
        self.findings.append(message)
        self._report(message)

    def appended(self, log: Log, size_bytes: int) -> None:
        """A batch of that size waits in memory behind the end of the log's file."""
        self._touched[log] = None
        self._waiting_bytes += size_bytes
        if self._waiting_bytes >= WRITE_BYTES:
            self.write()

    def write(self) -> None:
        """Write what waits in memory to the segments' files. Raises OSError."""
        for log in self._touched:
            for write in plan_writes(log):
                take_over(self.handles, write_segment(self.files, write))
                self.unsynced[write.segment] = log
        self._touched.clear()
        self._waiting_bytes = 0

    def fill(self, log: Log, until: int | None = None) -> None:
        """Of a log that the write-ahead log has lost batches of: those that its files have where it ends."""
        self.write()
        self.rescue.fill(log, until)
        self.note_unsynced(log)

    def note_unsynced(self, log: Log) -> None:
        """What was taken over from files was perhaps never synced."""
        self.unsynced.update({segment: log for segment in log.segments if segment.copied > segment.synced})

    def forget(self, segments: Iterable[Segment]) -> None:
        """These segments are not the log's any more: nothing of them is synced."""
        for segment in segments:
            self.handles.forget(segment)
            self.unsynced.pop(segment, None)

    def drop(self, log: Log, start_offset: int) -> None:
        """Move the log's start to `start_offset` and let go of the files of segments wholly before it."""
        dropped = log.drop_before(start_offset)
        self.forget(dropped)
        self.let_go_files += (segment.path + ending for segment in dropped for ending in (".log", ".index"))

    def delete(self, log: Log) -> None:
        """The log is deleted: its directory is let go."""
        log.deleted = True
        self._touched.pop(log, None)
        self.forget(log.segments)
        self.let_go_directories.append(log.directory)
        del self.logs[log.id]

    def sync(self) -> None:
        """Sync every segment that may not be synced, and its index. Raises OSError."""
        for log in self.logs.values():
            for segment in log.segments:
                index = segment.index
                if not (segment.closed and index is not None and index.written < index.entries):
                    continue
                if self.files.exists(segment.path + ".log"):  # where it is gone that is damage, and was named
                    self.unsynced[segment] = log  # closed by what was replayed: its index has an entry more
        syncs = [plan_sync(log, segment) for segment, log in self.unsynced.items() if segment.size]
        for sync in syncs:
            write_index(self.files, sync)
        failures = sync_segments(self.files, syncs)
        if failures:
            raise failures[0][1]
        for sync in syncs:
            synced(sync)
