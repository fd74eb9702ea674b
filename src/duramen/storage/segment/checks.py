"""The damaged bytes of a segment, the offsets lost with them, and the cause.

Every byte is checked: by the index's CRC of its 64 KiB block, and batch by batch. A batch's own CRC does not cover its
base offset and leader epoch; the block's CRC does, or, without an index, the neighbouring batches. The scrubber, reads
and `duramen log verify` examine segments with this. Blocking: it reads and never writes.
"""

from typing import Final, NamedTuple, Protocol

from duramen.base.ports import Buffer, FileSystem
from duramen.codec.batch import LENGTH_END
from duramen.codec.crc import crc32c
from duramen.storage.segment.bit_flips import flipped_bytes
from duramen.storage.segment.continuity import ExpectedSegment, Judge
from duramen.storage.segment.damage import Damage, DamageCause, merged
from duramen.storage.segment.index import (
    BLOCK_BYTES,
    BLOCK_SHIFT,
    ENTRY_BYTES,
    INDEX_HEADER_BYTES,
    SegmentIndex,
    cover,
    read_header,
)
from duramen.storage.segment.spans import UNCOVERED, ByteSpan, spans_of

__all__ = [
    "BlockBounds",
    "ExpectedSegment",
    "Readable",
    "SegmentCheck",
    "block_bounds",
    "damage_of",
    "decode_index",
    "examine_block",
    "read_index",
]

_WINDOW_BYTES: Final = 2 * 1024 * 1024  # without an index: the amount searched at once for a batch after invalid bytes


class Readable(Protocol):
    """The part of File that a check needs."""

    def read(self, position: int, size: int) -> Buffer:
        """Blocking: the bytes at `position`; short only at the end of the file. Raises OSError."""


def decode_index(data: Buffer, path: str, base_offset: int, entries: int, blocks: int) -> SegmentIndex | None:
    """The first `entries` entries of the index file of the segment `path`; None unless they are sound and its own."""
    head = read_header(data)
    if head is None or head.base_offset != base_offset or f"/{head.log_id}/" not in f"/{path}":
        return None
    return SegmentIndex.decode(data, entries, blocks)


def read_index(files: FileSystem, path: str, base_offset: int, entries: int, blocks: int) -> SegmentIndex | None:
    """The same from the file; None also if it is missing or unreadable."""
    try:
        file = files.open(path + ".index", read_only=True)
        data = file.read(0, INDEX_HEADER_BYTES + entries * ENTRY_BYTES)
    except OSError:
        return None
    return decode_index(data, path, base_offset, entries, blocks)


