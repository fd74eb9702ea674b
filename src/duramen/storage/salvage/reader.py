"""Reads a damaged data directory: the sound batches of each log, wherever they are. Changes nothing.

As in recovery, segments up to their checkpointed positions come first, then the write-ahead log. If either is
incomplete, everything in the segments counts. In addition, sound frames after a torn tail are used, and frames that no
replay needs fill holes. Blocking.
"""

from collections.abc import Callable, Iterator
from typing import Final
from uuid import UUID

import msgspec

from duramen.base.ids import LogId
from duramen.base.leader_epochs import LeaderEpochCache, Takeover
from duramen.base.ports import File, FileSystem
from duramen.codec.batch import header
from duramen.storage.checkpoint import NodeCheckpoint, checkpoint_numbers, read_checkpoint
from duramen.storage.log.log import LogKey, log_directory
from duramen.storage.log.state import LogState
from duramen.storage.planning.salvage import OffsetRun, SalvageGaps
from duramen.storage.recovery.plan import RecoveryVerdict, judge
from duramen.storage.recovery.recovery import wal_salt
from duramen.storage.recovery.rescue import is_unclaimed, log_ids
from duramen.storage.recovery.wal_files import FoundFile, scan_wal, wal_damage, wal_slots
from duramen.storage.salvage.left import LeftLog, Leftovers, cut_left
from duramen.storage.salvage.selection import DamagedBytes, ExpectedBatches, sift
from duramen.storage.segment.index import read_header, sound_entries
from duramen.storage.segment.segment import parse_segment_name, segment_name
from duramen.storage.wal.frames import FRAME_HEADER_BYTES, Bad, Frame, FrameType, find_generation, position, scan
from duramen.storage.wal.records import decode_change, decode_created, decode_takeover, decode_truncate
from duramen.storage.wal.wal import FILE_PAYLOAD_BYTES, WAL_DIRECTORY, wal_path

__all__ = ["read_leftovers"]

_LARGEST: Final = (1 << 63) - 1


def read_leftovers(
    files: FileSystem,
    directory_id: UUID | None,
    find: Callable[[str], None] | None = None,
    advance: Callable[[int], None] | None = None,
) -> Leftovers:
    """Read the directory, whose id may be lost. `find` receives problems, `advance` the number of bytes read.

    Raises OSError only if a directory cannot be listed.
    """
    return _Reading(files, directory_id, find or _ignore, advance or _ignore).run()


def _ignore(_: object) -> None:
    return None


