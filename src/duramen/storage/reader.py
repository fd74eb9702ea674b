"""Reading a log: where a batch lies, which whole batches answer a fetch, and their bytes, checked.

Nothing here waits for the disk. What is not in memory comes back as `Blocked`: a job for the worker's `read`
lane and what to do with its result; then the same call is made again. Every 64 KiB block read from a file is
checked against the index's CRC before a byte of it is served; bytes still in memory need no check.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

from duramen.base.errors import BatchCorrupt, LogDamaged
from duramen.base.ports import Buffer, File
from duramen.codec.batch import CRC_START, HEADER_BYTES, Header, header
from duramen.codec.crc import crc32c
from duramen.storage.handles import Handles
from duramen.storage.index import (
    BLOCK_BYTES,
    BLOCK_SHIFT,
    ENTRY_BYTES,
    INDEX_HEADER_BYTES,
    SegmentIndex,
    closed_entries,
    cover,
)
from duramen.storage.segment import Segment

__all__ = [
    "Blocked",
    "End",
    "Slice",
    "Trail",
    "Walk",
    "Windows",
    "find_end",
    "find_start",
    "open_index",
    "walk_batches",
]

_WINDOW_BYTES: Final = BLOCK_BYTES
_WINDOWS: Final = 4
_PIECE_BYTES: Final = 4 * 1024 * 1024  # Linux reads ahead into folios of up to 2 MiB
_TAIL_BYTES: Final = 64 * 1024 * 1024  # of the active segment: stays in memory, for whoever follows closely


@dataclass(frozen=True, slots=True)
class Blocked:
    """Run `job` in the worker's `read` lane, hand its result to `apply`, then ask again."""

    job: Callable[[], Any]
    apply: Callable[[Any], None]


class Windows:
    """Bytes that were read for finding a batch, for as long as one read is being planned.

    A plan that was blocked is made again from its beginning: it must find everything that was read for it.
    """

    __slots__ = ("_windows",)

    def __init__(self) -> None:
        self._windows: list[tuple[Segment, int, Buffer]] = []  # not a deque: empty ones of many logs take much memory

    def find(self, segment: Segment, position: int, size: int) -> memoryview | None:
        """The bytes at `position`, if they were read. Raises LogDamaged where the file ends before them."""
        for of, start, window in self._windows:
            if of is segment and start <= position and position + size <= start + len(window):
                return memoryview(window)[position - start : position - start + size]
            if of is segment and start == position:
                raise LogDamaged(f"{segment.path}.log ends at byte {start + len(window)}: the rest is missing")
        return None

    def put(self, segment: Segment, position: int, window: Buffer) -> None:
        """Keep what was read at `position`; the oldest goes."""
        self._windows = [*self._windows[1 - _WINDOWS :], (segment, position, window)]

    def clear(self) -> None:
        """The plan is made."""
        self._windows.clear()


class Walk:
    """Headers of a segment's batches one after another, from memory as far as possible."""

    __slots__ = ("_file", "_segment", "_windows")

    def __init__(self, segment: Segment, file: File, windows: Windows) -> None:
        self._segment = segment
        self._file = file
        self._windows = windows

    def header(self, position: int) -> Header | Blocked:
        """The header at `position`, which is in the file. Raises LogDamaged where it cannot be one."""
        data = self._bytes(position, HEADER_BYTES)
        if isinstance(data, Blocked):
            return data
        try:
            found = header(data)
        except BatchCorrupt:
            found = None
        if found is None or found.magic != 2 or not HEADER_BYTES <= found.size <= self._segment.size - position:
            raise LogDamaged(f"{self._segment.path}.log: no record batch at position {position}")
        return found

    def _bytes(self, position: int, size: int) -> Buffer | Blocked:
        segment, file = self._segment, self._file
        known = self._windows.find(segment, position, size)
        if known is not None:
            return known
        length = min(_WINDOW_BYTES, segment.copied - position)
        data = file.read_cached(position, length)
        if data is None:
            put = partial(self._windows.put, segment, position)
            return Blocked(lambda: file.read(position, length), put)
        self._windows.put(segment, position, data)
        return memoryview(data)[:size]


def find_start(segment: Segment, file: File | None, offset: int, windows: Windows) -> int | Blocked:
    """The position of the batch that holds `offset`, or of the next one where a damaged range is missing."""
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
        found = walk.header(start)
        if isinstance(found, Blocked):
            return found
        if found.next_offset > offset:
            break
        start += found.size
    return start


class End(NamedTuple):
    """Where a range of whole batches ends: the position, and the offset that follows."""

    position: int
    next_offset: int


def find_end(
    segment: Segment, file: File | None, start: int, limit: End, max_bytes: int, windows: Windows
) -> End | Blocked:
    """Where whole batches from `start` end that lie before `limit` and take at most `max_bytes`.

    The first batch is taken whatever its size.
    """
    if limit.position - start <= max_bytes:
        return limit
    target = start + max_bytes
    in_memory = segment.pending_end(target)
    if in_memory is not None and in_memory[0] > start:
        return min(End(*in_memory), limit)
    index = segment.index
    entry = index.last_start(target) if index is not None and target < segment.copied else None
    if entry is not None and entry.position > start:
        return min(End(entry.position, segment.base_offset + entry.offset), limit)
    if start >= segment.copied:
        return End(*segment.pending_after(start))
    if file is None:
        raise AssertionError("bytes that were copied are in a file")
    return _walk_end(Walk(segment, file, windows), start, min(limit.position, segment.copied), target)


