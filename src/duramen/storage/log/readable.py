"""The readers' view of a log: the whole batches of a read, and their positions.

Nothing here reads a file. If data is not in memory, a call returns `Blocked` and is repeated later.
"""

from bisect import bisect_right
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from duramen.base.errors import LogDamaged, OffsetOutOfRange
from duramen.base.ports import File
from duramen.codec.batch import Header
from duramen.storage.log.replication import Replicated
from duramen.storage.log.transactions import TransactionTable
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.reader import (
    Blocked,
    ReadEnd,
    ReaderTrail,
    Slice,
    Walk,
    Windows,
    find_end,
    find_start,
    open_index,
)
from duramen.storage.segment.segment import Segment

__all__ = ["ReadableLog"]

_HINTS: Final = 64

T = TypeVar("T")


class ReadableLog:
    """The segments of a log, and plans of reads from them.

    Offsets: `start_offset` ≤ `synced_offset` ≤ `end_offset`. `replicated` is None for a log without other replicas.
    """

    __slots__ = (
        "_hints",
        "_windows",
        "damage",
        "end_offset",
        "handles",
        "replicated",
        "segments",
        "start_offset",
        "synced_offset",
        "transactions",
    )

    def __init__(self, handles: Handles, first: Segment) -> None:
        self.handles = handles
        self.start_offset = 0
        self.end_offset = 0
        self.synced_offset = 0
        self.segments: list[Segment] = [first]
        self.replicated: Replicated | None = None
        self.transactions = TransactionTable()
        self.damage: list[tuple[int, int]] = []  # offset ranges that recovery could not restore
        self._hints: dict[int, tuple[Segment, int, ReaderTrail]] = {}
        self._windows = Windows()

    @property
    def high_watermark(self) -> int:
        """The first offset that readers do not see yet: the synced end, for durability os and memory the end.

        For a replicated log it is the offset that all in-sync replicas, this one included, are known to have.
        """
        if self.replicated is None:
            return self.synced_offset
        return min(self.synced_offset, self.replicated.high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """The high watermark, or the start of the earliest transaction without a marker below it."""
        if self.replicated is not None and not self.replicated.settled:
            return self.start_offset
        return max(self.start_offset, self.transactions.stable_end(self.high_watermark))

    def visible_end(self, *, committed: bool) -> int:
        """The first offset that readers do not see yet; with `committed`, readers in read_committed."""
        return self.last_stable_offset if committed else self.high_watermark

    def forget_hints(self) -> None:
        """Positions and bytes cached by earlier reads may be invalid."""
        self._hints.clear()
        self._windows.clear()

    def plan_read(self, offset: int, max_bytes: int, *, committed: bool = False) -> Slice | Blocked | None:
        """Whole batches from the one with `offset` on, below the high watermark, from one segment.

        With `committed` below the last stable offset. At least one batch, then as many as `max_bytes` allows; None if
        there is none yet. Raises OffsetOutOfRange, or LogDamaged if the records at `offset` are lost.
        """
        return self._plan_below(self.visible_end(committed=committed), offset, max_bytes)

    def plan_written(self, offset: int, max_bytes: int) -> Slice | Blocked | None:
        """Like `plan_read`, for other replicas: all written records, synced or not."""
        return self._plan_below(self.end_offset, offset, max_bytes)

    def _plan_below(self, limit_offset: int, offset: int, max_bytes: int) -> Slice | Blocked | None:
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is not in {self.start_offset} to {self.end_offset} of this partition"
            )
        # No read skips lost records: it ends before them, and the next one reports them.
        for first, last in self.damage:
            if first <= offset <= last:
                raise LogDamaged(f"offsets {first} to {last} of this partition were lost to damage on disk")
            if first > offset:
                limit_offset = min(limit_offset, first)
        if offset >= limit_offset:
            return None
        return self._planned(partial(self._plan_read, offset, limit_offset, max_bytes))

    def _planned(self, make: Callable[[], T | Blocked]) -> T | Blocked:
        try:
            plan = make()
        except LogDamaged:
            # Cached bytes may be of a file that is no longer the segment's.
            self._windows.clear()
            raise
        if not isinstance(plan, Blocked):
            self._windows.clear()
        return plan

    def behind_lost(self, offset: int) -> int:
        """The offset, or the one after records that a start has lost there for good."""
        for first, last in self.damage:
            if first <= offset <= last:
                return last + 1
        return offset

    def plan_skip(self, offset: int) -> int | Blocked:
        """The offset to continue at after LogDamaged at `offset`: the one after the lost records, at most the end."""
        behind = self.behind_lost(offset)
        if behind > offset:
            return behind
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
        # The batch's own header may be intact: then only this batch is lost.
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
        return self._slice(*found, offset, limit_offset, max_bytes, ReaderTrail() if hint is None else hint[2])

    def _find(self, offset: int) -> tuple[Segment, int] | Blocked:
        segment, start, _ = self._hints.get(offset, (None, 0, None))
        if segment is not None and start < segment.size and not segment.examined:
            return segment, start
        segment = self.segments[self._segment_at(offset)]
        found = find_start(segment, self.handles.open(segment), offset, self._windows)
        return found if isinstance(found, Blocked) else (segment, found)

    def plan_header(self, offset: int) -> Header | Blocked | None:
        """The header of the batch with `offset`; None if there is none. Raises LogDamaged."""
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
        """A lower bound of the timestamp (ms) of the record at `offset`, if timestamps increase with offsets.

        Read from memory: that of its batch, or the largest before the index entry that its batch follows; if the index
        is not in memory, that of the segment's first batch. -1 if unknown.
        """
        segment = self.segments[self._segment_at(offset)]
        position = segment.pending_start(offset)
        if position is not None:
            return segment.pending_header(position).first_timestamp
        entry = segment.index.last_offset(offset - segment.base_offset) if segment.index is not None else None
        known = segment.first_timestamp if entry is None else entry.max_timestamp
        return segment.first_timestamp if known < 0 else known

    def _slice(
        self, segment: Segment, start: int, offset: int, limit_offset: int, max_bytes: int, trail: ReaderTrail
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
            return Slice(segment, file, start, stop, offset, -1, self.handles, trail)
        self._remember(end.next_offset, segment, stop, trail)
        return Slice(segment, file, start, stop, offset, end.next_offset, self.handles, trail)

    def _remember(self, offset: int, segment: Segment, position: int, trail: ReaderTrail) -> None:
        # A consumer's next fetch usually starts at the end of the last one: it needs no search.
        if len(self._hints) >= _HINTS:
            del self._hints[next(iter(self._hints))]
        self._hints[offset] = (segment, position, trail)

    def _segment_at(self, offset: int) -> int:
        return max(0, bisect_right(self.segments, offset, key=lambda segment: segment.base_offset) - 1)

    def _limit(self, segment: Segment, limit_offset: int) -> ReadEnd | Blocked:
        end_offset = self.end_offset
        if segment is not self.segments[-1]:
            following = self._segment_at(segment.base_offset) + 1
            end_offset = self.segments[following].base_offset if following < len(self.segments) else end_offset
        if limit_offset >= end_offset:
            return ReadEnd(segment.size, end_offset)
        try:
            position = find_start(segment, self.handles.open(segment), limit_offset, self._windows)
        except LogDamaged:
            # The batch at the limit is damaged: batches before it are still readable.
            damage = next((one for one in segment.damage if one.holds(limit_offset)), None)
            if damage is None:
                raise
            return ReadEnd(damage.start, damage.first_offset)
        return position if isinstance(position, Blocked) else ReadEnd(position, limit_offset)

    def plan_time(self, timestamp: int, *, first_offset: int = 0, committed: bool = False) -> Slice | Blocked | None:
        """The first batch below the high watermark with a record at or after `timestamp` (ms); None if there is none.

        It ends after `first_offset`, and has such a record according to its header. With `committed` it is below the
        last stable offset. Raises LogDamaged if the batch may be a damaged one.
        """
        limit_offset = self.visible_end(committed=committed)
        return self._planned(partial(self._plan_time, timestamp, first_offset, limit_offset))

    def _plan_time(self, timestamp: int, first_offset: int, limit_offset: int) -> Slice | Blocked | None:
        for segment in self.segments:
            if segment.size == 0 or segment.max_timestamp < timestamp:
                continue
            if 0 <= segment.end_offset <= first_offset:
                continue
            file = self.handles.open(segment)
            if file is not None and (segment.index is None or segment.index.first):
                return open_index(segment, file)
            position = self._batch_from_time(segment, file, timestamp, first_offset)
            if isinstance(position, Blocked):
                return position
            if position is not None:
                return self._slice(segment, position, -1, limit_offset, 1, ReaderTrail())
        return None

    def _batch_from_time(
        self, segment: Segment, file: File | None, timestamp: int, first_offset: int
    ) -> int | Blocked | None:
        position = segment.index.seek_time(timestamp) if segment.index is not None else 0
        while file is not None and position < segment.copied:
            damage = segment.damage_at(position)
            if damage is not None:
                # The damaged batch may be the right one: it is not skipped.
                raise LogDamaged(segment.name_damage(damage))
            found = Walk(segment, file, self._windows).header(position)
            if isinstance(found, Blocked):
                return found
            if found.max_timestamp >= timestamp and found.records and found.next_offset > first_offset:
                return position
            position += found.size
        return segment.pending_from_time(position, timestamp, first_offset)
