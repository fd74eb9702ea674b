"""Reads a log: finds batches by offset, selects whole batches for a fetch, and returns their checked bytes.

Nothing here waits for the disk. If data is not in memory, a call returns `Blocked`: a job for the worker's `read` lane
and a handler of its result; then the call is repeated. Every 64 KiB block read from a file is checked against the
index's CRC before any of its bytes is served; bytes still in memory need no check.
"""

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import LogDamaged
from duramen.base.ports import Buffer, File
from duramen.codec.batch import CRC_START, HEADER_BYTES, Header, header
from duramen.codec.crc import crc32c
from duramen.storage.segment.blocks import ANY_OFFSET, Blocked, are_sound, read_blocks
from duramen.storage.segment.checks import ExpectedSegment, SegmentCheck, decode_index
from duramen.storage.segment.damage import Damage
from duramen.storage.segment.handles import Handles
from duramen.storage.segment.index import (
    BLOCK_BYTES,
    BLOCK_SHIFT,
    ENTRY_BYTES,
    INDEX_HEADER_BYTES,
    SegmentIndex,
    closed_entries,
)
from duramen.storage.segment.segment import Segment

__all__ = [
    "Blocked",
    "ReadEnd",
    "ReaderTrail",
    "Slice",
    "Walk",
    "Windows",
    "find_end",
    "find_start",
    "open_index",
    "walk_batches",
]

_WINDOWS: Final = 4
_PIECE_BYTES: Final = 4 * 1024 * 1024  # Linux reads ahead into folios of up to 2 MiB
_PIECES_ALONE: Final = 8  # read ahead while there are no writes
_STEP_BYTES: Final = 1024 * 1024
_TAIL_BYTES: Final = 64 * 1024 * 1024  # of the active segment: stays in memory for readers near the end


class Windows:
    """Bytes read and checked for finding a batch, kept while one read is being planned.

    A blocked plan starts again from its beginning: it must find everything that was read for it.
    """

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: list[
            tuple[Segment, int, int, Buffer]
        ] = []  # not a deque: empty ones of many logs take much memory

    def find(self, segment: Segment, position: int, size: int) -> memoryview | None:
        """The bytes at `position`, if they were read. Raises LogDamaged if the file ends before them."""
        for of, start, end, window in self._windows:
            if of is segment and start <= position and position + size <= end:
                found = memoryview(window)[position - start : position - start + size]
                if len(found) < size:
                    raise LogDamaged(f"{segment.path}.log ends at byte {start + len(window)}: the rest is missing")
                return found
        return None

    def put(self, segment: Segment, position: int, end: int, window: Buffer) -> None:
        """Keep the bytes read from `position` to `end`, fewer if the file ends before; the oldest are dropped."""
        self._windows = [*self._windows[1 - _WINDOWS :], (segment, position, end, window)]

    def clear(self) -> None:
        """The plan is complete."""
        self._windows.clear()


class Walk:
    """Headers of a segment's batches in order, from memory as far as possible."""

    __slots__ = ("_file", "_segment", "_windows")

    def __init__(self, segment: Segment, file: File, windows: Windows) -> None:
        self._segment = segment
        self._file = file
        self._windows = windows

    def header(self, position: int) -> Header | Blocked:
        """The header at `position`, in the file and outside known damage. Raises LogDamaged if it is invalid."""
        data = self._bytes(position)
        if isinstance(data, Blocked):
            return data
        found = header(data)
        if found.magic != 2 or not HEADER_BYTES <= found.size <= self._segment.size - position:
            raise LogDamaged(f"{self._segment.path}.log: no record batch at position {position}")
        return found

    def _bytes(self, position: int) -> Buffer | Blocked:
        segment, file, index = self._segment, self._file, self._segment.index
        known = self._windows.find(segment, position, HEADER_BYTES)
        if known is not None:
            return known
        low = position & ~(BLOCK_BYTES - 1)
        if index is None or low >> BLOCK_SHIFT < index.first:
            return open_index(segment, file)
        high = min((position + HEADER_BYTES + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1), segment.copied)
        put = partial(self._windows.put, segment, low, max(high, position + HEADER_BYTES))
        data = file.read_cached(low, high - low)
        if data is None or not are_sound(segment, index, low, data):
            return read_blocks(segment, file, index, low, high, put)
        put(data)
        return self._windows.find(segment, position, HEADER_BYTES) or b""