def _walk_end(walk: Walk, start: int, limit: int, target: int) -> End | Blocked:
    end = End(start, 0)
    while end.position < limit:
        try:
            found = walk.header(end.position)
        except LogDamaged:
            if end.position == start:
                raise
            break  # what is sound before it is served
        if isinstance(found, Blocked):
            return found
        following = end.position + found.size
        if following > target and end.position > start:
            break
        end = End(following, found.next_offset)
    return end


class Trail:
    """One reader's way through a log, from slice to slice: `cold` once it had to wait for the disk."""

    __slots__ = ("cold",)

    def __init__(self) -> None:
        self.cold = False


class Slice:
    """Whole batches of one segment, to be sent piece by piece.

    Holds the file open, so that it outlives the segment's deletion, and no bytes until a piece is asked for.
    What is only in memory when the slice is made may be in the file when it is sent: then `handles` opens it.
    `next_offset` is the one that follows its last batch; -1 where that is not known, because damage follows.
    """

    __slots__ = ("_file", "_handles", "_replaced", "_segment", "_supplied", "_trail", "end", "next_offset", "position")

    def __init__(
        self,
        segment: Segment,
        file: File | None,
        position: int,
        end: int,
        next_offset: int,
        handles: Handles,
        trail: Trail,
    ) -> None:
        self._segment = segment
        self._file = file
        self._handles = handles
        self._trail = trail
        self._replaced = segment.replaced
        self._supplied: tuple[int, int, Buffer] | None = None
        self.position = position
        self.end = end
        self.next_offset = next_offset

    def __len__(self) -> int:
        return self.end - self.position

    def piece(self, max_bytes: int) -> list[Buffer] | Blocked:
        """The next bytes, about `max_bytes` of them. Raises LogDamaged where no sound batch lies."""
        segment, start = self._segment, self.position
        if start >= segment.copied:
            end = min(self.end, start + max_bytes)
            buffers = segment.pending_buffers(start, end)
            self.position = end
            return buffers
        low = start & ~(BLOCK_BYTES - 1)
        end = min(self.end, segment.copied, max(start + max_bytes & ~(BLOCK_BYTES - 1), low + BLOCK_BYTES))
        end = self._before_damage(start, end)
        if self._replaced != segment.replaced:
            # The same bytes lie in another file now, and the old one may have lost some.
            self._replaced, self._file, self._supplied = segment.replaced, None, None
        if self._file is None:
            self._file = self._handles.open(segment)
        file, index = self._file, segment.index
        if file is None:
            raise AssertionError("bytes that were copied are in a file")
        if index is None or low >> BLOCK_SHIFT < index.first:
            return open_index(segment, file)
        high = min((end + BLOCK_BYTES - 1) & ~(BLOCK_BYTES - 1), segment.copied)
        data = self._read(file, low, high)
        if isinstance(data, Blocked):
            return data
        view = memoryview(data)
        for block in range(low >> BLOCK_SHIFT, (high + BLOCK_BYTES - 1) >> BLOCK_SHIFT):
            at = (block << BLOCK_SHIFT) - low
            if block not in segment.examined and crc32c(view[at : at + BLOCK_BYTES]) != index.crc(block):
                return examine(segment, file, index, block)
        if low + len(view) < end:
            # Of a file that was cut short what is left has been looked at batch by batch.
            segment.damage.append((low + len(view), segment.copied))
            raise LogDamaged(f"{segment.path}.log ends at byte {low + len(view)} and should reach {segment.copied}")
        self.position = end
        self._leave(file, low, end)
        return [view[start - low : end - low]]

    def _before_damage(self, start: int, end: int) -> int:
        segment = self._segment
        for damaged_start, damaged_end in segment.damage:
            if damaged_start <= start < damaged_end:
                raise LogDamaged(f"{segment.path}.log: bytes {damaged_start} to {damaged_end} are damaged")
            if start < damaged_start < end:
                end = damaged_start
        return end

    def _leave(self, file: File, low: int, end: int) -> None:
        """What had to come from the disk does not push out of memory what others need there: the tails of the logs."""
        end &= ~(BLOCK_BYTES - 1)  # what follows begins in this block
        segment = self._segment
        if self._trail.cold and end > low and (segment.closed or segment.copied - end > _TAIL_BYTES):
            # From further back: of what the system keeps as one piece nothing goes before all of it may.
            low = max(0, low - _PIECE_BYTES)
            file.forget(low, end - low)

    def _read(self, file: File, low: int, high: int) -> Buffer | Blocked:
        supplied, self._supplied = self._supplied, None
        if supplied is not None and supplied[:2] == (low, high):
            return supplied[2]
        cached = file.read_cached(low, high - low)
        if cached is not None:
            return cached
        self._trail.cold = True

        def apply(result: Buffer) -> None:
            self._supplied = (low, high, result)

        return Blocked(lambda: file.read(low, high - low), apply)