class _Ordered:
    """The leaders of a log's offsets according to the checkpoint, valid up to `end_offset`."""

    def __init__(self, takeovers: LeaderEpochCache, end_offset: int) -> None:
        self.end_offset = end_offset
        self._takeovers = takeovers

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of `offset`, -1 if unknown."""
        return self._takeovers.epoch_at(offset) if offset < self.end_offset else -1


class _Reading:
    def __init__(
        self,
        files: FileSystem,
        directory_id: UUID | None,
        find: Callable[[str], None],
        advance: Callable[[int], None],
    ) -> None:
        self._files = files
        self._report = find
        self._advance = advance
        self._left = Leftovers(directory_id)
        self._believing = False
        self._newest_epoch = _LARGEST
        self._sizes: dict[tuple[LogId, int, int], int] = {}  # of segments, in the checkpoint
        self._ordered: dict[LogId, _Ordered] = {}

    def _find(self, message: str) -> None:
        self._left.findings.append(message)
        self._report(message)

    def run(self) -> Leftovers:
        checkpoint = self._checkpoint()
        slots = wal_slots(self._files) if self._files.exists(WAL_DIRECTORY) else []
        self._left.wal_files, self._left.wal_bytes = len(slots), sum(file.size() for _, file in slots)
        wal: list[FoundFile] = []
        replay = checkpoint.replay if checkpoint is not None else 0
        directory_id = self._left.directory_id or self._id_from_wal(slots)
        self._left.directory_id = directory_id
        if directory_id is not None:
            wal = scan_wal(slots, 0, wal_salt(directory_id))
        if checkpoint is None and wal:
            replay = position(wal[0].generation, 0)
        self._judge(checkpoint, wal, replay)
        self._begin_logs(checkpoint)
        if directory_id is not None and checkpoint is not None and not checkpoint.clean:
            self._note_cuts(wal, replay, wal_salt(directory_id))
        for log in self._left.logs.values():
            self._read_segments(log)
        if directory_id is not None:
            self._apply_all(wal, replay, wal_salt(directory_id))
        for log in self._left.logs.values():
            if log.durability == "os" and not log.read_whole:
                self._read_segments(log)
            self._finish(log)
        return self._left

    # -- the checkpoint and the write-ahead log as wholes ---------------------------------------------

    def _checkpoint(self) -> NodeCheckpoint | None:
        numbers = checkpoint_numbers(self._files)
        for at, number in enumerate(numbers):
            checkpoint = self._sound_checkpoint(number)
            if checkpoint is None:
                self._find(f"checkpoint {number} is damaged" + ("; the one before it is used" if not at else ""))
                continue
            self._left.node_epoch = self._newest_epoch = checkpoint.node_epoch
            self._left.next_log_id = checkpoint.next_log_id
            self._left.directory_id = self._left.directory_id or UUID(bytes=checkpoint.directory_id)
            return msgspec.structs.replace(checkpoint, clean=checkpoint.clean and not at)
        self._find("no checkpoint is sound: every segment is read, and its batches are trusted")
        return None

    def _sound_checkpoint(self, number: int) -> NodeCheckpoint | None:
        try:
            return read_checkpoint(self._files, number)
        except (OSError, msgspec.MsgspecError):
            return None

    @staticmethod
    def _id_from_wal(slots: list[tuple[int, File]]) -> UUID | None:
        for _, file in slots:
            data = bytes(file.read(0, FRAME_HEADER_BYTES + FILE_PAYLOAD_BYTES))
            if len(data) == FRAME_HEADER_BYTES + FILE_PAYLOAD_BYTES:
                directory_id = UUID(bytes=data[FRAME_HEADER_BYTES:][:16])
                if find_generation(data, wal_salt(directory_id)) is not None:
                    return directory_id
        return None

    def _judge(self, checkpoint: NodeCheckpoint | None, wal: list[FoundFile], replay: int) -> None:
        needed = [file for file in wal if file.generation >= replay >> 32]
        self._left.wal_used_bytes = sum(file.scan.end for file in needed)
        if checkpoint is not None and checkpoint.clean:
            return
        verdict = judge([file.scan for file in wal], replay)
        self._name_damage(wal, verdict)
        if checkpoint is not None and not needed:
            self._find(
                f"no file in {WAL_DIRECTORY}/ has generation {replay >> 32} of the write-ahead log, where the"
                " checkpoint ends: everything written after it is lost, except what the segments have"
            )
        self._believing = checkpoint is None or bool(verdict.damage) or not needed
        self._left.whole = not self._believing

    def _name_damage(self, wal: list[FoundFile], verdict: RecoveryVerdict) -> None:
        for path, generation, first, last in wal_damage(wal, verdict):
            name = path or f"a missing file (generation {generation})"
            rest = last if last >= 0 else "its end"
            self._find(f"{WAL_DIRECTORY}: {name} has no sound frame from byte {first} to {rest}")

    # -- logs and segments ----------------------------------------------------------------------------

    def _begin_logs(self, checkpoint: NodeCheckpoint | None) -> None:
        for raw in checkpoint.logs if checkpoint is not None else ():
            state = msgspec.msgpack.decode(raw, type=LogState)
            log = self._add(LogId(state.id), LogKey(UUID(bytes=state.stream_id), state.partition), state.durability)
            log.start_offset, log.end_offset = state.start_offset, state.end_offset
            log.takeovers = {row[0]: Takeover(*row) for row in state.takeovers}
            self._ordered[log.id] = _Ordered(LeaderEpochCache(state.takeovers), state.end_offset)
            log.known_damage = list(state.damage)
            log.cleaned_offset, log.dirty_offset = state.cleaned_offset, state.dirty_offset
            log.superseded_offset = state.superseded_offset
            for segment in state.segments:
                self._sizes[log.id, segment.base_offset, segment.generation] = segment.size
        for log_id in log_ids(self._files):
            self._left.next_log_id = max(self._left.next_log_id, log_id + 1)
            if log_id not in self._left.logs and (self._believing or is_unclaimed(self._files, log_id)):
                self._add(log_id, self._key(log_id), "sync")

    def _note_cuts(self, wal: list[FoundFile], replay: int, salt: int) -> None:
        """Note truncations: segments may have later records already, which the checkpoint's takeovers do not cover."""
        for file in wal:
            for item in scan(file.file, file.generation, salt):
                if isinstance(item, Bad) or position(item.generation, item.place) < replay:
                    continue
                ordered = self._ordered.get(LogId(item.log_id))
                if item.type is FrameType.TRUNCATE and ordered is not None:
                    ordered.end_offset = min(ordered.end_offset, decode_truncate(item.payload)[0])

    def _add(self, log_id: LogId, key: LogKey | None, durability: str) -> LeftLog:
        log = self._left.logs[log_id] = LeftLog(log_id, key, durability)
        self._left.next_log_id = max(self._left.next_log_id, log_id + 1)
        return log

    def _key(self, log_id: LogId) -> LogKey | None:
        for place in self._places(log_id):
            found = read_header(self._index(log_id, *place))
            if found is not None and found.log_id == log_id:
                return LogKey(found.stream_id, found.partition)
        return None

    def _index(self, log_id: LogId, base: int, generation: int) -> bytes:
        path = f"{log_directory(log_id)}/{segment_name(base, generation)}.index"
        if not self._files.exists(path):
            return b""
        file = self._files.open(path, read_only=True)
        return bytes(file.read(0, file.size()))

    def _places(self, log_id: LogId) -> list[tuple[int, int]]:
        """Base offset and generation of every segment file, the newest generation of a base first."""
        names = self._files.names(log_directory(log_id)) if self._files.exists(log_directory(log_id)) else []
        places = [parse_segment_name(name.removesuffix(".log")) for name in names if name.endswith(".log")]
        return sorted((place for place in places if place is not None), key=lambda place: (place[0], -place[1]))

    def _read_segments(self, log: LeftLog) -> None:
        """Add the segments' batches, up to the checkpointed positions unless everything counts."""
        log.read_whole = self._believing or log.durability == "os" or is_unclaimed(self._files, log.id)
        places = self._places(log.id)
        if not log.read_whole:
            places = [place for place in places if (log.id, *place) in self._sizes]
        log.bases = [base for base, _ in places]
        for at, (base, generation) in enumerate(places):
            if base < log.history.end_offset:
                continue  # files that compaction has replaced: not a gap
            following = places[at + 1][0] if at + 1 < len(places) else _LARGEST
            if log.read_whole and generation:
                end_offset = _LARGEST
            else:
                end_offset = following if following < _LARGEST or log.read_whole else log.end_offset
            for run in self._runs(log, base, generation, end_offset):
                log.history.append(run)
            if generation:
                log.cleaned_offset = max(log.cleaned_offset, log.history.end_offset)

    def _missing(self, log: LeftLog, gaps: SalvageGaps) -> Iterator[tuple[str, int, int]]:
        """Segments whose files are missing, with their offsets, as far as these are lost."""
        known = sorted(place[1:] for place in self._sizes if place[0] == log.id)
        there = set(self._places(log.id))
        for at, (base, generation) in enumerate(known):
            following = known[at + 1][0] if at + 1 < len(known) else log.end_offset
            lost = any(low < following and base <= high for low, high in gaps.lost)
            if lost and (base, generation) not in there and self._sizes[log.id, base, generation]:
                yield f"{log_directory(log.id)}/{segment_name(base, generation)}.log", base, following - 1

    def _runs(self, log: LeftLog, base: int, generation: int, end_offset: int) -> Iterator[OffsetRun]:
        run: OffsetRun | None = None
        path = f"{log_directory(log.id)}/{segment_name(base, generation)}.log"
        file = self._files.open(path, read_only=True)
        size = file.size()
        if not log.read_whole:
            size = min(size, self._sizes[log.id, base, generation])
        cleaned_offset = _LARGEST if generation else log.cleaned_offset
        ordered = self._ordered.get(log.id)
        epoch_at = ordered.epoch_at if ordered is not None else None
        expected = ExpectedBatches(base, end_offset, self._newest_epoch, log.known_damage, cleaned_offset, epoch_at)
        found = sift(file, size, expected, sound_entries(self._index(log.id, base, generation)))
        self._advance(size)
        suspect = -1
        for item in found:
            if isinstance(item, DamagedBytes):
                self._find(f"{path}: bytes {item.start} to {item.end} are not a sound batch")
                suspect = base if run is None else run.next
                continue
            head, end = item.header, item.position + item.header.size
            if suspect >= 0:
                log.suspect.append((suspect, head.base_offset - 1))
                suspect = -1
            here = (item.position, head.base_offset, head.leader_epoch)
            if run is not None and (run.end, run.next, run.epoch) == here:
                run = run._replace(next=head.next_offset, end=end)
                continue
            if run is not None:
                yield run
            run = OffsetRun(head.base_offset, head.next_offset, head.leader_epoch, path, item.position, end)
        if run is not None:
            yield run
        if suspect >= 0 or (not log.read_whole and size < self._sizes[log.id, base, generation]):
            log.suspect.append((base if run is None else run.next, end_offset - 1))

    def _finish(self, log: LeftLog) -> None:
        log.end_offset = max(log.end_offset, log.history.end_offset)
        first = next((run.first for run in log.history), log.end_offset)
        if log.start_offset < 0:
            log.start_offset = first
        gaps = SalvageGaps(log.start_offset)
        for run in log.history:
            gaps.add(run.first, run.next)
        gaps.reach(log.end_offset)
        for path, low, high in self._missing(log, gaps):
            log.suspect.append((low, high))  # gaps there do not come from compaction
            self._find(f"{path} is missing")
        epochs = [run.epoch for run in log.history]
        self._left.node_epoch = max(self._left.node_epoch, *epochs, *log.takeovers, 0)

    # -- frames ---------------------------------------------------------------------------------------

    def _apply_all(self, wal: list[FoundFile], replay: int, salt: int) -> None:
        old: list[tuple[LeftLog, OffsetRun]] = []
        oldest = replay >> 32
        while any(file.generation == oldest - 1 for file in wal):
            oldest -= 1
        for file in wal:
            if file.generation < oldest:
                continue  # the truncation may be in the missing file in between
            path = wal_path(file.slot)
            for item in scan(file.file, file.generation, salt):
                if isinstance(item, Bad):
                    continue
                if position(item.generation, item.place) >= replay:
                    self._apply(item, path)
                else:
                    self._keep_old(item, path, old)
            self._advance(file.scan.end)
        for log, run in old:
            if max(log.start_offset, log.cleaned_offset) <= run.first and run.next <= log.end_offset:
                log.history.fill(run)

    def _keep_old(self, frame: Frame, path: str, old: list[tuple[LeftLog, OffsetRun]]) -> None:
        """Remember an earlier frame, unless a later one undoes it."""
        log = self._left.logs.get(LogId(frame.log_id))
        if log is None:
            return
        match frame.type:
            case FrameType.LOG_CREATED:
                log.key = log.key or decode_created(frame.payload)[0]
            case FrameType.APPEND:
                old.append((log, _run_of(frame, path)))
            case FrameType.TRUNCATE:
                end_offset = decode_truncate(frame.payload)[0]
                old[:] = [(of, run) for of, run in old if of is not log or run.next <= end_offset]
            case _:
                pass

    def _apply(self, frame: Frame, path: str) -> None:
        log_id = LogId(frame.log_id)
        if frame.type is FrameType.FILE:
            return
        if frame.type is FrameType.LOG_DELETED:
            self._left.logs.pop(log_id, None)
            return
        log = self._left.logs.get(log_id)
        if frame.type is FrameType.LOG_CREATED:
            key, durability = decode_created(frame.payload)
            if log is None:
                log = self._add(log_id, key, durability)
            log.key = log.key or key
            log.start_offset = max(log.start_offset, 0)
            return
        if log is None:
            if frame.type is not FrameType.APPEND:
                return
            log = self._add(log_id, None, "sync")
        self._apply_to(log, frame, path)

    def _apply_to(self, log: LeftLog, frame: Frame, path: str) -> None:
        match frame.type:
            case FrameType.APPEND:
                run = _run_of(frame, path)
                if run.first >= log.cleaned_offset:  # records removed by compaction stay removed
                    log.history.append(run)
                log.end_offset = max(log.end_offset, run.next)
            case FrameType.TAKEOVER:
                takeover = Takeover(*decode_takeover(frame.payload))
                log.takeovers.setdefault(takeover.epoch, takeover)
                log.end_offset = max(log.end_offset, takeover.first_offset)
            case FrameType.TRUNCATE:
                cut_left(self._files, log, decode_truncate(frame.payload)[0])
            case FrameType.CHECKPOINT_ENTRY:
                change = decode_change(frame.payload)
                log.durability = change.durability
                log.start_offset = max(log.start_offset, change.start_offset)
                log.end_offset = max(log.end_offset, change.start_offset)
            case _:
                pass


def _run_of(frame: Frame, path: str) -> OffsetRun:
    found = header(frame.payload)
    start = frame.place + FRAME_HEADER_BYTES
    return OffsetRun(found.base_offset, found.next_offset, found.leader_epoch, path, start, start + len(frame.payload))
