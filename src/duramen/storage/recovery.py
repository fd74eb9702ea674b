"""Bringing a data directory back: the newest checkpoint, then the WAL from there, frame by frame.

Truth is a log's segments up to its checkpointed position, then the WAL; bytes in a segment beyond that are cut
and written again. Logs with durability=os are the exception: for them the segment itself is read on. All of
this is blocking and happens before anything is served; what it keeps is synced when it returns.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from duramen.base.ids import LogId
from duramen.base.ports import File, FileSystem
from duramen.codec.batch import header
from duramen.codec.crc import crc32c
from duramen.storage.blocks import ANY_OFFSET
from duramen.storage.checking import Expected, SegmentCheck
from duramen.storage.checkpoint import Checkpoint, checkpoint_numbers, read_checkpoint, write_checkpoint
from duramen.storage.copier import plan_writes, take_over, write_segment
from duramen.storage.cutting import apply_cut, cut_files
from duramen.storage.damage import Cause, Damage
from duramen.storage.directory import make_directories
from duramen.storage.frames import Bad, Frame, FrameType, position, scan
from duramen.storage.handles import Handles
from duramen.storage.io import write_all
from duramen.storage.log import Log, LogConfig, LogState, log_directory
from duramen.storage.planning.recovery import Verdict, judge
from duramen.storage.progress import RecoveryProgress
from duramen.storage.reader import walk_batches
from duramen.storage.records import LogChange, decode_change, decode_created, decode_takeover, decode_truncate
from duramen.storage.rescue import Rescue, adopt, is_unclaimed, log_ids
from duramen.storage.rewriting import NEW_ENDING
from duramen.storage.segment import LARGEST_SEGMENT_BYTES, Segment, parse_segment_name
from duramen.storage.syncing import plan_sync, sync_segments, synced, write_index
from duramen.storage.takeovers import Takeover
from duramen.storage.wal import WAL_DIRECTORY, wal_path
from duramen.storage.walfiles import FoundFile, scan_wal, wal_slots

__all__ = ["Recovered", "recover", "wal_salt"]

_WRITE_BYTES: Final = 16 * 1024 * 1024
_TELLS_OF_A_LOG: Final = (FrameType.LOG_CREATED, FrameType.LOG_DELETED)


class Recovered(NamedTuple):
    """A node's storage as it was found. `wal_files` are free: (slot, file, capacity)."""

    node_epoch: int
    next_log_id: int
    logs: dict[LogId, Log]
    wal_files: list[tuple[int, File, int]]
    wal_generation: int
    checkpoint_number: int
    replayed_bytes: int
    findings: list[str]  # what an operator must hear of
    checkpoint: Checkpoint  # the newest, which stands at the beginning of the next file of the WAL


def wal_salt(directory_id: UUID) -> int:
    """What the CRCs of this directory's WAL frames begin with."""
    return crc32c(directory_id.bytes)