class SegmentCheck:
    """Checks one segment in steps. `damage` grows, and is in order of position at the end.

    Without an index it builds one: `index` is complete after the last step, and has the CRCs of damaged bytes as they
    are. `steady`: unreadable bytes are damage, else an error.
    """

    def __init__(
        self, file: Readable, expected: ExpectedSegment, index: SegmentIndex | None = None, *, steady: bool = False
    ) -> None:
        """`index` is the segment's, with every block of its `size` bytes, or None if there is no sound one."""
        self.position = 0
        self.index = SegmentIndex() if index is None else index
        self._bytes = _Bytes(file, steady=steady)
        self._expected = expected
        self._indexed = index is not None
        self._judge = Judge(expected, expected.base_offset, covered=self._indexed)
        self._examined: list[Damage] = []
        self._tail_crc = 0
        self._compared = 0
        self._max_timestamp = -1

    @property
    def damage(self) -> list[Damage]:
        """The damage found so far."""
        return merged([self._bytes.name(damage) for damage in (*self._judge.found, *self._examined)])

    def step(self, max_bytes: int) -> bool:
        """Check about `max_bytes` more, at least one batch; returns False at the end. Raises OSError."""
        size = self._expected.size
        if self.position < size:
            if self._indexed:
                self._step_indexed(max_bytes)
            else:
                self._step_alone(max(max_bytes, _WINDOW_BYTES))
        if self.position < size:
            return True
        self._judge.end(size)
        if not self._indexed:
            following = self._judge.next_offset - self._expected.base_offset
            self.index.close(size, following, self._max_timestamp)
            self._indexed = True
        return False

    def _step_indexed(self, max_bytes: int) -> None:
        expected, start = self._expected, self.position
        end = self.index.start_after(min(start + max(max_bytes, 1), expected.size), expected.size)
        # Read to the end of the block too: the index check of a batch comes before its comparison with others.
        stop = min((end + BLOCK_BYTES - 1) & -BLOCK_BYTES, expected.size)
        data = memoryview(self._bytes.read(start, stop - start))
        self._compare(data[self._compared - start :])
        if len(data) < end - start:
            self._cut_short(data)
            return
        spans, _ = spans_of(data[: end - start], start, whole=True)
        self._judge.show(self._examined_spans(spans), _offset_at(self.index, end, expected))
        self.position = end

    def _compare(self, data: Buffer) -> None:
        """Compare the blocks that end in `data`, which continues the bytes compared before, with their CRCs."""
        start, size = self._compared, self._expected.size
        if not len(data):
            return
        whole, self._tail_crc = cover(self._tail_crc, start, [data])
        self._compared += len(data)
        if self._expected.whole and self._compared == size and size & (BLOCK_BYTES - 1):
            whole.append(self._tail_crc)
        for block, crc in enumerate(whole, start >> BLOCK_SHIFT):
            if crc != self.index.crc(block):
                self._examined += _examine(self._bytes, block_bounds(self.index, block, self._expected), self._expected)

    def _examined_spans(self, spans: list[ByteSpan]) -> list[ByteSpan]:
        """The same spans; those in damaged blocks get their damage, and are not used to judge others."""
        if not self._examined:
            return spans
        for at, span in enumerate(spans):
            causes = (one.cause for one in self._examined if one.start < span.end and one.end > span.start)
            spans[at] = span._replace(cause=span.cause or next(causes, None))
        return spans

    def _step_alone(self, max_bytes: int) -> None:
        start, size = self.position, self._expected.size
        wanted = min(max_bytes, size - start)
        while True:
            data = self._bytes.read(start, wanted)
            if len(data) < wanted:
                self._cut_short(data)
                return
            whole = start + wanted == size
            spans, end = spans_of(memoryview(data), start, whole=whole)
            if end > start:
                break
            wanted = min(2 * wanted, size - start)  # one batch larger than the window
        if not whole and len(spans) > 1:
            end = spans.pop().start  # checked again with the bytes after it
        elif not whole and spans[0].cause is not None:
            end = start + wanted // 2  # invalid bytes only: a batch may start in them and end after them
            spans = [spans[0]._replace(end=end)]
        offsets = self._judge.show(spans, self._expected.end_offset if end == size else -1)
        self._enter(spans, offsets, memoryview(data)[: end - start])
        self.position = end

    def _enter(self, spans: list[ByteSpan], offsets: list[int], data: memoryview) -> None:
        """Add spans, whose bytes are `data`, to the index being built; `offsets` are the offsets after each."""
        if self._indexed:
            return
        base_offset = self._expected.base_offset
        for span, next_offset in zip(spans, offsets, strict=True):
            if span.head is not None and span.cause is None:
                self._max_timestamp = max(self._max_timestamp, span.head.max_timestamp)
            self.index.add(span.start, span.end, next_offset - base_offset, self._max_timestamp)
        self.index.cover(*cover(self.index.tail_crc, self.position, [data]))

    def _cut_short(self, data: Buffer) -> None:
        spans, end = spans_of(memoryview(data), self.position, whole=False)
        offsets = self._judge.show(self._examined_spans(spans), -1)
        rest = ByteSpan(end, self._expected.size, None, DamageCause.CUT_SHORT)
        self._enter([*spans, rest], [*offsets, self._judge.next_offset], memoryview(data))
        last_offset = max(self._expected.end_offset - 1, -1)
        self._judge.found.append(
            Damage(end, self._expected.size, self._judge.next_offset, last_offset, DamageCause.CUT_SHORT)
        )
        self._judge.next_offset = max(self._judge.next_offset, self._expected.end_offset)
        self.position = self._expected.size


