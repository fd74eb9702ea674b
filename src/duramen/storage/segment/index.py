"""The index of one segment: an entry per 64 KiB block, to find offsets and times and to check integrity.

The index file, big-endian: a header, then entries.

    header  0  char[8]  "DURINDX1"        entry  0  uint32  CRC-32C of the block's bytes in the segment
            8  uint64   log id                   4  uint32  position of the first batch that starts in the
           16  int64    base offset                         block or after it
           24  char[16] stream id                8  uint32  its offset, less the segment's base offset
           40  uint32   partition               12  int64   largest timestamp of all batches before it
           44  uint32   CRC-32C of 0..44        20  uint32  CRC-32C of 0..20

A closed segment's index ends with an entry more than it has blocks: its position is the segment's size. The
largest timestamp is a running maximum, so it never falls, whatever the order of the records' timestamps.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.ports import Buffer
from duramen.codec.crc import crc32c

__all__ = [
    "BLOCK_BYTES",
    "BLOCK_SHIFT",
    "ENTRY_BYTES",
    "INDEX_HEADER_BYTES",
    "IndexEntry",
    "IndexHeader",
    "SegmentIndex",
    "SoundEntries",
    "closed_entries",
    "cover",
    "read_header",
    "sound_entries",
]

BLOCK_SHIFT: Final = 16
BLOCK_BYTES: Final = 1 << BLOCK_SHIFT
INDEX_HEADER_BYTES: Final = 48
ENTRY_BYTES: Final = 24

_MAGIC = b"DURINDX1"
_HEADER = struct.Struct(">8sQq16sI")
_ENTRY = struct.Struct(">IIIq")
_CRC = struct.Struct(">I")


class IndexHeader(NamedTuple):
    """The identity of an index: segment, log and stream."""

    log_id: int
    base_offset: int
    stream_id: UUID
    partition: int

    def encode(self) -> bytes:
        """The header's bytes."""
        head = _HEADER.pack(_MAGIC, self.log_id, self.base_offset, self.stream_id.bytes, self.partition)
        return head + _CRC.pack(crc32c(head))


def read_header(data: Buffer) -> IndexHeader | None:
    """The header at the start of an index file; None if it is damaged."""
    if len(data) < INDEX_HEADER_BYTES:
        return None
    magic, log_id, base_offset, stream_id, partition = _HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or crc32c(bytes(data[: _HEADER.size])) != crc:
        return None
    return IndexHeader(log_id, base_offset, UUID(bytes=stream_id), partition)


class SoundEntries(NamedTuple):
    """The sound entries of an index file: CRCs by block, and start positions of batches, ascending."""

    crcs: dict[int, int]
    starts: list[int]


def sound_entries(data: Buffer) -> SoundEntries:
    """The sound entries of an index file that may be damaged."""
    found = SoundEntries({}, [])
    view = memoryview(data)[INDEX_HEADER_BYTES:]
    for block, at in enumerate(range(0, len(view) - ENTRY_BYTES + 1, ENTRY_BYTES)):
        crc, position, _, _ = _ENTRY.unpack_from(view, at)
        if _CRC.unpack_from(view, at + _ENTRY.size)[0] == crc32c(view[at : at + _ENTRY.size]):
            found.crcs[block] = crc
            if position > (found.starts[-1] if found.starts else 0):
                found.starts.append(position)
    return found


class IndexEntry(NamedTuple):
    """The position of the first batch at or after a block's start; `offset` counts from the segment's base."""

    position: int
    offset: int
    max_timestamp: int


_BEGINNING = IndexEntry(0, 0, -1)
_NONE: Final = array("I")
_ONE: Final = array("I", [0])
_ONE_WIDE: Final = array("q", [0])