def recover(
    files: FileSystem,
    directory_id: UUID,
    handles: Handles,
    report: Callable[[str], None],
    progress: RecoveryProgress | None = None,
) -> Recovered:
    """Recover the directory; `report` is told each finding as it is made. Raises OSError."""
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
        self._report = report
        self._findings: list[str] = []
        self._logs: dict[LogId, Log] = {}
        self._touched: dict[Log, None] = {}
        self._unsynced: dict[Segment, Log] = {}
        self._waiting_bytes = 0
        self._replayed_bytes = 0
        self._next_log_id = 1
        self._believing = False  # whether segments are believed, because the checkpoint or the WAL is not whole
        self._gaps_only = False  # where they are believed: only for what the WAL has lost, or from the start
        self._rescue = Rescue(files, handles, self._find)
        self._headless: set[LogId] = set()
        self._lost_epoch = -1
        self._os_starts: dict[Log, int] = {}
        self._gaps: dict[Log, set[int]] = {}  # where records are missing that the WAL goes on behind
        self._short: list[tuple[Log, Segment, int, Expected]] = []
        self._let_go_files: list[str] = []
        self._let_go_directories: list[str] = []

    def _find(self, message: str) -> None:
        self._findings.append(message)
        self._report(message)

    def run(self) -> Recovered:
        self._progress.begin("reading the checkpoint")
        make_directories(self._files)
        numbers = checkpoint_numbers(self._files)
        checkpoint = self._checkpoint(numbers)
        slots = wal_slots(self._files)
        generation = checkpoint.wal_generation if checkpoint is not None else 0
        if checkpoint is None or not checkpoint.clean:
            generation = max(generation, self._recover_logs(checkpoint, slots))
        epoch = max(
            checkpoint.node_epoch if checkpoint is not None else 0,
            *(log.takeovers.latest_epoch for log in self._logs.values()),
            self._lost_epoch,
            self._rescue.epoch,
            0,
        )
        number, written = self._write_checkpoints(numbers[0] if numbers else 0, epoch + 1, generation + 1)
        self._remove()
        return Recovered(
            epoch + 1,
            self._next_log_id,
            self._logs,
            [(slot, file, file.size()) for slot, file in slots],
            generation + 1,
            number,
            self._replayed_bytes,
            self._findings,
            written,
        )

    def _recover_logs(self, checkpoint: Checkpoint | None, slots: list[tuple[int, File]]) -> int:
        """Bring the logs to where the WAL ends; returns its newest generation, or 0."""
        replay = checkpoint.replay if checkpoint is not None else 0
        self._progress.begin("reading the write-ahead log")
        wal = scan_wal(slots, replay, self._salt)
        if checkpoint is None and wal:
            replay = position(wal[0].generation, 0)  # nothing says what lay before it
        verdict = judge([file.scan for file in wal], replay)
        self._name_damage(wal, verdict, rescued=checkpoint is None)
        if checkpoint is None:
            self._believing = bool(slots or log_ids(self._files))
        else:
            self._believing = bool(verdict.damage) or (not wal and self._wal_expected(checkpoint))
        self._trim()
        self._gaps_only = checkpoint is not None and bool(wal)
        if self._believing:
            self._believe(wal)
        self._replay(wal, replay, verdict)
        if self._believing and self._gaps_only:
            for log in self._logs.values():
                if log.durability == "sync":
                    self._fill(log)
        self._clear_unknown()
        self._read_on()
        self._name_lost()
        self._sync()
        return max((file.generation for file in wal), default=0)

    def _believe(self, wal: list[FoundFile]) -> None:
        """Take what the segments say for true where nothing else says it.

        Beside a checkpoint the frames that are sound come first: a segment may have lost what they hold, or have more.
        """
        self._progress.begin("reading every segment", len(self._logs))
        told: set[int] = set()
        if self._gaps_only:
            frames = (item for file in wal for item in scan(file.file, file.generation, self._salt, end=file.scan.end))
            told = {frame.log_id for frame in frames if isinstance(frame, Frame) and frame.type in _TELLS_OF_A_LOG}
        else:
            for log in self._logs.values():
                self._rescue.read_on(log)
                self._note_found(log)
                self._progress.logs_done += 1
        for log in self._rescue.logs(self._logs.values(), told):
            self._logs[log.id] = log
            self._note_found(log)

    def _fill(self, log: Log, until: int | None = None) -> None:
        """Of a log that the write-ahead log has lost batches of: those that its files have where it ends."""
        self._write()
        self._rescue.fill(log, until)
        self._note_found(log)

    def _note_found(self, log: Log) -> None:
        """What was taken over from files was perhaps never synced."""
        self._unsynced.update({segment: log for segment in log.segments if segment.copied > segment.synced})

    # -- the checkpoint -----------------------------------------------------------------------------

    def _checkpoint(self, numbers: list[int]) -> Checkpoint | None:
        for at, number in enumerate(numbers):
            checkpoint = read_checkpoint(self._files, number)
            if checkpoint is None:
                self._find(f"checkpoint {number} is damaged" + ("; the one before it is used" if not at else ""))
                continue
            self._next_log_id = checkpoint.next_log_id
            for raw in checkpoint.logs:
                log = Log.restore(msgspec.msgpack.decode(raw, type=LogState), self._handles)
                log.saved = (log.version, bytes(raw))
                self._logs[log.id] = log
            if at and checkpoint.clean:
                # The WAL says what came after it: a clean stop followed by another start is not the end.
                checkpoint = msgspec.structs.replace(checkpoint, clean=False)
            return checkpoint
        if numbers or log_ids(self._files) or wal_slots(self._files):
            state = "sound" if numbers else "there"
            self._find(f"no checkpoint is {state}: every segment is read, and what its batches say is believed")
        return None

    def _write_checkpoints(self, newest: int, epoch: int, generation: int) -> tuple[int, Checkpoint]:
        checkpoint = Checkpoint(
            self._directory_id.bytes,
            epoch,
            self._next_log_id,
            position(generation, 0),
            generation,
            clean=False,
            logs=[msgspec.Raw(self._entry(log)) for log in self._logs.values()],
        )
        # Both generations, because every WAL file is free for recycling from here on.
        for number in (newest + 1, newest + 2):
            write_checkpoint(self._files, number, checkpoint)
        return newest + 2, checkpoint

    def _entry(self, log: Log) -> bytes:
        """The checkpoint's entry of a log: the one it had where nothing was found that changes it."""
        if log.saved is None or log.saved[0] != log.version or self._believing or log.durability != "sync":
            log.saved = (log.version, msgspec.msgpack.encode(log.state()))
        return log.saved[1]

    # -- the WAL ------------------------------------------------------------------------------------

    def _wal_expected(self, checkpoint: Checkpoint) -> bool:
        """Whether frames were written after the checkpoint where none are found.

        A store writes a checkpoint when its first file of the WAL is on disk: one that stands at the very beginning of
        a file is a recovery's, and nothing was written after it.
        """
        started, place = checkpoint.replay >> 32, checkpoint.replay & 0xFFFFFFFF
        if not place:
            return False
        self._find(
            f"no file in {WAL_DIRECTORY}/ has generation {started} of the write-ahead log, where the checkpoint ends:"
            " what was written after it is lost, but for what the segments hold"
        )
        return True

    def _name_damage(self, wal: list[FoundFile], verdict: Verdict, *, rescued: bool) -> None:
        names = {file.generation: wal_path(file.slot) for file in wal}
        for start, end in verdict.damage:
            if rescued and start >> 32 not in names:
                continue  # without a checkpoint nothing says that the file was still needed
            name = names.get(start >> 32, f"a missing file (generation {start >> 32})")
            self._find(
                f"damage in the write-ahead log: {name} holds no sound frame from byte {start & 0xFFFFFFFF}"
                f" to {end & 0xFFFFFFFF if end >> 32 == start >> 32 else 'its end'}; what it held is lost"
            )

    def _replay(self, wal: list[FoundFile], replay: int, verdict: Verdict) -> None:
        starts = {file: min(max(replay - position(file.generation, 0), 0), file.scan.end) for file in wal}
        self._progress.begin("replaying the write-ahead log")
        self._progress.replay_bytes = sum(file.scan.end - start for file, start in starts.items())
        for found in wal:
            found.file.sync()  # after the end of a process only: files are cut and removed because of what it says
        for file, start in starts.items():
            if position(file.generation, 0) >= verdict.end:
                break
            before = self._progress.replayed_bytes - start
            for item in scan(file.file, file.generation, self._salt, end=file.scan.end):
                if isinstance(item, Bad):
                    continue
                at = position(item.generation, item.place)
                if replay <= at < verdict.end:
                    self._apply(item)
                    self._progress.replayed_bytes = before + item.end
            self._write()
        self._write()

    def _apply(self, frame: Frame) -> None:
        self._replayed_bytes += len(frame.payload)
        log_id = LogId(frame.log_id)
        self._next_log_id = max(self._next_log_id, log_id + 1)
        if frame.type is FrameType.LOG_CREATED:
            self._create(log_id, frame.payload)
            return
        log = self._logs.get(log_id)
        if frame.type is FrameType.FILE:
            return
        if log is None:
            self._leave_out(log_id, frame)
            return
        log.version += 1
        self._apply_to(log, frame)

    def _create(self, log_id: LogId, payload: memoryview) -> None:
        if log_id in self._logs:
            return
        key, durability = decode_created(payload)
        log = self._rescue.log(log_id, key) if self._believing and not self._gaps_only else None
        if log is None:
            log = Log(log_id, key, LogConfig(durability=durability), self._handles)
            log.written = True
        self._logs[log_id] = log
        self._note_found(log)

    def _leave_out(self, log_id: LogId, frame: Frame) -> None:
        if frame.type is FrameType.TAKEOVER:
            self._lost_epoch = max(self._lost_epoch, decode_takeover(frame.payload)[0])
        if frame.type is FrameType.APPEND:
            self._lost_epoch = max(self._lost_epoch, header(frame.payload).leader_epoch)
            # Where nothing is damaged the log was deleted while the checkpoint was made that does not know it.
            if self._believing and log_id not in self._headless:
                self._headless.add(log_id)
                self._find(f"the write-ahead log holds batches of log {log_id}, whose beginning is lost; left out")

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
                self._delete(log)
            case FrameType.CHECKPOINT_ENTRY:
                self._change(log, decode_change(frame.payload))
            case FrameType.ROLL:
                if log.active.size:
                    log.roll()

    def _cut(self, log: Log, end_offset: int) -> None:
        self._write()
        if end_offset < log.end_offset:
            cut = cut_files(self._files, log, end_offset)
            self._forget(log.segments)
            apply_cut(log, cut)
            self._note_found(log)

    def _append(self, log: Log, payload: memoryview) -> None:
        batch = bytes(payload)
        found = header(batch)
        if found.base_offset < log.end_offset:
            if not self._believing:
                self._find(f"log {log.id}: a batch at offset {found.base_offset} comes again; left out")
            return
        if found.base_offset > log.end_offset and self._believing and self._gaps_only:
            self._fill(log, found.base_offset)
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
        if found.producer_id >= 0:
            log.producers.add(found, found.base_offset, found.max_timestamp)
        self._touched[log] = None
        self._waiting_bytes += len(batch)
        if self._waiting_bytes >= _WRITE_BYTES:
            self._write()

    def _forget(self, segments: Iterable[Segment]) -> None:
        for segment in segments:
            self._handles.forget(segment)
            self._unsynced.pop(segment, None)

    def _delete(self, log: Log) -> None:
        log.deleted = True
        self._touched.pop(log, None)
        self._forget(log.segments)
        self._let_go_directories.append(log.directory)
        del self._logs[log.id]

    def _change(self, log: Log, change: LogChange) -> None:
        if change.durability != log.durability:
            self._write()
            for segment in log.segments:
                segment.volatile = False  # what a recovery knows of a log that was in memory had been copied for this
            log.set_durability(change.durability)
        if log.durability == "os":
            # What lies before the new start may be in its files only: looked at when they are read on.
            self._os_starts[log] = change.start_offset
            return
        if change.start_offset > log.end_offset:
            log.end_offset = log.synced_offset = change.start_offset  # what is lost in between had been let go
        in_memory = log.active.volatile and log.active.base_offset < log.end_offset
        if change.start_offset == log.end_offset and (log.active.size or in_memory):
            self._write()
            log.roll()
        self._drop(log, change.start_offset)

    def _drop(self, log: Log, start_offset: int) -> None:
        dropped = log.drop_before(start_offset)
        self._forget(dropped)
        self._let_go_files += (segment.path + ending for segment in dropped for ending in (".log", ".index"))

    # -- segments -----------------------------------------------------------------------------------

    def _trim(self) -> None:
        """Cut what lies in segments beyond the checkpointed positions, unless it is all the evidence there is."""
        for log in self._logs.values():
            if log.durability != "os":
                self._trim_segment(log)

    def _clear_unknown(self) -> None:
        """Remove files that no log knows: of logs deleted, and of segments that the WAL says nothing of.

        Where the WAL or the checkpoint may have lost what it said of them, they are kept.
        """
        for log_id in log_ids(self._files):
            self._next_log_id = max(self._next_log_id, log_id + 1)
            if log_id in self._logs:
                continue
            if self._believing:
                self._rescue.keep(log_id)
            elif not is_unclaimed(self._files, log_id):
                self._let_go_directories.append(log_directory(log_id))
        for log in self._logs.values():
            if self._believing or not self._files.exists(log.directory):
                continue
            known = {segment.path.rpartition("/")[2] for segment in log.segments if segment.size}
            for name in self._files.names(log.directory):
                stem, _, ending = name.rpartition(".")
                place = parse_segment_name(stem)
                unknown = ending in ("log", "index") and place is not None and stem not in known
                if (unknown and place is not None and _is_nobodys(log, *place)) or name.endswith(NEW_ENDING):
                    self._let_go_files.append(f"{log.directory}/{name}")

    def _remove(self) -> None:
        """Remove what was let go: only now nothing else needs it, whatever a loss of power does to the WAL's tail."""
        used = {segment.path for log in self._logs.values() for segment in log.segments if segment.size}
        for path in self._let_go_files:
            if path.rpartition(".")[0] not in used:  # what was cut off may have been written again
                self._files.unlink(path)
        for directory in self._let_go_directories:
            self._files.remove_directory(directory)

    def _trim_segment(self, log: Log) -> None:
        segment = log.active
        if not segment.size:
            return
        path = segment.path + ".log"
        actual = 0
        if self._files.exists(path):
            file = self._files.open(path)
            actual = file.size()
            if actual > segment.size and not self._believing:
                file.truncate(segment.size)
                self._unsynced[segment] = log
        if actual < segment.size:
            self._short.append((log, segment, actual, Expected(segment.size, segment.base_offset, log.end_offset)))

    def _name_lost(self) -> None:
        # Only now: the WAL may say that the log was cut or deleted, or the segment. Where a log was cut more than once,
        # its files stand at the last cut already, and lack what comes between the earlier ones.
        for log, segment, actual, expected in self._short:
            if segment in log.segments and not log.deleted:
                segment.on_damage = self._handles.quarantine.found
                segment.add_damage(self._look_into_short(segment, expected))
                self._find(
                    f"{segment.path}.log has {actual} bytes where {expected.size} were synced: the rest is damaged"
                )
        for log, starts in self._gaps.items():
            for first, last in () if log.deleted else log.damage:
                if first in starts and last >= log.start_offset:
                    self._find(f"log {log.id}: offsets {first} to {last} are lost to damage")

    def _look_into_short(self, segment: Segment, expected: Expected) -> list[Damage]:
        path = segment.path + ".log"
        if not self._files.exists(path):
            return [Damage(0, expected.size, expected.base_offset, expected.end_offset - 1, Cause.MISSING_FILE)]
        check = SegmentCheck(self._files.open(path, read_only=True), expected._replace(gaps_below=ANY_OFFSET))
        while check.step(_WRITE_BYTES):
            pass
        return check.damage

    def _write(self) -> None:
        for log in self._touched:
            for write in plan_writes(log):
                take_over(self._handles, write_segment(self._files, write))
                self._unsynced[write.segment] = log
        self._touched.clear()
        self._waiting_bytes = 0

    def _read_on(self) -> None:
        """Logs with durability=os: keep whole sound batches that lie beyond what the checkpoint knows."""
        self._progress.begin("reading on the segments of durability=os", len(self._logs))
        for log in self._logs.values():
            self._progress.logs_done += 1
            if log.durability == "os":
                start_offset = self._os_starts.get(log, 0)
                while self._read_on_segment(log, start_offset):
                    log.roll()
                if log.end_offset == start_offset and log.active.size:
                    log.roll()  # all of it was let go, and its file may be gone
                self._drop(log, start_offset)
                self._give_up_others(log)
                self._unsynced[log.active] = log
                self._note_found(log)

    def _give_up_others(self, log: Log) -> None:
        """What a loss of power left behind the log's new end, or before its start, never becomes a part of it again."""
        self._lost_epoch = max(self._lost_epoch, log.takeovers.latest_epoch)
        log.takeovers.cut(log.end_offset + 1)
        if self._believing or not self._files.exists(log.directory):
            return
        known = {segment.path.rpartition("/")[2] for segment in log.segments}
        for name in self._files.names(log.directory):
            stem, _, ending = name.rpartition(".")
            if ending in ("log", "index") and parse_segment_name(stem) is not None and stem not in known:
                self._let_go_files.append(f"{log.directory}/{name}")

    def _read_on_segment(self, log: Log, start_offset: int) -> bool:
        """Read the active segment's file on; says whether another segment follows."""
        segment = log.active
        path = segment.path + ".log"
        if self._files.exists(path):
            file = self._files.open(path)
            size, known = file.size(), segment.size
            for _, found, whole in walk_batches(file, segment.size, size, log.end_offset):
                epoch = log.takeovers.epoch_at(found.base_offset)
                if found.base_offset != log.end_offset or found.leader_epoch != epoch:
                    break
                adopt(log, found, whole)
            self._write_again(file, known, segment.size)
            if segment.size < size:
                file.truncate(segment.size)
                file.sync()  # also where nothing is left that would be synced later
        following = f"{log.directory}/{log.end_offset:020d}.log"
        if segment.size > 0 and segment.base_offset < log.end_offset and self._files.exists(following):
            return True  # also where it was let go: its batches say what producers have written
        if log.end_offset <= start_offset:
            # Retention had let these files go already.
            log.end_offset = log.synced_offset = start_offset
            return segment.base_offset < start_offset
        return False

    def _write_again(self, file: File, start: int, end: int) -> None:
        """A sync of these bytes may have failed, and the system call them clean since: the next writes them all."""
        for at in range(start, end, _WRITE_BYTES):
            write_all(file, [file.read(at, min(_WRITE_BYTES, end - at))], at)

    def _sync(self) -> None:
        self._progress.begin("syncing segments")
        for log in self._logs.values():
            for segment in log.segments:
                if segment.closed and segment.index is not None and segment.index.written < segment.index.entries:
                    self._unsynced[segment] = log  # closed by what was replayed: its index has an entry more
        syncs = [plan_sync(log, segment) for segment, log in self._unsynced.items() if segment.size]
        for sync in syncs:
            write_index(self._files, sync)
        failures = sync_segments(self._files, syncs)
        if failures:
            raise failures[0][1]
        for sync in syncs:
            synced(sync)


def _is_nobodys(log: Log, base_offset: int, generation: int) -> bool:
    """Whether a segment that is not among the log's can be nothing that it still needs.

    Of durability=os what no checkpoint knows is perhaps the newest, but not what compaction wrote or what was let go.
    """
    return log.durability != "os" or generation > 0 or base_offset < log.segments[0].base_offset
