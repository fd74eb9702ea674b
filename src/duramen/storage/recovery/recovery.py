"""Recovers a data directory: the newest checkpoint, then the WAL from there, frame by frame.

The truth is a log's segments up to its checkpointed position, then the WAL; segment bytes beyond that position are
truncated and rewritten. Logs with durability=os are the exception: their segments are read to the end. All of this is
blocking and happens before requests are served; everything that it keeps is synced when it returns.
"""

from collections.abc import Callable
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from duramen.base.ids import METADATA_STREAM_ID, LogId
from duramen.base.ports import File, FileSystem
from duramen.codec.crc import crc32c
from duramen.storage.checkpoint import NodeCheckpoint, checkpoint_numbers, read_checkpoint, write_checkpoint
from duramen.storage.directory import make_directories
from duramen.storage.log.log import Log
from duramen.storage.log.producers import ANY_ID
from duramen.storage.log.state import LogState
from duramen.storage.recovery.leftovers import clear_unknown, hold_places, remove_let_go
from duramen.storage.recovery.logs import LogsFound
from duramen.storage.recovery.plan import RecoveryVerdict, judge
from duramen.storage.recovery.progress import RecoveryProgress
from duramen.storage.recovery.replay import Replay
from duramen.storage.recovery.rescue import log_ids
from duramen.storage.recovery.trim import Trimming
from duramen.storage.recovery.unlogged import read_on
from duramen.storage.recovery.wal_files import FoundFile, scan_wal, wal_damage, wal_slots
from duramen.storage.segment.handles import Handles
from duramen.storage.wal.frames import Frame, FrameType, position, scan
from duramen.storage.wal.wal import WAL_DIRECTORY

__all__ = ["Recovered", "recover", "wal_salt"]

_TELLS_OF_A_LOG: Final = (FrameType.LOG_CREATED, FrameType.LOG_DELETED)


class Recovered(NamedTuple):
    """A node's recovered storage. `wal_files` are free: (slot, file, capacity)."""

    node_epoch: int
    next_log_id: int
    logs: dict[LogId, Log]
    wal_files: list[tuple[int, File, int]]
    wal_generation: int
    checkpoint_number: int
    replayed_bytes: int
    findings: list[str]  # messages for the operator
    checkpoint: NodeCheckpoint  # the newest one, at the start of the next WAL file
    damaged: bool = False  # whether damage may have cost synced records of any log
    metadata_damaged: bool = False  # whether it may have cost records of the metadata log


def wal_salt(directory_id: UUID) -> int:
    """The initial value of the CRCs of this directory's WAL frames."""
    return crc32c(directory_id.bytes)


def _lacks_records(log: Log) -> bool:
    """Whether records are known to be lost and still after the log's start."""
    return any(last >= log.start_offset for _, last in log.damage) or any(one.damage for one in log.segments)


def recover(
    files: FileSystem,
    directory_id: UUID,
    handles: Handles,
    report: Callable[[str], None],
    progress: RecoveryProgress | None = None,
) -> Recovered:
    """Recover the directory; `report` receives each finding. Raises OSError."""
    return _Recovery(files, directory_id, handles, report, progress or RecoveryProgress()).run()


