"""One segment of a log: a file of record batches, batches that are still in memory, and an index.

A batch has its position in the segment from its append on. Bytes before `copied` are in the file, later ones in
`pending`. Readers use ranges of positions, independent of where the bytes are.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from duramen.base.leader_epochs import LeaderEpochCache
from duramen.base.ports import Buffer, File
from duramen.codec.batch import Header, header
from duramen.storage.segment.damage import Damage, merged
from duramen.storage.segment.index import BLOCK_SHIFT, IndexEntry, SegmentIndex

__all__ = [
    "LARGEST_OFFSET_DELTA",
    "LARGEST_SEGMENT_BYTES",
    "AppendedBatch",
    "Segment",
    "SegmentState",
    "TailState",
    "parse_segment_name",
    "segment_name",
]

LARGEST_SEGMENT_BYTES: Final = (1 << 31) - 1
LARGEST_OFFSET_DELTA: Final = (1 << 31) - 1


class SegmentState(NamedTuple):
    """A segment in the checkpoint; `generation` counts its compactions."""

    base_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int
    generation: int = 0


class TailState(NamedTuple):
    """The last segment in the checkpoint: the index entry and the CRC of its partial block."""

    position: int = 0
    offset: int = 0
    max_timestamp: int = -1
    crc: int = 0


def segment_name(base_offset: int, generation: int = 0) -> str:
    """The file name of a segment, without its suffix: the offset in 20 digits, as in Kafka.

    A compacted one has its generation after a dot.
    """
    return f"{base_offset:020d}.{generation}" if generation else f"{base_offset:020d}"


def parse_segment_name(stem: str) -> tuple[int, int] | None:
    """The base offset and the generation in a file name without suffix; None if it has none."""
    base, dot, generation = stem.partition(".")
    if not (base.isascii() and base.isdigit()) or (dot and not (generation.isascii() and generation.isdigit())):
        return None
    return int(base), int(generation) if dot else 0


class AppendedBatch(Protocol):
    """A batch with its offset."""

    @property
    def head(self) -> Header:
        """Its header as received."""

    @property
    def base_offset(self) -> int:
        """Its offset."""


class Segment:
    """State of one segment in memory; its log opens the files."""

    __slots__ = (
        "_pending_offsets",
        "_pending_positions",
        "_pending_timestamps",
        "base_offset",
        "begun_ms",
        "closed",
        "copied",
        "damage",
        "end_offset",
        "examined",
        "file",
        "first_timestamp",
        "generation",
        "in_memory",
        "index",
        "index_file",
        "max_timestamp",
        "on_damage",
        "path",
        "pending",
        "replaced",
        "size",
        "spoiled",
        "suspect",
        "synced",
        "takeovers",
    )

    def __init__(self, path: str, base_offset: int, generation: int = 0) -> None:
        """An empty segment of a log; `path` is its files' path without their suffixes."""
        self.path = path
        self.base_offset = base_offset
        self.generation = generation  # number of its compactions: above 0 there are gaps between offsets
        self.end_offset = -1  # the offset after its last batch, if known
        self.size = 0
        self.copied = 0
        self.synced = 0
        self.first_timestamp = -1
        self.max_timestamp = -1
        self.begun_ms = -1  # when its first batch was appended, ms since 1970; -1 if unknown to this process
        self.closed = False
        self.in_memory = False  # durability=memory: never copied to a file
        self.suspect = False  # its last sync failed: the file's bytes after `synced` are not trusted
        self.spoiled = False  # compaction could not read all of it, and skips it
        self.replaced = 0  # number of times that its files were replaced by others with the same bytes
        self.file: File | None = None
        self.index_file: File | None = None
        self.index: SegmentIndex | None = SegmentIndex()
        self.pending: list[Buffer] = []
        self._pending_positions: list[int] = []
        self._pending_offsets: list[int] = []
        self._pending_timestamps: list[int] = []  # the largest of all batches before each
        self.damage: list[Damage] = []  # damaged ranges, in order of position
        self.examined: dict[int, int] = {}  # examined blocks that do not match their CRC, with their actual CRC
        self.on_damage: Callable[[Segment, list[Damage]], None] | None = None
        self.takeovers: LeaderEpochCache | None = None  # its log's; a batch's own CRC does not cover its epoch

    @classmethod
    def restore(cls, path: str, state: SegmentState, tail: TailState | None) -> "Segment":
        """A segment from its checkpoint entry: completely in its file, its index not loaded yet.

        `tail` is given for the last one, so that appends can continue without reading.
        """
        segment = cls(path, state.base_offset, state.generation)
        segment.size = segment.copied = segment.synced = state.size
        segment.first_timestamp = state.first_timestamp
        segment.max_timestamp = state.max_timestamp
        segment.closed = tail is None
        segment.index = None
        if tail is not None:
            entry = IndexEntry(tail.position, tail.offset, tail.max_timestamp)
            segment.index = SegmentIndex(state.size >> BLOCK_SHIFT, entry, tail.crc)
        return segment

    def state(self) -> SegmentState:
        """Its present checkpoint entry."""
        return SegmentState(self.base_offset, self.size, self.first_timestamp, self.max_timestamp, self.generation)

    def tail(self) -> TailState:
        """The partial block; its CRC covers only the bytes in the file."""
        if self.index is None or self.closed:
            return TailState()
        return TailState(*self.index.last(), self.index.tail_crc)

    # -- appending ----------------------------------------------------------------------------------

    def fits(self, size: int, next_offset: int, segment_bytes: int) -> bool:
        """Whether a batch may be appended; the first always may."""
        return self.size == 0 or (
            self.size + size <= segment_bytes and next_offset - self.base_offset <= LARGEST_OFFSET_DELTA
        )

    def append(self, buffer: Buffer, base_offset: int, next_offset: int, max_timestamp: int) -> None:
        """Append a batch, in memory."""
        start = self.size
        end = start + len(buffer)
        if start == 0:
            self.first_timestamp = max_timestamp
        self._pending_timestamps.append(self.max_timestamp)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
        self.pending.append(buffer)
        self._pending_positions.append(start)
        self._pending_offsets.append(base_offset)
        self.size = end
        self.end_offset = next_offset
        if start >> BLOCK_SHIFT != end >> BLOCK_SHIFT and self.index is not None:
            self.index.add(start, end, next_offset - self.base_offset, self.max_timestamp)

    def append_all(self, buffers: Sequence[Buffer], appended: Sequence[AppendedBatch]) -> None:
        """Like `append` for each batch, if there is a batch already."""
        start, newest = self.size, self.max_timestamp
        for buffer, append in zip(buffers, appended, strict=True):
            head, base_offset = append.head, append.base_offset
            self._pending_positions.append(start)
            self._pending_offsets.append(base_offset)
            self._pending_timestamps.append(newest)
            if head.max_timestamp > newest:
                newest = head.max_timestamp
            end = start + len(buffer)
            if start >> BLOCK_SHIFT != end >> BLOCK_SHIFT and self.index is not None:
                self.index.add(start, end, base_offset + head.records - self.base_offset, newest)
            start = end
        self.pending += buffers
        self.size, self.max_timestamp = start, newest
        self.end_offset = appended[-1].base_offset + appended[-1].head.records

    def copied_to(self, position: int, crcs: list[int], tail_crc: int) -> int:
        """The file has everything before `position` now; returns the bytes of memory that this freed."""
        count = bisect_left(self._pending_positions, position)
        freed = position - self.copied
        del self.pending[:count]
        del self._pending_positions[:count]
        del self._pending_offsets[:count]
        del self._pending_timestamps[:count]
        self.copied = position
        if self.index is not None:
            self.index.cover(crcs, tail_crc)
        return freed

    def take_back(self, position: int, end_offset: int) -> int:
        """Remove the batches in memory from the one at `position` on, which becomes the end; returns their bytes.

        `end_offset` is the offset of the first of them.
        """
        count = bisect_left(self._pending_positions, position)
        freed = self.size - position
        self.max_timestamp = self._pending_timestamps[count]
        if position == 0:
            self.first_timestamp = -1
        for column in (self.pending, self._pending_positions, self._pending_offsets, self._pending_timestamps):
            del column[count:]
        self.size, self.end_offset = position, end_offset
        if self.index is not None:
            self.index.end_at(position)
        return freed

    def replace(self) -> None:
        """Its files were replaced: damage found in the old ones after the synced position is obsolete."""
        blocks = self.synced >> BLOCK_SHIFT
        sound = blocks << BLOCK_SHIFT
        self.examined = {block: crc for block, crc in self.examined.items() if block < blocks}
        self.damage = [damage for damage in self.damage if damage.start < sound]
        self.replaced += 1

    # -- damage -------------------------------------------------------------------------------------

    def repaired(self) -> None:
        """All its bytes are repaired: damage found in the old ones by pending reads is ignored."""
        self.examined = {}
        self.damage = []
        self.spoiled = False
        self.replaced += 1

    @property
    def epoch_at(self) -> Callable[[int], int] | None:
        """The function from an offset to its leader epoch, if known."""
        return self.takeovers.epoch_at if self.takeovers is not None else None

    def add_damage(self, found: Iterable[Damage]) -> None:
        """These ranges are not served from now on; the quarantine gets the new ones."""
        known, self.damage = self.damage, merged([*self.damage, *found])
        new = [damage for damage in self.damage if damage not in known]
        if new and self.on_damage is not None:
            self.on_damage(self, new)

    def damage_at(self, position: int) -> Damage | None:
        """The damage at a position."""
        if not self.damage:
            return None
        return next((damage for damage in self.damage if damage.start <= position < damage.end), None)

    def damage_after(self, position: int, end: int) -> int:
        """The start of the first damage after a position, or `end`."""
        if not self.damage:
            return end
        return next((damage.start for damage in self.damage if position < damage.start < end), end)

    def name_damage(self, damage: Damage) -> str:
        """The damage with its file."""
        return f"{self.path}.log: {damage}"

    # -- finding ------------------------------------------------------------------------------------

    def pending_start(self, offset: int) -> int | None:
        """The position of the batch in memory with `offset`, or of the last one before it; None if in the file."""
        offsets = self._pending_offsets
        if not offsets or offset < offsets[0]:
            return None
        return self._pending_positions[bisect_right(offsets, offset) - 1]

    def copied_offset(self) -> int:
        """The offset after the bytes in the file; -1 if unknown without the index."""
        return self._pending_offsets[0] if self._pending_offsets else self.end_offset

    def pending_end(self, position: int) -> tuple[int, int] | None:
        """Start and offset of the last batch in memory that starts at or before `position`; None if in the file."""
        positions = self._pending_positions
        if not positions or position < positions[0]:
            return None
        at = bisect_right(positions, position) - 1
        return positions[at], self._pending_offsets[at]

    def pending_after(self, position: int) -> tuple[int, int]:
        """The end of the batch in memory that starts at `position`, and the next offset."""
        found = self.pending_header(position)
        return position + found.size, found.next_offset

    def pending_header(self, position: int) -> Header:
        """The header of the batch in memory that starts at `position`."""
        return header(self.pending[bisect_left(self._pending_positions, position)])

    def pending_from_time(self, position: int, timestamp: int, first_offset: int) -> int | None:
        """The start of the first batch in memory, at or after `position`, that may have such a record (`plan_time`)."""
        for start, buffer in zip(self._pending_positions, self.pending, strict=True):
            if start < position:
                continue
            found = header(buffer)
            if found.max_timestamp >= timestamp and found.next_offset > first_offset:
                return start
        return None

    def pending_buffers(self, start: int, end: int) -> list[Buffer]:
        """The bytes of a range of positions at or after `copied`."""
        positions = self._pending_positions
        first = bisect_right(positions, start) - 1
        buffers: list[Buffer] = []
        at = positions[first]
        for buffer in self.pending[first:]:
            if at >= end:
                break
            low, high = max(start - at, 0), min(end - at, len(buffer))
            buffers.append(buffer if high - low == len(buffer) else memoryview(buffer)[low:high])
            at += len(buffer)
        return buffers
