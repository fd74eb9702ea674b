"""The salvaged logs of a data directory: the sound batches of each, and their places."""

from collections.abc import Iterator
from uuid import UUID

from duramen.base.ids import METADATA_LOG_ID, METADATA_STREAM_ID, LogId
from duramen.base.leader_epochs import Takeover
from duramen.base.ports import FileSystem
from duramen.codec.batch import CRC_START, HEADER_BYTES, Header, header
from duramen.codec.crc import crc32c
from duramen.storage.log.log import LogKey
from duramen.storage.planning.salvage import OffsetRun, SalvagedHistory
from duramen.storage.salvage.selection import FileWindow

__all__ = ["LeftLog", "Leftovers", "batches_of", "cut_left"]


class LeftLog:
    """The remains of one log. Offsets below `end_offset` that are in no run are lost; `key` is None if it is lost."""

    def __init__(self, log_id: LogId, key: LogKey | None, durability: str) -> None:
        self.id = log_id
        self.key = LogKey(METADATA_STREAM_ID, 0) if key is None and log_id == METADATA_LOG_ID else key
        self.durability = durability
        self.start_offset = -1  # unknown: that of the first batch
        self.end_offset = 0
        self.cut_from = 0  # the end before a requested truncation
        self.history = SalvagedHistory()
        self.takeovers: dict[int, Takeover] = {}
        self.known_damage: list[tuple[int, int]] = []  # ranges that the node knew to be lost, by first and last offset
        self.bases: list[int] = []  # the base offsets of its segments
        self.cleaned_offset = 0  # below it, compaction has left gaps
        self.dirty_offset = 0
        self.superseded_offset = 0
        self.suspect: list[tuple[int, int]] = []  # ranges with damage: gaps in them do not come from compaction
        self.read_whole = False  # whether all batches in its segments count

    @property
    def size_bytes(self) -> int:
        """Bytes of all its runs."""
        return sum(run.end - run.start for run in self.history)


class Leftovers:
    """All logs, by id. `whole`: no batch or log can be missing without a trace.

    It is false if the checkpoint or the write-ahead log is incomplete. `findings` are for the operator.
    """

    def __init__(self, directory_id: UUID | None) -> None:
        self.directory_id = directory_id
        self.logs: dict[LogId, LeftLog] = {}
        self.node_epoch = 0
        self.next_log_id = 1
        self.whole = True
        self.wal_files = 0
        self.wal_bytes = 0
        self.wal_used_bytes = 0  # bytes that a start would have to read
        self.findings: list[str] = []

    @property
    def size_bytes(self) -> int:
        """Bytes of all runs."""
        return sum(log.size_bytes for log in self.logs.values())


def batches_of(files: FileSystem, log: LeftLog) -> Iterator[tuple[Header, memoryview]]:
    """The remaining batches of a log, in order, from its start on; the bytes are valid until the next batch."""
    for run in log.history:
        for found, whole in _batches_of_run(files, run):
            if found.next_offset > log.start_offset:
                yield found, whole


def _batches_of_run(files: FileSystem, run: OffsetRun) -> Iterator[tuple[Header, memoryview]]:
    window = FileWindow(files.open(run.path, read_only=True), run.end)
    at = run.start
    while at < run.end:
        data = window.view(at, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            return
        found = header(data)
        whole = window.view(at, found.size)
        # It was sound a moment ago; a failing disk may return other bytes now.
        if found.size < HEADER_BYTES or len(whole) < found.size or crc32c(whole[CRC_START:]) != found.crc:
            return
        if found.base_offset >= run.first and found.next_offset <= run.next:
            yield found, whole
        at += found.size


def cut_left(files: FileSystem, log: LeftLog, end_offset: int) -> None:
    """Truncate the remains of a log to `end_offset`; a batch that reaches beyond is removed as a whole."""

    def boundary(run: OffsetRun, offset: int) -> int:
        end = run.first
        for found, _ in _batches_of_run(files, run):
            if found.next_offset > offset:
                break
            end = found.next_offset
        return end

    log.end_offset = min(log.end_offset, log.history.cut(end_offset, boundary))
    log.start_offset = min(log.start_offset, log.end_offset)
    log.cleaned_offset = min(log.cleaned_offset, log.end_offset)
    log.dirty_offset = min(log.dirty_offset, log.end_offset)
    log.superseded_offset = min(log.superseded_offset, log.end_offset)
    log.takeovers = {epoch: row for epoch, row in log.takeovers.items() if row.first_offset < end_offset}
    log.known_damage = [(first, min(last, end_offset - 1)) for first, last in log.known_damage if first < end_offset]