def find_start(segment: Segment, file: File | None, offset: int, windows: Windows) -> int | Blocked:
    """The position of the batch with `offset`, or of the next one. Raises LogDamaged if it is damaged."""
    position = segment.pending_start(offset)
    if position is not None:
        return position
    if file is None:
        return segment.size
    relative = offset - segment.base_offset
    start = segment.index.seek(relative) if segment.index is not None else None
    if start is None:
        return open_index(segment, file)
    walk = Walk(segment, file, windows)
    while start < segment.copied:
        damage = segment.damage_at(start)
        if damage is not None:
            if damage.holds(offset):
                raise LogDamaged(segment.name_damage(damage))
            start = damage.end
            continue
        found = walk.header(start)
        if isinstance(found, Blocked):
            return found
        if found.next_offset > offset:
            break
        start += found.size
    return start


class ReadEnd(NamedTuple):
    """The end of a range of whole batches: the position, and the next offset."""

    position: int
    next_offset: int


def find_end(
    segment: Segment, file: File | None, start: int, limit: ReadEnd, max_bytes: int, windows: Windows
) -> ReadEnd | Blocked:
    """The end of whole batches from `start` on, before `limit` and of at most `max_bytes`.

    The first batch is included whatever its size.
    """
    if limit.position - start <= max_bytes:
        return limit
    target = start + max_bytes
    in_memory = segment.pending_end(target)
    if in_memory is not None and in_memory[0] > start:
        return min(ReadEnd(*in_memory), limit)
    index = segment.index
    entry = index.last_start(target) if index is not None and target < segment.copied else None
    if entry is not None and entry.position > start:
        return min(ReadEnd(entry.position, segment.base_offset + entry.offset), limit)
    if start >= segment.copied:
        return ReadEnd(*segment.pending_after(start))
    if file is None:
        raise AssertionError("bytes that were copied are in a file")
    return _walk_end(segment, Walk(segment, file, windows), start, min(limit.position, segment.copied), target)


def _walk_end(segment: Segment, walk: Walk, start: int, limit: int, target: int) -> ReadEnd | Blocked:
    end = ReadEnd(start, 0)
    while end.position < limit and segment.damage_at(end.position) is None:
        try:
            found = walk.header(end.position)
        except LogDamaged:
            if end.position == start:
                raise
            break  # serve the sound batches before it
        if isinstance(found, Blocked):
            return found
        following = end.position + found.size
        if following > target and end.position > start:
            break
        end = ReadEnd(following, found.next_offset)
    return end


class ReaderTrail:
    """One reader's path through a log, from slice to slice: `cold` from its first wait for the disk.

    It stays cold until its data is only in memory. While there are writes, a cold reader does not probe the page cache:
    read-ahead data would be there, and its reads would come as fast as they are sent.
    """

    __slots__ = ("cold",)

    def __init__(self) -> None:
        self.cold = False