class SegmentIndex:
    """The index in memory. Appends add entries, and copies to the file add block CRCs.

    After a restart it starts at the block of the next append; `prepend` adds the index file's entries.
    """

    __slots__ = ("_crcs", "_offsets", "_positions", "_timestamps", "first", "tail_crc", "written")

    def __init__(self, first: int = 0, entry: IndexEntry = _BEGINNING, tail_crc: int = 0) -> None:
        """An index that starts at block `first`, with `entry`; `tail_crc` is the CRC of the block's bytes so far."""
        self.first = first
        # Every log has one: a copy is made three times as fast as an array.
        self._positions, self._offsets, self._timestamps, self._crcs = _ONE[:], _ONE[:], _ONE_WIDE[:], _NONE[:]
        self._positions[0], self._offsets[0], self._timestamps[0] = entry
        self.tail_crc = tail_crc
        self.written = first  # entries in the index file

    @property
    def entries(self) -> int:
        """The number of entries, including those before `first`."""
        return self.first + len(self._positions)

    @property
    def blocks(self) -> int:
        """The number of blocks with a known CRC, including those before `first`."""
        return self.first + len(self._crcs)

    def set_crc(self, block: int, crc: int) -> None:
        """Set a CRC that differs from the block's bytes: they are damaged."""
        at = block - self.first
        if at < len(self._crcs):
            self._crcs[at] = crc
        else:
            self.tail_crc = crc

    def last(self) -> IndexEntry:
        """The entry of the last block."""
        return IndexEntry(self._positions[-1], self._offsets[-1], self._timestamps[-1])

    def crc(self, block: int) -> int:
        """The CRC of a block: final if the block is complete or the segment closed, else of its bytes so far."""
        at = block - self.first
        return self._crcs[at] if at < len(self._crcs) else self.tail_crc

    def add(self, start: int, end: int, next_offset: int, max_timestamp: int) -> None:
        """Add a batch at `start` to `end` (positions); the next one has the offset `next_offset` (relative).

        `max_timestamp` is the largest so far, this batch's included.
        """
        for _ in range((end >> BLOCK_SHIFT) - (start >> BLOCK_SHIFT)):
            self._append(IndexEntry(end, next_offset, max_timestamp))

    def _append(self, entry: IndexEntry) -> None:
        self._positions.append(entry.position)
        self._offsets.append(entry.offset)
        self._timestamps.append(entry.max_timestamp)

    def cover(self, crcs: list[int], tail_crc: int) -> None:
        """Add the results of the function `cover` for bytes that are in the file now."""
        self._crcs.extend(crcs)
        self.tail_crc = tail_crc

    def close(self, size: int, next_offset: int, max_timestamp: int) -> None:
        """Close the index: the last block's CRC becomes final and the closing entry is added.

        Every byte must be covered before.
        """
        if size & (BLOCK_BYTES - 1):
            self._crcs.append(self.tail_crc)
            self._append(IndexEntry(size, next_offset, max_timestamp))
        self.tail_crc = 0

    def seek(self, offset: int) -> int | None:
        """The position of a batch at or before the one with `offset` (relative); None if `first` is after it."""
        at = bisect_right(self._offsets, offset)
        return self._positions[at - 1] if at else None

    def last_offset(self, offset: int) -> IndexEntry | None:
        """The last entry whose offset is at or before `offset` (relative); None if `first` is after it."""
        at = bisect_right(self._offsets, offset) - 1
        return None if at < 0 else IndexEntry(self._positions[at], self._offsets[at], self._timestamps[at])

    def seek_time(self, timestamp: int) -> int:
        """The position of a batch at or before the first with a record at or after `timestamp`; `first` is 0."""
        return self._positions[max(0, bisect_left(self._timestamps, timestamp) - 1)]

    def next_start(self, offset: int) -> int | None:
        """The first known batch start after `offset` (both relative); None after the last."""
        at = bisect_right(self._offsets, offset)
        return self._offsets[at] if at < len(self._offsets) else None

    def last_start(self, position: int) -> IndexEntry | None:
        """The last entry whose position is at or before `position`; None if `first` is after it."""
        at = bisect_right(self._positions, position) - 1
        return None if at < 0 else IndexEntry(self._positions[at], self._offsets[at], self._timestamps[at])

    def start_after(self, position: int, end: int) -> int:
        """The first known batch start at or after `position`, at most `end`."""
        at = bisect_left(self._positions, position)
        return min(self._positions[at], end) if at < len(self._positions) else end

    def encode(self, start: int, end: int) -> bytes:
        """Entries `start` up to `end` (exclusive) in the file's format; the closing one has no block's CRC."""
        out = bytearray()
        for at in range(start - self.first, end - self.first):
            crc = self._crcs[at] if at < len(self._crcs) else 0
            entry = _ENTRY.pack(crc, self._positions[at], self._offsets[at], self._timestamps[at])
            out += entry
            out += _CRC.pack(crc32c(entry))
        return bytes(out)

    def prepend(self, earlier: "SegmentIndex") -> None:
        """Insert the entries of the blocks before `first`."""
        self._positions = earlier._positions + self._positions
        self._offsets = earlier._offsets + self._offsets
        self._timestamps = earlier._timestamps + self._timestamps
        self._crcs = earlier._crcs + self._crcs
        self.first = 0

    def end_at(self, size: int) -> None:
        """Remove the entries of blocks after the one of `size`; none of their CRCs is known yet."""
        entries = (size >> BLOCK_SHIFT) + 1 - self.first
        for column in (self._positions, self._offsets, self._timestamps):
            del column[entries:]

    def up_to(self, block: int) -> "SegmentIndex":
        """A copy that ends with a block at or after `first`, whose CRC is its tail CRC."""
        index = SegmentIndex(self.first)
        count = block - self.first
        index._positions, index._offsets = self._positions[: count + 1], self._offsets[: count + 1]
        index._timestamps, index._crcs = self._timestamps[: count + 1], self._crcs[:count]
        index.written = min(self.written, block)
        index.tail_crc = self.crc(block)
        return index

    def trim(self, entries: int) -> None:
        """Keep the first `entries` entries and as many blocks; `first` is 0."""
        for column in (self._positions, self._offsets, self._timestamps, self._crcs):
            del column[entries:]

    @classmethod
    def decode(cls, data: Buffer, entries: int, blocks: int) -> "SegmentIndex | None":
        """The first `entries` entries of an index file; `blocks` of them have a block's CRC.

        None if one of them is missing or damaged.
        """
        index = cls()
        for column in (index._positions, index._offsets, index._timestamps):
            del column[:]
        view = memoryview(data)[INDEX_HEADER_BYTES:]
        if len(view) < entries * ENTRY_BYTES:
            return None
        for start in range(0, entries * ENTRY_BYTES, ENTRY_BYTES):
            crc, *entry = _ENTRY.unpack_from(view, start)
            if _CRC.unpack_from(view, start + _ENTRY.size)[0] != crc32c(view[start : start + _ENTRY.size]):
                return None
            index._append(IndexEntry(*entry))
            if len(index._crcs) < blocks:
                index._crcs.append(crc)
        index.written = entries
        return index


def closed_entries(size: int) -> int:
    """The number of entries in the index of a closed segment of `size` bytes."""
    return (size + BLOCK_BYTES - 1 >> BLOCK_SHIFT) + 1


def cover(tail_crc: int, position: int, buffers: Sequence[Buffer]) -> tuple[list[int], int]:
    """CRCs of the blocks that `buffers`, written at `position`, complete; and the CRC of the partial block after them.

    `tail_crc` is the CRC of the block of `position`, up to there.
    """
    whole: list[int] = []
    for buffer in buffers:
        view = memoryview(buffer)
        start, size = 0, len(view)
        while start < size:
            room = BLOCK_BYTES - (position & (BLOCK_BYTES - 1))
            part = view[start : start + room]
            tail_crc = crc32c(part, tail_crc)
            start += len(part)
            position += len(part)
            if len(part) == room:
                whole.append(tail_crc)
                tail_crc = 0
    return whole, tail_crc
