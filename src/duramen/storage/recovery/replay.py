"""Applies the frames of the write-ahead log, in order, to the logs of the checkpoint. Blocking."""

from duramen.base.ids import LogId
from duramen.base.leader_epochs import Takeover
from duramen.codec.batch import header
from duramen.storage.log.log import Log, LogConfig
from duramen.storage.log.producers import ANY_ID, ProducerTable
from duramen.storage.log.transactions import TransactionTable, enter
from duramen.storage.recovery.logs import LogsFound
from duramen.storage.recovery.plan import RecoveryVerdict
from duramen.storage.recovery.progress import RecoveryProgress
from duramen.storage.recovery.wal_files import FoundFile
from duramen.storage.segment.segment import LARGEST_SEGMENT_BYTES, Segment, segment_name
from duramen.storage.truncation.cuts import TruncatedLog, apply_cut, cut_files
from duramen.storage.wal.frames import Bad, Frame, FrameType, position, scan
from duramen.storage.wal.records import (
    LogChange,
    decode_change,
    decode_created,
    decode_forgotten,
    decode_takeover,
    decode_truncate,
)

__all__ = ["Replay"]


class Replay:
    """Replays the write-ahead log once.

    `replayed_bytes` counts the payloads of frames; `os_starts` are the starts of logs with durability=os, by log.
    """

    def __init__(self, found: LogsFound, salt: int, progress: RecoveryProgress) -> None:
        self.replayed_bytes = 0
        self.os_starts: dict[Log, int] = {}
        self._found = found
        self._salt = salt
        self._progress = progress
        self._headless: set[LogId] = set()
        self._was_cut: set[Log] = set()
        self._gaps: dict[Log, set[int]] = {}  # the gaps of missing records, by their first offsets

    def run(self, wal: list[FoundFile], replay: int, verdict: RecoveryVerdict) -> None:
        """Apply the frames of these files from the WAL position `replay` to the end in the verdict."""
        starts = {file: min(max(replay - position(file.generation, 0), 0), file.scan.end) for file in wal}
        self._progress.begin("replaying the write-ahead log")
        self._progress.replay_bytes = sum(file.scan.end - start for file, start in starts.items())
        for found in wal:
            found.file.sync()  # needed after a kill: files are truncated and removed because of these frames
        for file, start in starts.items():
            if position(file.generation, 0) >= verdict.end:
                break
            before = self._progress.replayed_bytes - start
            for item in scan(file.file, file.generation, self._salt, start=start, end=file.scan.end):
                if isinstance(item, Bad):
                    continue
                at = position(item.generation, item.place)
                if replay <= at < verdict.end:
                    self._apply(item)
                    self._progress.replayed_bytes = before + item.end
            self._found.write()
        self._found.write()

    def _apply(self, frame: Frame) -> None:
        self.replayed_bytes += len(frame.payload)
        log_id = LogId(frame.log_id)
        self._found.next_log_id = max(self._found.next_log_id, log_id + 1)
        if frame.type is FrameType.LOG_CREATED:
            self._create(log_id, frame.payload)
            return
        log = self._found.logs.get(log_id)
        if frame.type is FrameType.FILE:
            return
        if log is None:
            self._leave_out(log_id, frame)
            return
        log.version += 1
        self._apply_to(log, frame)

    def _create(self, log_id: LogId, payload: memoryview) -> None:
        if log_id in self._found.logs:
            return
        key, durability = decode_created(payload)
        log = self._found.rescue.log(log_id, key) if self._found.believing and not self._found.gaps_only else None
        if log is None:
            log = Log(log_id, key, LogConfig(durability=durability), self._found.handles)
            log.written = True
            if durability == "memory":
                log.producers.forget_up_to(ANY_ID)  # the last writer is unknown
        self._found.logs[log_id] = log
        self._found.note_unsynced(log)

    def _leave_out(self, log_id: LogId, frame: Frame) -> None:
        if frame.type is FrameType.TAKEOVER:
            self._found.lost_epoch = max(self._found.lost_epoch, decode_takeover(frame.payload)[0])
        if frame.type is FrameType.APPEND:
            self._found.lost_epoch = max(self._found.lost_epoch, header(frame.payload).leader_epoch)
            # Without damage, the log was deleted during the checkpoint, which does not have it.
            if self._found.believing and log_id not in self._headless:
                self._headless.add(log_id)
                self._found.find(
                    f"the write-ahead log holds batches of log {log_id}, whose beginning is lost; they are skipped"
                )

    def _apply_to(self, log: Log, frame: Frame) -> None:
        match frame.type:
            case FrameType.APPEND:
                self._append(log, frame.payload)
            case FrameType.TAKEOVER:
                takeover = Takeover(*decode_takeover(frame.payload))
                if takeover.epoch > log.takeovers.latest_epoch:
                    log.takeovers.add(takeover)
            case FrameType.TRUNCATE:
                self._cut(log, decode_truncate(frame.payload)[0])
            case FrameType.LOG_DELETED:
                self._found.delete(log)
            case FrameType.CHECKPOINT_ENTRY:
                self._change(log, decode_change(frame.payload))
            case FrameType.PRODUCERS_FORGOTTEN:
                log.producers.forget_up_to(decode_forgotten(frame.payload))
            case FrameType.ROLL:
                if log.active.size:
                    log.roll()

    def _cut(self, log: Log, end_offset: int) -> None:
        self._found.write()
        if log in self._was_cut:
            # Its files have this truncation or a later one: a gap that reaches up to it comes from the later one.
            gaps = [first for first, last in log.damage if first in self._gaps.get(log, ()) and end_offset <= last + 1]
            end_offset = min([end_offset, *gaps])
        self._was_cut.add(log)
        if log in self.os_starts:
            self.os_starts[log] = min(self.os_starts[log], end_offset)
        if end_offset < log.end_offset:
            cut = cut_files(self._found.files, log, end_offset)
            self._found.forget(log.segments)
            apply_cut(log, cut)
            self._found.note_unsynced(log)
        elif log.durability == "os" and self._found.files.exists(log.directory):
            # For files that nothing else names, an interrupted truncation may have removed the names without a sync.
            self._found.files.sync_directory(log.directory)

    def _append(self, log: Log, payload: memoryview) -> None:
        batch = bytes(payload)
        found = header(batch)
        if found.base_offset < log.end_offset:
            if not self._found.believing:
                self._found.find(f"log {log.id}: a batch at offset {found.base_offset} is repeated; it is skipped")
            return
        if found.base_offset > log.end_offset and self._found.believing and self._found.gaps_only:
            self._found.fill(log, found.base_offset)
        if found.base_offset > log.end_offset:
            log.damage.append((log.end_offset, found.base_offset - 1))
            self._gaps.setdefault(log, set()).add(log.end_offset)
            log.end_offset = found.base_offset
        if found.leader_epoch > log.takeovers.latest_epoch:
            log.takeovers.add(Takeover(found.leader_epoch, -1, found.base_offset))  # its own frame is lost
        if not log.active.fits(len(batch), found.next_offset, LARGEST_SEGMENT_BYTES):
            log.roll()
        log.active.append(batch, found.base_offset, found.next_offset, found.max_timestamp)
        log.end_offset = log.synced_offset = found.next_offset
        enter(log, found, batch, found.base_offset, found.max_timestamp)
        self._found.appended(log, len(batch))

    def _change(self, log: Log, change: LogChange) -> None:
        if change.durability != log.durability:
            self._found.write()
            for segment in log.segments:
                segment.in_memory = False  # its file was copied for this change
            nothing = not any(segment.size for segment in log.segments)
            if log.durability == "memory" and nothing and change.end_offset < log.end_offset:
                self._begin_at(log, change.end_offset)
            log.set_durability(change.durability)
        if log.durability == "os":
            # Records before the new start may be only in its files: they are checked when those are read.
            self.os_starts[log] = change.start_offset
            return
        if change.start_offset > log.end_offset:
            log.end_offset = log.synced_offset = change.start_offset  # records lost in between had been deleted
            log.producers.forget_up_to(ANY_ID)
        in_memory = log.active.in_memory and log.active.base_offset < log.end_offset
        if change.start_offset == log.end_offset and (log.active.size or in_memory):
            self._found.write()
            log.roll()
        self._found.drop(log, change.start_offset)

    def _begin_at(self, log: Log, offset: int) -> None:
        """Restart a log from memory at `offset`: the checkpoint knew only its reserved offsets."""
        empty = Segment(f"{log.directory}/{segment_name(offset)}", offset)
        apply_cut(log, TruncatedLog([empty], offset, ProducerTable(), TransactionTable()))

    def name_gaps(self) -> None:
        """Report the offsets lost in the end: after the replay, because logs may have been truncated or deleted."""
        for log, starts in self._gaps.items():
            for first, last in () if log.deleted else log.damage:
                if first in starts and last >= log.start_offset:
                    self._found.find(f"log {log.id}: offsets {first} to {last} are lost to damage")