class Slice:
    """Whole batches of one segment, sent piece by piece.

    It holds the file open, so that it outlives the segment's deletion, and no bytes until a piece is requested. Bytes
    that are only in memory at its creation may be in the file later: then `handles` opens it. It was planned for a read
    from `offset` on (-1: by time). `next_offset` is the one after its last batch; -1 if unknown, because damage
    follows.
    """

    __slots__ = (
        "_file",
        "_handles",
        "_offset",
        "_replaced",
        "_segment",
        "_supplied",
        "_trail",
        "end",
        "next_offset",
        "position",
    )

    def __init__(
        self,
        segment: Segment,
        file: File | None,
        position: int,
        end: int,
        offset: int,
        next_offset: int,
        handles: Handles,
        trail: ReaderTrail,
    ) -> None:
        self._segment = segment
        self._file = file
        self._handles = handles
        self._trail = trail
        self._offset = offset
        self._replaced = segment.replaced
        self._supplied: tuple[int, int, Buffer] | None = None
        self.position = position
        self.end = end
        self.next_offset = next_offset

    def __len__(self) -> int:
        return self.end - self.position

    @property
    def cold(self) -> bool:
        """Whether its reader had to wait for the disk already."""
        return self._trail.cold

    def piece(self, max_bytes: int, *, alone: bool = False) -> list[Buffer] | Blocked:
        """The next bytes, about `max_bytes`. Raises LogDamaged if there is no sound batch.

        `alone`: there are no writes, so that reads need not leave time or disk to others.
        """
        segment, start = self._segment, self.position
        if start >= segment.copied:
            end = min(self.end, start + max_bytes)
            buffers = segment.pending_buffers(start, end)
            self.position = end
            self._trail.cold = False
            return buffers
        low = start & ~(BLOCK_BYTES - 1)
        end = min(self.end, segment.copied, max(start + max_bytes & ~(BLOCK_BYTES - 1), low + BLOCK_BYTES))
        damage = segment.damage_at(start)
        if damage is not None:
            raise LogDamaged(segment.name_damage(damage))
        end = segment.damage_after(start, end)
        if self._replaced != segment.replaced:
            # The same bytes are in another file now, and the old one may have lost some.
            self._replaced, self._file, self._supplied = segment.replaced, None, None
        if self._file is None:
            self._file = self._handles.open(segment)
        file, index = self._file, segment.index
        if file is None:
            raise AssertionError("bytes that were copied are in a file")
        if index is None or low >> BLOCK_SHIFT < index.first:
            return open_index(segment, file)
        high = min((end + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1), segment.copied)
        data = self._supplied_for(low, high)
        if data is None and (alone or not self._trail.cold):
            data = file.read_cached(low, high - low)
            self._trail.cold = self._trail.cold or data is None
        if data is None or len(data) < end - low or not are_sound(segment, index, low, data):
            ahead_bytes = max_bytes * (_PIECES_ALONE if alone else 1) if self._trail.cold else 0
            return read_blocks(segment, file, index, low, high, partial(self._supply, low, high), ahead_bytes)
        found = memoryview(data)[start - low : end - low]
        if segment.examined and self._offset >= 0 and len(found) >= HEADER_BYTES:
            # It may have been planned on other content: an older copy of the file is damage too.
            if header(found).next_offset <= self._offset:
                raise LogDamaged(f"{segment.path}.log: no record batch of offset {self._offset} at position {start}")
            self._offset = -1
        self.position = end
        self._leave(file, low, end)
        return [found]

    def _leave(self, file: File, low: int, end: int) -> None:
        """Drop bytes read from disk from the page cache, so that they do not displace the tails of the logs."""
        end &= ~(BLOCK_BYTES - 1)  # the next batch starts in this block
        segment = self._segment
        if self._trail.cold and end > low and (segment.closed or segment.copied - end > _TAIL_BYTES):
            # From further back: the system drops a folio only as a whole.
            low = max(0, low - _PIECE_BYTES)
            file.forget(low, end - low)

    def _supply(self, low: int, high: int, data: Buffer) -> None:
        self._supplied = (low, high, data)

    def _supplied_for(self, low: int, high: int) -> Buffer | None:
        supplied, self._supplied = self._supplied, None
        return supplied[2] if supplied is not None and supplied[:2] == (low, high) else None


def open_index(segment: Segment, file: File) -> Blocked:
    """Read a segment's index from its file, or rebuild it from the batches if it is damaged.

    On a rebuild the log's takeovers tell the right epochs: a batch's CRC does not cover its epoch. For the active
    segment only the blocks before those in memory are read.
    """
    active = segment.index
    entries = closed_entries(segment.size) if active is None else active.first
    blocks = entries - 1 if active is None else entries
    size = segment.size if active is None else active.first << BLOCK_SHIFT
    copied = segment.copied
    index_file, path, base_offset = segment.index_file, segment.path, segment.base_offset
    expected = ExpectedSegment(copied, base_offset, segment.copied_offset(), ANY_OFFSET, epoch_at=segment.epoch_at)

    def job() -> tuple[SegmentIndex, list[Damage]]:
        data = index_file.read(0, INDEX_HEADER_BYTES + entries * ENTRY_BYTES) if index_file is not None else b""
        index = decode_index(data, path, base_offset, entries, blocks)
        if index is not None and (active is not None or index.last().position == size):
            return index, []  # else the last entry is older, and its end was lost in a power failure
        check = SegmentCheck(file, expected)
        while check.step(_STEP_BYTES):
            pass
        if active is not None:
            check.index.trim(entries)
        return check.index, [damage for damage in check.damage if damage.start < size]

    def apply(result: tuple[SegmentIndex, list[Damage]]) -> None:
        index, damage = result
        segment.add_damage(damage)
        if segment.index is None:
            segment.index = index
        elif segment.index.first == entries:
            segment.index.prepend(index)

    return Blocked(job, apply)


def walk_batches(file: File, position: int, size: int, next_offset: int) -> Iterator[tuple[int, Header, Buffer]]:
    """Sound batches from `position` on in a segment's first `size` bytes: position, header and bytes of each.

    A batch is sound if it is complete, matches its CRC and starts at or after the next offset of the previous one
    (`next_offset` for the first). Ends before the first invalid batch. Blocking.
    """
    while position < size:
        data = bytes(file.read(position, min(HEADER_BYTES, size - position)))
        found = header(data) if len(data) == HEADER_BYTES else None
        if found is None or found.magic != 2 or not HEADER_BYTES <= found.size <= size - position:
            return
        whole = file.read(position, found.size)
        if len(whole) != found.size or found.base_offset < next_offset:
            return
        if crc32c(memoryview(whole)[CRC_START:]) != found.crc:
            return
        yield position, found, whole
        position += found.size
        next_offset = found.next_offset
