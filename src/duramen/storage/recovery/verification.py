"""Verifies a data directory completely and reports its damage. Blocking; it only reads.

Damage means that recovery could not use the data: segments up to the checkpointed positions, then the write-ahead log.
Segment bytes beyond them are not used, and a torn tail of the write-ahead log is not damage.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple
from uuid import UUID

import msgspec

from duramen.base.leader_epochs import LeaderEpochCache
from duramen.base.ports import FileSystem
from duramen.storage.checkpoint import NodeCheckpoint, checkpoint_name, checkpoint_numbers, read_checkpoint
from duramen.storage.log.log import log_directory
from duramen.storage.log.state import LogState
from duramen.storage.recovery.plan import RecoveryVerdict, judge
from duramen.storage.recovery.recovery import wal_salt
from duramen.storage.recovery.rescue import log_ids
from duramen.storage.recovery.wal_files import FoundFile, scan_wal, wal_damage, wal_slots
from duramen.storage.segment.blocks import ANY_OFFSET
from duramen.storage.segment.checks import ExpectedSegment, SegmentCheck, read_index
from duramen.storage.segment.damage import Damage, DamageCause
from duramen.storage.segment.index import BLOCK_SHIFT, IndexEntry, SegmentIndex, closed_entries
from duramen.storage.segment.segment import parse_segment_name, segment_name
from duramen.storage.wal.frames import Bad, Frame, FrameType, position, scan
from duramen.storage.wal.records import decode_change, decode_truncate
from duramen.storage.wal.wal import WAL_DIRECTORY

__all__ = ["DamageFinding", "Verified", "verify", "verify_segment"]

_STEP_BYTES: Final = 1024 * 1024


class DamageFinding(NamedTuple):
    """Damage: its file, bytes (`start` up to `end`) and offsets; -1 if there are none."""

    file: str
    cause: str
    words: str
    start: int = -1
    end: int = -1
    first_offset: int = -1
    last_offset: int = -1

    def __str__(self) -> str:
        return f"{self.file}: {self.words}"


class Verified(NamedTuple):
    """The checked and the damaged data."""

    logs: int
    segments: int
    checked_bytes: int
    findings: list[DamageFinding]


class _Later(NamedTuple):
    """Changes of logs in the write-ahead log after the checkpoint: deleted, started later, truncated."""

    deleted: set[int]
    starts: dict[int, int]
    ends: dict[int, int]


class _Place(NamedTuple):
    """A segment to check. `tail` is the checkpoint's state of the last block; `known`: there is a checkpoint."""

    path: str
    log_id: int
    expected: ExpectedSegment
    tail: SegmentIndex | None
    known: bool = True


def verify(
    files: FileSystem,
    directory_id: UUID | None,
    *,
    expect: Callable[[int], None],
    advance: Callable[[int], None],
    only: str = "",
) -> Verified:
    """Verify a directory, or only the segment file `only`.

    `expect` gets the number of bytes to check, `advance` the number of bytes checked since. Raises OSError.
    """
    return _Verification(files, directory_id, expect, advance, only).run()


def verify_segment(
    files: FileSystem, path: str, *, expect: Callable[[int], None], advance: Callable[[int], None]
) -> Verified:
    """Verify the segment `path` (without its suffix) without other knowledge. Raises OSError."""
    verification = _Verification(files, None, expect, advance, "")
    base, generation = parse_segment_name(path.rpartition("/")[2]) or (0, 0)
    size = files.open(path + ".log", read_only=True).size()
    expect(size)
    gaps_below = ANY_OFFSET if generation else 0
    verification.look(_Place(path, -1, ExpectedSegment(size, base, gaps_below=gaps_below), None, known=False))
    return Verified(1, 1, size, verification.findings)


