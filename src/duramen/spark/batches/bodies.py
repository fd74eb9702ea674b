"""Whole record batches taken apart as far as their headers: checked, decompressed, sorted into portions. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import Buffer
from duramen.codec.batch import CODEC_MASK, CONTROL, CRC_START, HEADER_BYTES, Header, batches
from duramen.codec.batch import MAX_DECOMPRESSED_BYTES as LARGEST_BODY_BYTES
from duramen.codec.compression import decompress
from duramen.codec.crc import crc32c

__all__ = ["Body", "joined", "portions"]

_PORTION_BYTES: Final = 2 * 1024 * 1024
_LARGEST_PORTION_BYTES: Final = 1 << 30  # Arrow's offsets have 31 bits
_LARGEST_OFFSET: Final = (1 << 63) - (1 << 31)  # so that every record's offset is a 64-bit number
_PORTION_RECORDS: Final = 16 * 1024


class Body(NamedTuple):
    """A batch's records: `data[position:end]`, decompressed."""

    head: Header
    data: Buffer
    position: int
    end: int


def portions(buffer: memoryview, first: int, end: int) -> Iterator[list[Body]]:
    """The batches in `buffer` that may hold records with an offset in `[first, end)`, some of them at a time.

    Raises BatchCorrupt for a batch that does not match its CRC or its header; control batches are left out.
    """
    portion: list[Body] = []
    held_bytes = held_records = 0
    for position, head in batches(buffer):
        if head.base_offset >= end:
            break
        if head.next_offset <= first:
            continue
        body = _body(buffer, position, head)
        if head.attributes & CONTROL or head.records == 0:
            continue
        size = body.end - body.position
        if portion and held_bytes + size > _LARGEST_PORTION_BYTES:
            yield portion
            portion, held_bytes, held_records = [], 0, 0
        portion.append(body)
        held_bytes += size
        held_records += head.records
        if held_bytes >= _PORTION_BYTES or held_records >= _PORTION_RECORDS:
            yield portion
            portion, held_bytes, held_records = [], 0, 0
    if portion:
        yield portion


def _body(buffer: memoryview, position: int, head: Header) -> Body:
    end = position + head.size
    if head.magic != 2:
        raise BatchCorrupt(f"record batches have the magic 2; the one at offset {head.base_offset} has {head.magic}")
    if crc32c(buffer[position + CRC_START : end]) != head.crc:
        raise BatchCorrupt(f"the record batch at offset {head.base_offset} does not match its CRC")
    if head.records < 0 or not 0 <= head.base_offset < _LARGEST_OFFSET:
        raise BatchCorrupt(f"the record batch at offset {head.base_offset} has {head.records} records")
    codec = head.attributes & CODEC_MASK
    if not codec:
        return Body(head, buffer, position + HEADER_BYTES, end)
    data = decompress(codec, buffer[position + HEADER_BYTES : end], LARGEST_BODY_BYTES)
    return Body(head, data, 0, len(data))


def joined(bodies: Sequence[Body]) -> tuple[Buffer, list[Body]]:
    """The bodies in one buffer: their own where they share one, else a copy."""
    data = bodies[0].data
    if all(body.data is data for body in bodies):
        return data, list(bodies)
    data = b"".join(memoryview(body.data)[body.position : body.end] for body in bodies)
    moved, position = [], 0
    for body in bodies:
        size = body.end - body.position
        moved.append(Body(body.head, data, position, position + size))
        position += size
    return data, moved