class _Bytes:
    """The file's bytes; if `steady`, zeros for unreadable blocks."""

    def __init__(self, file: Readable, *, steady: bool) -> None:
        self._file = file
        self._steady = steady
        self._unreadable: list[int] = []

    def read(self, start: int, size: int) -> Buffer:
        """The bytes; short only at the end of the file. Raises OSError unless steady."""
        try:
            return self._file.read(start, size)
        except OSError:
            if not self._steady:
                raise
        parts: list[Buffer] = []
        position, end = start, start + size
        while position < end:
            part_size = min((position | (BLOCK_BYTES - 1)) + 1, end) - position
            try:
                part = self._file.read(position, part_size)
            except OSError:
                part = bytes(part_size)
                self._unreadable.append(position >> BLOCK_SHIFT)
            parts.append(part)
            if len(part) < part_size:
                break
            position += part_size
        return b"".join(parts)

    def name(self, damage: Damage) -> Damage:
        """The same damage, with the right cause if its bytes were unreadable."""
        blocks = range(damage.start >> BLOCK_SHIFT, (damage.end + BLOCK_BYTES - 1) >> BLOCK_SHIFT)
        return (
            damage._replace(cause=DamageCause.UNREADABLE) if any(one in blocks for one in self._unreadable) else damage
        )


def damage_of(file: Readable, expected: ExpectedSegment) -> list[Damage]:
    """The damage of a segment according to its batches, in order of position. Blocking. Raises OSError."""
    check = SegmentCheck(file, expected)
    while check.step(_WINDOW_BYTES):
        pass
    return check.damage


class BlockBounds(NamedTuple):
    """A block to examine, and its index data: captured at once, because the index of a log changes.

    The block is `low` to `stop` and must have `crc`; batches start at `start`, with `first_offset`, and at `resume`,
    with `next_offset` (-1 if unknown).
    """

    low: int
    stop: int
    crc: int
    start: int
    resume: int
    first_offset: int
    next_offset: int


def block_bounds(index: SegmentIndex, block: int, expected: ExpectedSegment) -> BlockBounds:
    """The data that `examine_block` needs about a block. Plain: reads nothing."""
    size = expected.size
    low, stop = block << BLOCK_SHIFT, min((block + 1) << BLOCK_SHIFT, size)
    entry = index.last_start(low)
    start, offset = (entry.position, entry.offset) if entry is not None else (0, 0)
    resume = index.start_after(stop, size)
    following = _offset_at(index, resume, expected)
    return BlockBounds(low, stop, index.crc(block), start, resume, expected.base_offset + offset, following)


def examine_block(file: Readable, bounds: BlockBounds, expected: ExpectedSegment) -> list[Damage]:
    """The damage in a block that does not match its CRC; none if it matches after all. Raises OSError."""
    return _examine(_Bytes(file, steady=False), bounds, expected)


def _examine(source: _Bytes, bounds: BlockBounds, expected: ExpectedSegment) -> list[Damage]:
    low, stop, start, resume = bounds.low, bounds.stop, bounds.start, bounds.resume
    last_offset = max(bounds.next_offset - 1, -1)
    data = memoryview(source.read(start, resume - start))
    judge = Judge(expected, bounds.first_offset, covered=True)
    if len(data) < resume - start:
        spans, end = spans_of(data, start, whole=False)
        judge.show(spans, -1)
        return [*judge.found, Damage(end, resume, judge.next_offset, last_offset, DamageCause.CUT_SHORT)]
    difference = crc32c(data[low - start : stop - start]) ^ bounds.crc
    if not difference:
        return []
    spans, _ = spans_of(data, start, whole=True)
    if all(span.cause is None for span in spans):
        # The change is in bytes that only the block's CRC covers.
        flipped = {low + at for at in flipped_bytes(difference, stop - low)}
        spans = [_with_flip(span, flipped) for span in spans]
    judge.show(spans, bounds.next_offset)
    found = [damage for damage in merged(judge.found) if damage.end > low and damage.start < stop]
    return found or [Damage(start, resume, bounds.first_offset, last_offset, DamageCause.BLOCK_CRC)]


def _with_flip(span: ByteSpan, flipped: set[int]) -> ByteSpan:
    changed = [at for at in UNCOVERED if span.start + at in flipped]
    if not changed:
        return span
    return span._replace(cause=DamageCause.OFFSET if changed[0] < LENGTH_END else DamageCause.BLOCK_CRC)


def _offset_at(index: SegmentIndex, position: int, expected: ExpectedSegment) -> int:
    """The offset at a position where a batch starts, or the segment ends; -1 if unknown."""
    if position == expected.size and expected.end_offset >= 0:
        return expected.end_offset
    entry = index.last_start(position)
    return expected.base_offset + entry.offset if entry is not None and entry.position == position else -1
