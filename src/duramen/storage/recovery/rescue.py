"""Recovers logs from segments alone, if no checkpoint is sound or the write-ahead log is damaged or missing.

Blocking and slow. Nothing is removed or truncated: unusable data stays under another name or beside a mark, and the
node logs it.
"""

from collections.abc import Callable, Collection
from typing import Final

from duramen.base.ids import METADATA_LOG_ID, METADATA_STREAM_ID, LogId
from duramen.base.leader_epochs import Takeover
from duramen.base.ports import Buffer, File, FileSystem
from duramen.codec.batch import Header
from duramen.storage.io import write_all
from duramen.storage.log.log import LOGS_DIRECTORY, Log, LogConfig, LogKey, log_directory
from duramen.storage.log.producers import ANY_ID
from duramen.storage.log.transactions import enter
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.index import INDEX_HEADER_BYTES, IndexHeader, cover, read_header
from duramen.storage.segment.reader import walk_batches
from duramen.storage.segment.segment import Segment, parse_segment_name, segment_name

__all__ = ["Rescue", "adopt", "is_unclaimed", "log_ids"]

_UNKNOWN_LEADER: Final = -1
_UNCLAIMED: Final = "unclaimed"


def log_ids(files: FileSystem) -> list[LogId]:
    """The ids of the logs that have a directory, in order. Blocking."""
    return sorted(LogId(int(name)) for name in files.names(LOGS_DIRECTORY) if name.isdigit())


def is_unclaimed(files: FileSystem, log_id: LogId) -> bool:
    """Whether the log's directory was kept without a known owner. Blocking."""
    return files.exists(f"{log_directory(log_id)}/{_UNCLAIMED}")


def adopt(log: Log, found: Header, whole: Buffer) -> None:
    """Add a batch that is already at the end of the active segment's file."""
    segment = log.active
    start, tail_crc = segment.size, segment.tail().crc
    segment.append(whole, found.base_offset, found.next_offset, found.max_timestamp)
    segment.copied_to(segment.size, *cover(tail_crc, start, [whole]))
    log.end_offset = log.synced_offset = found.next_offset
    log.version += 1
    enter(log, found, whole, found.base_offset, found.max_timestamp)


