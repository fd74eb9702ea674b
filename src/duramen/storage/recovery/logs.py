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
    """The logs by id, as far as they are recovered, and the state shared by the steps of a recovery."""

    def __init__(self, files: FileSystem, handles: Handles, report: Callable[[str], None]) -> None:
        """`report` receives each finding."""
        self.files = files
        self.handles = handles
        self.logs: dict[LogId, Log] = {}
        self.next_log_id = 1
        self.believing = False  # whether segments are trusted, because the checkpoint or the WAL is incomplete
        self.gaps_only = False  # if trusted: only for records that the WAL has lost, or from the start
        self.lost_epoch = -1  # the newest epoch in records that no log has any more
        self.rescue = Rescue(files, handles, self.find)
        self.findings: list[str] = []  # messages for the operator
        self.unsynced: dict[Segment, Log] = {}
        self.let_go_files: list[str] = []
        self.let_go_directories: list[str] = []
        self._report = report
        self._touched: dict[Log, None] = {}
        self._waiting_bytes = 0

    def find(self, message: str) -> None:
        """Add a message for the operator."""
        self.findings.append(message)
        self._report(message)

    def appended(self, log: Log, size_bytes: int) -> None:
        """A batch of that size waits in memory for the end of the log's file."""
        self._touched[log] = None
        self._waiting_bytes += size_bytes
        if self._waiting_bytes >= WRITE_BYTES:
            self.write()

    def write(self) -> None:
        """Write the waiting batches to the segments' files. Raises OSError."""
        for log in self._touched:
            for write in plan_writes(log):
                take_over(self.handles, write_segment(self.files, write))
                self.unsynced[write.segment] = log
        self._touched.clear()
        self._waiting_bytes = 0

    def fill(self, log: Log, until: int | None = None) -> None:
        """Restore batches that the write-ahead log has lost, from the log's files at its end."""
        self.write()
        self.rescue.fill(log, until)
        self.note_unsynced(log)

    def note_unsynced(self, log: Log) -> None:
        """Batches taken from files may never have been synced."""
        self.unsynced.update({segment: log for segment in log.segments if segment.copied > segment.synced})

    def forget(self, segments: Iterable[Segment]) -> None:
        """The log no longer has these segments: forget their syncs."""
        for segment in segments:
            self.handles.forget(segment)
            self.unsynced.pop(segment, None)

    def drop(self, log: Log, start_offset: int) -> None:
        """Move the log's start to `start_offset`, and mark the files of segments wholly before it for removal."""
        dropped = log.drop_before(start_offset)
        self.forget(dropped)
        self.let_go_files += (segment.path + ending for segment in dropped for ending in (".log", ".index"))

    def delete(self, log: Log) -> None:
        """The log is deleted: mark its directory for removal."""
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
                if self.files.exists(segment.path + ".log"):  # a missing file is damage, and was reported
                    self.unsynced[segment] = log  # closed by the replay: its index has one more entry
        syncs = [plan_sync(log, segment) for segment, log in self.unsynced.items() if segment.size]
        for sync in syncs:
            write_index(self.files, sync)
        failures = sync_segments(self.files, syncs)
        if failures:
            raise failures[0][1]
        for sync in syncs:
            synced(sync)