def examine(segment: Segment, file: File, index: SegmentIndex, block: int) -> Blocked:
    """Look at each batch that touches a block which does not match its CRC, and note which of them are damaged."""
    entry = index.last_start(block << BLOCK_SHIFT)
    start = entry.position if entry is not None else 0
    low, stop = block << BLOCK_SHIFT, min((block + 1) << BLOCK_SHIFT, segment.copied)
    dense = not segment.generation
    resume = index.start_after(stop, segment.copied)
    replaced = segment.replaced

    def job() -> list[tuple[int, int]]:
        return _damaged_batches(file, start, low, stop, resume, dense=dense)

    def apply(found: list[tuple[int, int]]) -> None:
        if segment.replaced != replaced:
            return
        segment.examined.add(block)
        segment.damage += [damage for damage in found if damage not in segment.damage]

    return Blocked(job, apply)


def _damaged_batches(
    file: File, start: int, low: int, stop: int, resume: int, *, dense: bool
) -> list[tuple[int, int]]:  # fmt: skip
    """Ranges of damaged batches among those that start in `start` to `stop`; from a bad length on, up to `resume`.

    The block that does not match its CRC is `low` to `stop`. Unless `dense`, offsets may be missing between batches.
    """
    damage: list[tuple[int, int]] = []
    position, expected = start, -1
    while position < stop:
        data = bytes(file.read(position, HEADER_BYTES))
        found = header(data) if len(data) == HEADER_BYTES else None
        if found is None or found.magic != 2 or not HEADER_BYTES <= found.size <= resume - position:
            return [*damage, (position, resume)]
        body = file.read(position, found.size)
        sound = len(body) == found.size and crc32c(memoryview(body)[CRC_START:]) == found.crc
        if not sound or (expected >= 0 and (found.base_offset < expected or (dense and found.base_offset > expected))):
            damage.append((position, position + found.size))
        expected = found.next_offset if sound else -1
        position += found.size
        if position <= low:
            start = position
    # Every batch is sound by its own CRC, so the damage is in an offset or epoch, which only the block's CRC covers.
    return damage or [(start, resume)]


def open_index(segment: Segment, file: File) -> Blocked:
    """Read a segment's index from its file, or make it anew from the batches where it is bad.

    Of the active segment only the blocks before those that are in memory are read.
    """
    active = segment.index
    entries = closed_entries(segment.size) if active is None else active.first
    blocks = entries - 1 if active is None else entries
    size = segment.size if active is None else active.first << BLOCK_SHIFT
    copied = segment.copied
    index_file = segment.index_file

    def job() -> tuple[SegmentIndex, list[tuple[int, int]]]:
        data = index_file.read(0, INDEX_HEADER_BYTES + entries * ENTRY_BYTES) if index_file is not None else b""
        index = SegmentIndex.decode(data, entries, blocks)
        if index is not None and (active is not None or index.last().position == size):
            return index, []  # else the last entry is of an earlier life, whose end a power cut took away
        rebuilt, damage = rebuild_index(file, copied, segment.base_offset)
        if active is not None:
            rebuilt.trim(entries)
        return rebuilt, [found for found in damage if found[0] < size]

    def apply(result: tuple[SegmentIndex, list[tuple[int, int]]]) -> None:
        index, damage = result
        segment.damage += damage
        if segment.index is None:
            segment.index = index
        elif segment.index.first == entries:
            segment.index.prepend(index)

    return Blocked(job, apply)


def walk_batches(file: File, position: int, size: int, next_offset: int) -> Iterator[tuple[int, Header, Buffer]]:
    """Sound batches from `position` on in a segment's first `size` bytes: position, header and bytes of each.

    A batch is sound if it is whole, matches its CRC and begins at or after the offset that follows the last
    (`next_offset` for the first). Ends before the first that is not. Blocking.
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


def rebuild_index(file: File, size: int, base_offset: int) -> tuple[SegmentIndex, list[tuple[int, int]]]:
    """The index of a closed segment of `size` bytes from its batches, and the range from the first bad one on.

    Blocking: reads the whole segment.
    """
    index = SegmentIndex()
    end, next_offset, max_timestamp = 0, base_offset, -1
    for position, found, whole in walk_batches(file, 0, size, base_offset):
        end, next_offset = position + found.size, found.next_offset
        max_timestamp = max(max_timestamp, found.max_timestamp)
        index.add(position, end, next_offset - base_offset, max_timestamp)
        index.cover(*cover(index.tail_crc, position, [whole]))
    damage = []
    if end < size:
        # The bytes are covered as they are, so that the sound blocks before them stay readable.
        damage.append((end, size))
        index.add(end, size, next_offset - base_offset, max_timestamp)
        index.cover(*cover(index.tail_crc, end, [file.read(end, size - end)]))
    index.close(size, next_offset - base_offset, max_timestamp)
    return index, damage
