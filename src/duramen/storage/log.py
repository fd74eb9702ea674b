"""One log: its offsets, segments, leaderships and producers. State and questions about it; the store acts on it."""

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec

from duramen.base.errors import LogDamaged, OffsetOutOfRange
from duramen.base.ids import LogId
from duramen.base.ports import File
from duramen.codec.batch import Header
from duramen.storage.handles import Handles
from duramen.storage.planning.compaction import Rules
from duramen.storage.producers import ProducerRow, ProducerTable
from duramen.storage.reader import Blocked, End, Slice, Trail, Walk, Windows, find_end, find_start, open_index
from duramen.storage.segment import Segment, SegmentState, TailState, segment_name
from duramen.storage.takeovers import TakeoverTable

__all__ = ["LOGS_DIRECTORY", "NEVER", "Log", "LogConfig", "LogKey", "LogState", "log_directory"]

LOGS_DIRECTORY = "logs"
NEVER = (1 << 63) - 1  # flush.messages and flush.ms: no bound
_HINTS = 64

T = TypeVar("T")


class LogKey(NamedTuple):
    """Whose log it is: a partition of a stream."""

    stream_id: UUID
    partition: int


class LogConfig(NamedTuple):
    """What the store has to know of a stream's config."""

    durability: str = "sync"
    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    retention_ms: int = -1
    retention_bytes: int = -1
    retention_records: int = -1
    memory_max_bytes: int = 16 << 20
    flush_messages: int = NEVER
    flush_ms: int = NEVER
    compact: bool = False
    compaction: Rules = Rules()


class LogState(msgspec.Struct, array_like=True, frozen=True):
    """What the checkpoint keeps of a log. `end_offset` is the first offset not in `segments`.

    `obsolete` are base offset and generation of files that compaction has written again and that may still be there.
    """

    id: int
    stream_id: bytes
    partition: int
    durability: str
    start_offset: int
    end_offset: int
    segments: list[SegmentState]
    tail: TailState
    takeovers: list[tuple[int, int, int]]
    producers: list[ProducerRow]
    damage: list[tuple[int, int]]
    cleaned_offset: int = 0
    dirty_offset: int = 0
    obsolete: list[tuple[int, int]] = []


def log_directory(log_id: int) -> str:
    """The directory of a log's files."""
    return f"{LOGS_DIRECTORY}/{log_id}"