class _Recovery:
    def __init__(
        self,
        files: FileSystem,
        directory_id: UUID,
        handles: Handles,
        report: Callable[[str], None],
        progress: RecoveryProgress,
    ) -> None:
        self._files = files
        self._progress = progress
        self._directory_id = directory_id
        self._salt = wal_salt(directory_id)
        self._handles = handles
        self._found = LogsFound(files, handles, report)
        self._replayed_bytes = 0
        self._damaged = self._metadata_damaged = False

    def run(self) -> Recovered:
        self._progress.begin("reading the checkpoint")
        make_directories(self._files)
        numbers = checkpoint_numbers(self._files)
        checkpoint = self._checkpoint(numbers)
        slots = wal_slots(self._files)
        generation = checkpoint.wal_generation if checkpoint is not None else 0
        if checkpoint is None or not checkpoint.clean:
            generation = max(generation, self._recover_logs(checkpoint, slots))
        # Kept until the cluster knows: damage at the end of a log leaves no gap.
        believing, logs = self._found.believing, self._found.logs.values()
        known = checkpoint is not None and checkpoint.damaged
        self._damaged = known or believing or any(map(_lacks_records, logs))
        known = checkpoint is not None and checkpoint.metadata_damaged
        metadata = [log for log in logs if log.key.stream_id == METADATA_STREAM_ID]
        self._metadata_damaged = known or believing or any(map(_lacks_records, metadata))
        epoch = max(
            checkpoint.node_epoch if checkpoint is not None else 0,
            *(log.takeovers.latest_epoch for log in self._found.logs.values()),
            self._found.lost_epoch,
            self._found.rescue.epoch,
            0,
        )
        number, written = self._write_checkpoints(numbers[0] if numbers else 0, epoch + 1, generation + 1)
        remove_let_go(self._found)
        return Recovered(
            epoch + 1,
            self._found.next_log_id,
            self._found.logs,
            [(slot, file, file.size()) for slot, file in slots],
            generation + 1,
            number,
            self._replayed_bytes,
            self._found.findings,
            written,
            self._damaged,
            self._metadata_damaged,
        )

    def _recover_logs(self, checkpoint: NodeCheckpoint | None, slots: list[tuple[int, File]]) -> int:
        """Recover the logs up to the end of the WAL; returns its newest generation, or 0."""
        replay = checkpoint.replay if checkpoint is not None else 0
        self._progress.begin("reading the write-ahead log")
        wal = scan_wal(slots, replay, self._salt)
        if checkpoint is None and wal:
            replay = position(wal[0].generation, 0)  # nothing shows the frames before it
        verdict = judge([file.scan for file in wal], replay)
        self._name_damage(wal, verdict, rescued=checkpoint is None)
        if checkpoint is None:
            self._found.believing = bool(slots or log_ids(self._files))
        else:
            self._found.believing = bool(verdict.damage) or (not wal and self._wal_expected(checkpoint))
        trimming = Trimming(self._found)
        trimming.trim()
        self._found.gaps_only = checkpoint is not None and bool(wal)
        if self._found.believing:
            self._believe(wal)
        replayed = Replay(self._found, self._salt, self._progress)
        replayed.run(wal, replay, verdict)
        if self._found.believing:
            for log in self._found.logs.values():
                log.producers.forget_up_to(ANY_ID)  # their record may be lost
                if log.durability == "sync" and self._found.gaps_only:
                    self._found.fill(log)
        read_on(self._found, replayed.os_starts, self._progress)
        clear_unknown(self._found)
        trimming.name_short()
        replayed.name_gaps()
        self._progress.begin("syncing segments")
        self._found.sync()
        hold_places(self._found)
        self._replayed_bytes = replayed.replayed_bytes
        return max((file.generation for file in wal), default=0)

    def _believe(self, wal: list[FoundFile]) -> None:
        """Trust segments for records that nothing else has.

        With a checkpoint, sound frames take precedence: a segment may have lost their records, or have more.
        """
        self._progress.begin("reading every segment", len(self._found.logs))
        told: set[int] = set()
        if self._found.gaps_only:
            frames = (item for file in wal for item in scan(file.file, file.generation, self._salt, end=file.scan.end))
            told = {frame.log_id for frame in frames if isinstance(frame, Frame) and frame.type in _TELLS_OF_A_LOG}
        else:
            for log in self._found.logs.values():
                self._found.rescue.read_on(log)
                self._found.note_unsynced(log)
                self._progress.logs_done += 1
        for log in self._found.rescue.logs(self._found.logs.values(), told):
            self._found.logs[log.id] = log
            self._found.note_unsynced(log)

    def _checkpoint(self, numbers: list[int]) -> NodeCheckpoint | None:
        for at, number in enumerate(numbers):
            checkpoint = read_checkpoint(self._files, number)
            if checkpoint is None:
                self._found.find(f"checkpoint {number} is damaged" + ("; the one before it is used" if not at else ""))
                continue
            self._found.next_log_id = checkpoint.next_log_id
            for raw in checkpoint.logs:
                log = Log.restore(msgspec.msgpack.decode(raw, type=LogState), self._handles)
                log.saved = (log.version, bytes(raw))
                self._found.logs[log.id] = log
            if at and checkpoint.clean:
                # The WAL has later frames: a clean stop followed by another start is not the end.
                checkpoint = msgspec.structs.replace(checkpoint, clean=False)
            return checkpoint
        if numbers or log_ids(self._files) or wal_slots(self._files):
            state = "sound" if numbers else "there"
            self._found.find(f"no checkpoint is {state}: every segment is read, and its batches are trusted")
        return None

    def _write_checkpoints(self, newest: int, epoch: int, generation: int) -> tuple[int, NodeCheckpoint]:
        checkpoint = NodeCheckpoint(
            self._directory_id.bytes,
            epoch,
            self._found.next_log_id,
            position(generation, 0),
            generation,
            clean=False,
            logs=[msgspec.Raw(self._entry(log)) for log in self._found.logs.values()],
            damaged=self._damaged,
            metadata_damaged=self._metadata_damaged,
        )
        # Both generations, because every WAL file is free for recycling from here on.
        for number in (newest + 1, newest + 2):
            write_checkpoint(self._files, number, checkpoint)
        return newest + 2, checkpoint

    def _entry(self, log: Log) -> bytes:
        """The checkpoint's entry of a log: the previous one if nothing has changed."""
        if log.saved is None or log.saved[0] != log.version or self._found.believing or log.durability != "sync":
            log.saved = (log.version, msgspec.msgpack.encode(log.state()))
        return log.saved[1]

    def _wal_expected(self, checkpoint: NodeCheckpoint) -> bool:
        """Whether frames must follow the checkpoint, so that their absence is a loss.

        A store writes a checkpoint when its first WAL file is durable: one at the very start of a file comes from a
        recovery, and nothing was written after it.
        """
        started, place = checkpoint.replay >> 32, checkpoint.replay & 0xFFFFFFFF
        if not place:
            return False
        self._found.find(
            f"no file in {WAL_DIRECTORY}/ has generation {started} of the write-ahead log, where the checkpoint ends:"
            " everything written after it is lost, except what the segments have"
        )
        return True

    def _name_damage(self, wal: list[FoundFile], verdict: RecoveryVerdict, *, rescued: bool) -> None:
        for path, generation, first, last in wal_damage(wal, verdict, rescued=rescued):
            self._found.find(
                f"damage in the write-ahead log: {path or f'a missing file (generation {generation})'} holds no sound"
                f" frame from byte {first} to {last if last >= 0 else 'its end'}; what it held is lost"
            )