class _Verification:
    def __init__(
        self,
        files: FileSystem,
        directory_id: UUID | None,
        expect: Callable[[int], None],
        advance: Callable[[int], None],
        only: str,
    ) -> None:
        self.findings: list[DamageFinding] = []
        self._files = files
        self._directory_id = directory_id
        self._expect = expect
        self._advance = advance
        self._only = only

    def run(self) -> Verified:
        checkpoint, newest = self._checkpoint()
        later = self._wal(checkpoint, clean=newest and checkpoint is not None and checkpoint.clean)
        states = [msgspec.msgpack.decode(raw, type=LogState) for raw in checkpoint.logs] if checkpoint else []
        if checkpoint is not None:
            places = [place for state in states for place in self._places(state, later)]
        else:
            places = list(self._unknown_places())
        if self._only:
            places = [place for place in places if place.path + ".log" == self._only]
            self.findings = []
        self._expect(sum(place.expected.size for place in places))
        for place in places:
            self.look(place)
        logs = len({place.log_id for place in places})
        return Verified(logs, len(places), sum(place.expected.size for place in places), self.findings)

    # -- checkpoint and write-ahead log -------------------------------------------------------------

    def _checkpoint(self) -> tuple[NodeCheckpoint | None, bool]:
        """The newest sound checkpoint, and whether it is the newest one."""
        best: NodeCheckpoint | None = None
        newest = True
        for number in checkpoint_numbers(self._files):
            try:
                found = read_checkpoint(self._files, number)
            except (OSError, msgspec.MsgspecError):
                found = None
            if found is None:
                newest = newest and best is not None
                name = checkpoint_name(number)
                self.findings.append(
                    DamageFinding(name, "checkpoint", "the checkpoint is damaged; a start uses the other")
                )
                continue
            if best is None:
                best = found
            self._check_takeovers(checkpoint_name(number), found)
        if best is None and log_ids(self._files):
            words = "no checkpoint is sound: a start reads every segment and trusts its batches"
            self.findings.append(DamageFinding("checkpoint", "checkpoint", words))
        return best, newest

    def _check_takeovers(self, name: str, checkpoint: NodeCheckpoint) -> None:
        for raw in checkpoint.logs:
            state = msgspec.msgpack.decode(raw, type=LogState)
            rows = state.takeovers
            for (epoch, _, first), (next_epoch, _, next_first) in pairwise(rows):
                if next_epoch <= epoch or next_first < first:
                    words = f"the takeovers of log {state.id} go back from epoch {epoch} to {next_epoch}"
                    self.findings.append(DamageFinding(name, "takeovers", words))

    def _wal(self, checkpoint: NodeCheckpoint | None, *, clean: bool) -> _Later:
        later = _Later(set(), {}, {})
        if clean or self._directory_id is None or not self._files.exists(WAL_DIRECTORY):
            return later
        salt = wal_salt(self._directory_id)
        slots = wal_slots(self._files)
        replay = checkpoint.replay if checkpoint is not None else 0
        wal = scan_wal(slots, replay, salt)
        if checkpoint is None and wal:
            replay = position(wal[0].generation, 0)
        if checkpoint is not None and not wal and (slots or checkpoint.logs):
            words = f"no file has generation {replay >> 32}, where the checkpoint ends: everything after it is lost"
            self.findings.append(DamageFinding(WAL_DIRECTORY, "wal-missing", words))
        verdict = judge([file.scan for file in wal], replay)
        self._name_wal_damage(wal, verdict, rescued=checkpoint is None)
        for file in wal:
            for item in scan(file.file, file.generation, salt):
                if not isinstance(item, Bad) and replay <= position(item.generation, item.place) < verdict.end:
                    _take_in(later, item)
        return later

    def _name_wal_damage(self, wal: list[FoundFile], verdict: RecoveryVerdict, *, rescued: bool) -> None:
        for path, generation, first, last in wal_damage(wal, verdict, rescued=rescued):
            named = path or f"{WAL_DIRECTORY}/ (generation {generation}, which is missing)"
            rest = f"to {last}" if last >= 0 else "to its end"
            words = f"no sound frame from byte {first} {rest}, although later frames prove that it was synced"
            self.findings.append(DamageFinding(named, "wal-frame", words, first, last))

    # -- segments -----------------------------------------------------------------------------------

    def _places(self, state: LogState, later: _Later) -> Iterator[_Place]:
        if state.id in later.deleted:
            return
        start = max(state.start_offset, later.starts.get(state.id, 0))
        takeovers = LeaderEpochCache(state.takeovers)
        ends = [*(segment.base_offset for segment in state.segments[1:]), state.end_offset]
        last = len(state.segments) - 1
        for at, (segment, end) in enumerate(zip(state.segments, ends, strict=True)):
            if end <= start or end > later.ends.get(state.id, end):
                continue  # deleted or truncated since
            path = f"{log_directory(state.id)}/{segment_name(segment.base_offset, segment.generation)}"
            expected = ExpectedSegment(
                segment.size, segment.base_offset, end, state.cleaned_offset, state.damage, takeovers.epoch_at
            )
            tail = None
            if at == last and state.durability != "memory":
                entry = IndexEntry(state.tail.position, state.tail.offset, state.tail.max_timestamp)
                tail = SegmentIndex(segment.size >> BLOCK_SHIFT, entry, state.tail.crc)
            yield _Place(path, state.id, expected, tail)

    def _unknown_places(self) -> Iterator[_Place]:
        for log_id in log_ids(self._files):
            for name in self._files.names(log_directory(log_id)):
                place = parse_segment_name(name.removesuffix(".log")) if name.endswith(".log") else None
                if place is not None:
                    path = f"{log_directory(log_id)}/{name.removesuffix('.log')}"
                    size = self._files.open(path + ".log", read_only=True).size()
                    yield _Place(
                        path, log_id, ExpectedSegment(size, place[0], gaps_below=ANY_OFFSET), None, known=False
                    )

    def look(self, place: _Place) -> None:
        """Check one segment and its index."""
        expected = place.expected
        try:
            file = self._files.open(place.path + ".log", read_only=True)
        except FileNotFoundError:
            last = expected.end_offset - 1
            lost = Damage(0, expected.size, expected.base_offset, last, DamageCause.MISSING_FILE)
            if expected.size:
                self._name(place, lost)
            self._advance(expected.size)
            return
        check = SegmentCheck(file, expected, self._index(place), steady=True)
        more = True
        while more:
            before = check.position
            more = check.step(_STEP_BYTES)
            self._advance(check.position - before)
        for damage in check.damage:
            self._name(place, damage)

    def _name(self, place: _Place, damage: Damage) -> None:
        self.findings.append(
            DamageFinding(place.path + ".log", damage.cause.id, str(damage), damage.start, damage.end,
                    damage.first_offset, damage.last_offset)
        )  # fmt: skip

    def _index(self, place: _Place) -> SegmentIndex | None:
        tail, size = place.tail, place.expected.size
        entries = closed_entries(size) if tail is None else tail.first
        if not entries or not size:
            return tail
        base = place.expected.base_offset
        index = read_index(self._files, place.path, base, entries, entries if tail is not None else entries - 1)
        if index is None or (tail is None and index.last().position != size):
            if place.known:
                words = "the index is damaged or missing: it is rebuilt from its segment, no record is lost"
                self.findings.append(DamageFinding(place.path + ".index", "index", words))
            return None  # the last segment's has no end, and without a checkpoint the last one is unknown
        if tail is None:
            return index
        tail.prepend(index)
        return tail


def _take_in(later: _Later, frame: Frame) -> None:
    match frame.type:
        case FrameType.LOG_DELETED:
            later.deleted.add(frame.log_id)
        case FrameType.CHECKPOINT_ENTRY:
            start = decode_change(frame.payload).start_offset
            later.starts[frame.log_id] = max(start, later.starts.get(frame.log_id, 0))
        case FrameType.TRUNCATE:
            end = decode_truncate(frame.payload)[0]
            later.ends[frame.log_id] = min(end, later.ends.get(frame.log_id, ANY_OFFSET))
        case _:
            pass