class Log:
    """A log in memory. Offsets: `start_offset` ≤ `synced_offset` ≤ `end_offset`."""

    __slots__ = (
        "_hints",
        "_windows",
        "cleaned_offset",
        "config",
        "damage",
        "deleted",
        "directory",
        "dirty_offset",
        "durability",
        "end_offset",
        "failed",
        "handles",
        "id",
        "introduced",
        "key",
        "obsolete",
        "on_advance",
        "producers",
        "reserved_offset",
        "saved",
        "segments",
        "start_offset",
        "synced_offset",
        "takeovers",
        "version",
        "written",
    )

    def __init__(self, log_id: LogId, key: LogKey, config: LogConfig, handles: Handles) -> None:
        self.id = log_id
        self.key = key
        self.config = config
        self.durability = config.durability
        self.handles = handles
        self.directory = log_directory(log_id)
        self.start_offset = 0
        self.end_offset = 0
        self.synced_offset = 0
        self.takeovers = TakeoverTable()
        self.producers = ProducerTable()
        self.segments: list[Segment] = [Segment(f"{self.directory}/{segment_name(0)}", 0)]
        self.damage: list[tuple[int, int]] = []  # offset ranges that recovery could not bring back
        self.segments[0].volatile = config.durability == "memory"
        self.cleaned_offset = 0  # below it compaction may have left gaps between offsets
        self.dirty_offset = 0  # where compaction has to look at keys next
        self.obsolete: list[tuple[int, int]] = []  # base offset and generation of files that nobody reads any more
        self.reserved_offset = 0  # with durability=memory: offsets before it are not given again after a crash
        self.deleted = False
        self.failed = ""  # why this log takes no writes (durability=os after a failed sync)
        self.version = 0  # grows with every change of what `state` says
        self.saved: tuple[int, bytes] | None = None  # the version that the newest checkpoint has, encoded
        self.written = False  # whether the log has a LOG_CREATED frame or a checkpoint entry
        self.introduced = 0  # the WAL position after the frames that introduced its newest epoch
        self.on_advance: Callable[[], None] | None = None
        self._hints: dict[int, tuple[Segment, int, Trail]] = {}
        self._windows = Windows()

    @classmethod
    def restore(cls, state: LogState, handles: Handles) -> "Log":
        """A log as the checkpoint describes it."""
        key = LogKey(UUID(bytes=state.stream_id), state.partition)
        log = cls(LogId(state.id), key, LogConfig(durability=state.durability), handles)
        log.start_offset = state.start_offset
        log.end_offset = log.synced_offset = state.end_offset
        log.takeovers = TakeoverTable(state.takeovers)
        log.producers = ProducerTable(state.producers)
        log.damage = list(state.damage)
        log.cleaned_offset = state.cleaned_offset
        log.dirty_offset = state.dirty_offset
        log.obsolete = list(state.obsolete)
        # Behind a segment that memory alone goes on from, nothing is appended to its file.
        in_memory = log.durability == "memory"
        states = [segment for segment in state.segments if segment.size] if in_memory else state.segments
        last = -1 if in_memory else len(states) - 1
        log.segments = [
            Segment.restore(
                f"{log.directory}/{segment_name(segment.base_offset, segment.generation)}",
                segment,
                state.tail if at == last else None,
            )
            for at, segment in enumerate(states)
        ]
        if in_memory or not log.segments:
            log.segments.append(Segment(f"{log.directory}/{segment_name(log.end_offset)}", log.end_offset))
        for segment, following in pairwise(log.segments):
            segment.end_offset = following.base_offset
        log.active.end_offset = log.end_offset
        log.active.volatile = in_memory
        log.written = True
        return log

    def state(self) -> LogState:
        """What the checkpoint has to keep; right for the bytes that have reached the segments' files.

        Records in memory only are not kept; where there are no others the offsets still go on where they were.
        """
        kept = [segment for segment in self.segments if not segment.volatile]
        start_offset, end_offset = self.start_offset, self.end_offset
        if not kept:
            start_offset = end_offset = max(end_offset, self.reserved_offset)
        elif len(kept) < len(self.segments):
            end_offset = self.segments[len(kept)].base_offset
        return LogState(
            self.id,
            self.key.stream_id.bytes,
            self.key.partition,
            self.durability,
            min(start_offset, end_offset),
            end_offset,
            [segment.state() for segment in kept],
            kept[-1].tail() if kept else TailState(),
            self.takeovers.rows(),
            [] if self.active.volatile else self.producers.rows(),
            self.damage,
            self.cleaned_offset,
            self.dirty_offset,
            self.obsolete,
        )

    # -- the store's side ---------------------------------------------------------------------------

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self.segments[-1]

    @property
    def high_watermark(self) -> int:
        """The first offset that readers do not see yet: the synced end, for durability os and memory the appended."""
        return self.synced_offset

    def set_durability(self, durability: str) -> None:
        """Change what an acknowledgement means from the next batch on, with a roll where there is one to close."""
        if durability == self.durability and self.active.volatile == (durability == "memory"):
            return
        self.durability = durability
        self.reserved_offset = 0
        self.version += 1
        if self.active.size:
            self.roll()
        self.active.volatile = durability == "memory"

    def roll(self) -> Segment:
        """Close the active segment and begin another at the end."""
        closed = self.active
        closed.closed = True
        segment = Segment(f"{self.directory}/{segment_name(self.end_offset)}", self.end_offset)
        segment.volatile = self.durability == "memory"
        self.segments.append(segment)
        self.close_index(closed)
        return segment

    def close_index(self, segment: Segment) -> None:
        """Finish the index of a closed segment once all of it has reached its file."""
        if segment.closed and segment.copied == segment.size and segment.index is not None and not segment.volatile:
            following = self.segments[self._segment_at(segment.base_offset) + 1]
            segment.index.close(segment.size, following.base_offset - segment.base_offset, segment.max_timestamp)

    def synced_to(self, end_offset: int) -> None:
        """Everything below `end_offset` is acknowledged as the durability says."""
        if end_offset > self.synced_offset:
            self.synced_offset = end_offset

    def notify(self) -> None:
        """The high watermark has risen."""
        if self.on_advance is not None:
            self.on_advance()

    def size_bytes(self) -> int:
        """Bytes of all batches held."""
        return sum(segment.size for segment in self.segments)

    def drop_before(self, offset: int) -> list[Segment]:
        """Move the log start to `offset` and take out the segments that lie wholly before it."""
        self.start_offset = max(self.start_offset, offset)
        count = max(0, bisect_right(self.segments, self.start_offset, key=lambda s: s.base_offset) - 1)
        dropped = self.segments[:count]
        del self.segments[:count]
        if dropped:
            self.forget_hints()
        return dropped

    def swap(self, old: list[Segment], new: Segment) -> None:
        """Put the compacted segment `new` in the place of those it was made of, which lie one after another."""
        at = self.segments.index(old[0])
        self.segments[at : at + len(old)] = [new]
        self.obsolete = self.obsolete + [(segment.base_offset, segment.generation) for segment in old]
        self.version += 1
        self.forget_hints()

    def forget_hints(self) -> None:
        """Positions and bytes known from earlier reads may not be right any more."""
        self._hints.clear()
        self._windows.clear()

    # -- the readers' side --------------------------------------------------------------------------

    def plan_read(self, offset: int, max_bytes: int) -> Slice | Blocked | None:
        """Whole batches from the one that holds `offset` on, below the high watermark, from one segment.

        At least one batch, then as many as `max_bytes` allows; None where there is nothing yet. Raises
        OffsetOutOfRange, or LogDamaged where the records at `offset` are lost.
        """
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in {self.start_offset} to {self.end_offset} of this partition"
            )
        for first, last in self.damage:
            if first <= offset <= last:
                raise LogDamaged(f"offsets {first} to {last} of this partition were lost to damage on disk")
        # Nobody is led over what is lost: a read ends before it, and the next one hears of it.
        limit_offset = min(self.high_watermark, *(first for first, _ in self.damage if first > offset), NEVER)
        if offset >= limit_offset:
            return None
        return self._planned(partial(self._plan_read, offset, limit_offset, max_bytes))

    def _planned(self, make: Callable[[], T | Blocked]) -> T | Blocked:
        try:
            plan = make()
        except LogDamaged:
            # What was read may be of a file that is not the segment's any more.
            self._windows.clear()
            raise
        if not isinstance(plan, Blocked):
            self._windows.clear()
        return plan

    def plan_skip(self, offset: int) -> int | Blocked:
        """Where to read on after LogDamaged at `offset`: the offset after what is lost, at most the end."""
        for first, last in self.damage:
            if first <= offset <= last:
                return last + 1
        plan = self._plan_skip(offset)
        if not isinstance(plan, Blocked):
            self._windows.clear()
        return plan

    def _plan_skip(self, offset: int) -> int | Blocked:
        at = self._segment_at(offset)
        segment = self.segments[at]
        following = self.segments[at + 1].base_offset if at + 1 < len(self.segments) else self.end_offset
        known = next((damage for damage in segment.damage if damage.holds(offset)), None)
        if known is not None and segment.pending_start(offset) is None:
            return min(known.last_offset + 1, following) if known.last_offset >= 0 else following
        return self._skip_unknown(segment, offset, following)

    def _skip_unknown(self, segment: Segment, offset: int, following: int) -> int | Blocked:
        try:
            file = self.handles.open(segment)
        except LogDamaged:
            return following
        index = segment.index
        if file is not None and (index is None or index.first):
            return open_index(segment, file)
        known = index.next_start(offset - segment.base_offset) if index is not None else None
        limit = following if known is None else min(following, segment.base_offset + known)
        # The damage may have left the batch's own header whole: then nothing but this batch is lost.
        try:
            position = find_start(segment, file, offset, self._windows)
            if isinstance(position, Blocked) or file is None or position >= segment.copied:
                return position if isinstance(position, Blocked) else limit
            found = Walk(segment, file, self._windows).header(position)
        except LogDamaged:
            return limit
        if isinstance(found, Blocked):
            return found
        return found.next_offset if offset < found.next_offset < limit else limit

    def _plan_read(self, offset: int, limit_offset: int, max_bytes: int) -> Slice | Blocked | None:
        found = self._find(offset)
        if isinstance(found, Blocked):
            return found
        hint = self._hints.get(offset)
        return self._slice(*found, limit_offset, max_bytes, Trail() if hint is None else hint[2])

    def _find(self, offset: int) -> tuple[Segment, int] | Blocked:
        segment, start, _ = self._hints.get(offset, (None, 0, None))
        if segment is not None and start < segment.size:
            return segment, start
        segment = self.segments[self._segment_at(offset)]
        found = find_start(segment, self.handles.open(segment), offset, self._windows)
        return found if isinstance(found, Blocked) else (segment, found)

    def plan_header(self, offset: int) -> Header | Blocked | None:
        """The header of the batch that holds `offset`; None where there is none. Raises LogDamaged."""
        return self._planned(partial(self._plan_header, offset))

    def _plan_header(self, offset: int) -> Header | Blocked | None:
        found = self._find(offset)
        if isinstance(found, Blocked):
            return found
        segment, position = found
        if position >= segment.size:
            return None
        if position >= segment.copied:
            return segment.pending_header(position)
        file = self.handles.open(segment)
        if file is None:
            raise AssertionError("bytes that were copied are in a file")
        return Walk(segment, file, self._windows).header(position)

    def time_before(self, offset: int) -> int:
        """A timestamp (ms) that the record at `offset` is not before, as far as timestamps rise with offsets.

        From what is in memory: that of its batch, or the largest before the index entry that its batch follows; where
        the index is not in memory, of the segment's first batch. -1 where nothing is known.
        """
        segment = self.segments[self._segment_at(offset)]
        position = segment.pending_start(offset)
        if position is not None:
            return segment.pending_header(position).first_timestamp
        entry = segment.index.last_offset(offset - segment.base_offset) if segment.index is not None else None
        known = segment.first_timestamp if entry is None else entry.max_timestamp
        return segment.first_timestamp if known < 0 else known

    def _slice(
        self, segment: Segment, start: int, limit_offset: int, max_bytes: int, trail: Trail
    ) -> Slice | Blocked | None:
        limit = self._limit(segment, limit_offset)
        if isinstance(limit, Blocked):
            return limit
        file = self.handles.open(segment)
        end = find_end(segment, file, start, limit, max_bytes, self._windows)
        if isinstance(end, Blocked):
            return end
        damage = segment.damage_at(start)
        if damage is not None:
            raise LogDamaged(segment.name_damage(damage))
        stop = segment.damage_after(start, end.position)
        if stop <= start:
            return None
        if stop != end.position:
            return Slice(segment, file, start, stop, -1, self.handles, trail)
        self._remember(end.next_offset, segment, stop, trail)
        return Slice(segment, file, start, stop, end.next_offset, self.handles, trail)

    def _remember(self, offset: int, segment: Segment, position: int, trail: Trail) -> None:
        # A consumer's next fetch mostly begins where the last one ended: it needs no search.
        if len(self._hints) >= _HINTS:
            del self._hints[next(iter(self._hints))]
        self._hints[offset] = (segment, position, trail)

    def _segment_at(self, offset: int) -> int:
        return max(0, bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1)

    def _limit(self, segment: Segment, limit_offset: int) -> End | Blocked:
        following = self._segment_at(segment.base_offset) + 1
        end_offset = self.segments[following].base_offset if following < len(self.segments) else self.end_offset
        if limit_offset >= end_offset:
            return End(segment.size, end_offset)
        position = find_start(segment, self.handles.open(segment), limit_offset, self._windows)
        return position if isinstance(position, Blocked) else End(position, limit_offset)

    def plan_time(self, timestamp: int) -> Slice | Blocked | None:
        """The first batch below the high watermark with a record at or after `timestamp` (ms); None if none is.

        Raises LogDamaged where it may be one that is damaged.
        """
        return self._planned(partial(self._plan_time, timestamp))

    def _plan_time(self, timestamp: int) -> Slice | Blocked | None:
        for segment in self.segments:
            if segment.size == 0 or segment.max_timestamp < timestamp:
                continue
            file = self.handles.open(segment)
            if file is not None and (segment.index is None or segment.index.first):
                return open_index(segment, file)
            position = self._batch_from_time(segment, file, timestamp)
            if isinstance(position, Blocked):
                return position
            if position is not None:
                return self._slice(segment, position, self.high_watermark, 1, Trail())
        return None

    def _batch_from_time(self, segment: Segment, file: File | None, timestamp: int) -> int | Blocked | None:
        position = segment.index.seek_time(timestamp) if segment.index is not None else 0
        while file is not None and position < segment.copied:
            damage = segment.damage_at(position)
            if damage is not None:
                # What is damaged may be what is looked for: nobody is led over it.
                raise LogDamaged(segment.name_damage(damage))
            found = Walk(segment, file, self._windows).header(position)
            if isinstance(found, Blocked):
                return found
            if found.max_timestamp >= timestamp and found.records:
                return position
            position += found.size
        return segment.pending_from_time(position, timestamp)