class Rescue:
    """Finds logs in their segments. `epoch` is the newest leader epoch of all batches seen, or -1."""

    def __init__(self, files: FileSystem, handles: Handles, find: Callable[[str], None]) -> None:
        """`find` receives messages about data that could not be recovered."""
        self.epoch = -1
        self._files = files
        self._handles = handles
        self._find = find

    def logs(self, known: Collection[Log], told: Collection[int] = ()) -> list[Log]:
        """Rebuild every log that is not `known` and that its segments name, from its batches; except those in `told`.

        Leader ids of past epochs are unknown (-1): the metadata log has them. Raises OSError.
        """
        known_ids = {log.id for log in known} | set(told)
        taken = {log.key for log in known}
        keys = {log_id: self._key(log_id) for log_id in log_ids(self._files) if log_id not in known_ids}
        found: list[Log] = []
        # The metadata log's id is fixed, so it needs no index; an index that names another owner takes precedence.
        for log_id in sorted(keys, key=lambda log_id: (keys[log_id] is None, log_id)):
            key = keys[log_id]
            if key is None and log_id == METADATA_LOG_ID:
                key = LogKey(METADATA_STREAM_ID, 0)
            log = self.log(log_id, key) if key is not None and key not in taken else None
            if log is not None:
                found.append(log)
                taken.add(log.key)
        return found

    def log(self, log_id: LogId, key: LogKey) -> Log | None:
        """The log with that id from its segments; None without segments. Raises OSError."""
        bases = self._bases(log_id)
        if not bases:
            return None
        log = Log(log_id, key, LogConfig(), self._handles)
        log.written = True
        log.producers.forget_up_to(ANY_ID)
        log.segments = [self._segment(log, *bases[0])]
        log.start_offset = log.end_offset = log.synced_offset = bases[0][0]
        self.read_on(log)
        return log

    @staticmethod
    def _segment(log: Log, base: int, generation: int) -> Segment:
        return Segment(f"{log.directory}/{segment_name(base, generation)}", base, generation)

    def read_on(self, log: Log) -> None:
        """Add the batches in the log's files after its known end. Raises OSError."""
        if log.active.in_memory:
            return
        unsound = self._read_segment(log)
        for base, generation in self._bases(log.id):
            if base <= log.active.base_offset:
                continue
            if base < log.end_offset:
                self._set_aside(f"{log.directory}/{segment_name(base, generation)}.log")
                continue
            if base > log.end_offset:
                log.damage.append((log.end_offset, base - 1))
                self._find(f"log {log.id}: offsets {log.end_offset} to {base - 1} are missing")
                log.end_offset = log.synced_offset = base
            self._begin_segment(log, unsound=unsound)
            log.segments[-1] = self._segment(log, base, generation)
            unsound = self._read_segment(log)
        if unsound:
            self._begin_segment(log, unsound=True)

    def fill(self, log: Log, until: int | None) -> None:
        """Add consecutive batches in the log's files from its end on, none beyond `until`.

        Raises OSError.
        """
        while True:
            segment = log.active
            if self._files.exists(segment.path + ".log"):
                file = self._files.open(segment.path + ".log")
                for _, found, whole in walk_batches(file, segment.size, file.size(), log.end_offset):
                    over = until is not None and found.next_offset > until
                    if over or found.base_offset != log.end_offset or found.leader_epoch < log.takeovers.latest_epoch:
                        break
                    self._note_epoch(found)
                    if found.leader_epoch > log.takeovers.latest_epoch:
                        log.takeovers.add(Takeover(found.leader_epoch, _UNKNOWN_LEADER, found.base_offset))
                    adopt(log, found, whole)
            following = f"{log.directory}/{segment_name(log.end_offset)}.log"
            if log.end_offset == until or not segment.size or not self._files.exists(following):
                return
            log.roll()

    def _begin_segment(self, log: Log, *, unsound: bool) -> None:
        """Start a new segment: nothing can be appended after invalid bytes."""
        if log.active.size:
            log.roll()
            return
        if unsound:
            self._set_aside(log.active.path + ".log")
        log.segments[-1] = Segment(f"{log.directory}/{segment_name(log.end_offset)}", log.end_offset)

    def _read_segment(self, log: Log) -> bool:
        """Read the active segment's file from its known end; returns whether it ends with invalid bytes."""
        segment = log.active
        path = segment.path + ".log"
        if not self._files.exists(path):
            return False
        file = self._files.open(path)
        size = file.size()
        self.name(log, segment)
        for _, found, whole in walk_batches(file, segment.size, size, log.end_offset):
            self._note_epoch(found)
            if found.leader_epoch > log.takeovers.latest_epoch:
                log.takeovers.add(Takeover(found.leader_epoch, _UNKNOWN_LEADER, found.base_offset))
            adopt(log, found, whole)
        if segment.generation:
            log.cleaned_offset = log.end_offset
        if segment.size < size:
            self._find(f"{path}: no sound batch from byte {segment.size} on; the bytes are kept and not served")
        return segment.size < size

    def _note_epoch(self, found: Header) -> None:
        self.epoch = max(self.epoch, found.leader_epoch)

    def name(self, log: Log, segment: Segment) -> None:
        """Make sure that the segment's index names its log. Raises OSError."""
        path = segment.path + ".index"
        index = self._files.open(path, create=True)
        head = IndexHeader(log.id, segment.base_offset, log.key.stream_id, log.key.partition)
        if self._header(index) != head:
            write_all(index, [head.encode()], 0)
            index.sync()

    @staticmethod
    def _header(index: File) -> IndexHeader | None:
        return read_header(index.read(0, INDEX_HEADER_BYTES))

    def _key(self, log_id: LogId) -> LogKey | None:
        for base, generation in self._bases(log_id):
            path = f"{log_directory(log_id)}/{segment_name(base, generation)}.index"
            if self._files.exists(path):
                found = self._header(self._files.open(path))
                if found is not None and found.log_id == log_id:
                    return LogKey(found.stream_id, found.partition)
        return None

    def _bases(self, log_id: LogId) -> list[tuple[int, int]]:
        """Base offset and generation of each segment; of several generations the newest, which is complete."""
        directory = log_directory(log_id)
        if not self._files.exists(directory):
            return []
        stems = (name.removesuffix(".log") for name in self._files.names(directory) if name.endswith(".log"))
        return sorted(dict(sorted(place for stem in stems if (place := parse_segment_name(stem)))).items())

    # -- contradictions -----------------------------------------------------------------------------

    def keep(self, log_id: LogId) -> None:
        """Mark the directory of a log without a known owner, so that no later start takes it for a deleted log's."""
        directory = log_directory(log_id)
        for base, generation in self._bases(log_id):
            file = self._files.open(f"{directory}/{segment_name(base, generation)}.log", read_only=True)
            for _, found, _ in walk_batches(file, 0, file.size(), base):
                self._note_epoch(found)
        self._files.open(f"{directory}/{_UNCLAIMED}", create=True)
        self._files.sync_directory(directory)
        self._find(f"{directory}: the log's stream is unknown; its records are left in place")

    def _set_aside(self, path: str) -> None:
        kept = f"{path}.{_UNCLAIMED}"
        while self._files.exists(kept):
            kept += "-"
        self._files.rename(path, kept)
        self._files.sync_directory(path.rpartition("/")[0])
        self._find(f"{path} does not follow the segment before it; it is kept as {kept}")
