"""Finds records by their headers in a whole batch, without an object per record. Pure."""

from collections.abc import Iterator, Sequence
from typing import Final

from duramen.base.errors import BatchCorrupt
from duramen.codec.batch import CODEC_MASK, HEADER_BYTES, MAX_DECOMPRESSED_BYTES, header
from duramen.codec.compression import decompress
from duramen.codec.varint import read_varint

__all__ = ["find_header_values"]

_NULL: Final = 1  # the varint of the length -1


def find_header_values(batch: bytes, names: Sequence[bytes]) -> Iterator[tuple[int, int, tuple[bytes, ...]]]:
    """(Offset, timestamp, values) of each record of a sound batch that has all of the headers `names`.

    Where a header comes more than once its first value counts, as in NATS. Raises BatchCorrupt where the batch
    contradicts itself.
    """
    found = header(batch)
    codec = found.attributes & CODEC_MASK
    body = memoryview(batch)[HEADER_BYTES : found.size]
    data = decompress(codec, body, MAX_DECOMPRESSED_BYTES) if codec else bytes(body)
    if any(name not in data for name in names):
        return
    position = 0
    try:
        for _ in range(found.records):
            size, position = _size(data, position)
            end = position + size
            if end > len(data):
                raise BatchCorrupt("a record is cut off")
            timestamp_delta, position = read_varint(data, position + 1)
            offset_delta, position = read_varint(data, position)
            size, position = _size(data, position)
            size, position = _size(data, position + size)
            values = _values(data, position + size, end, names)
            if values is not None:
                yield found.base_offset + offset_delta, found.base_timestamp + timestamp_delta, values
            position = end
    except (ValueError, IndexError) as error:
        raise BatchCorrupt(f"a record is damaged: {error}") from None


def _size(data: bytes, position: int) -> tuple[int, int]:
    """A length and the position after it; nothing for that of a null."""
    size = data[position]
    if size < 0x80:
        return size >> 1, position + 1
    size, position = read_varint(data, position)
    return max(0, size), position


def _values(data: bytes, position: int, end: int, names: Sequence[bytes]) -> tuple[bytes, ...] | None:
    """The values of the headers `names` among those that begin at `position`; None where one is missing."""
    found: dict[bytes, bytes] = {}
    count, position = _size(data, position)
    for _ in range(count):
        size = data[position]
        if size < 0x80:
            size, position = size >> 1, position + 1
        else:
            size, position = _size(data, position)
        name = data[position : position + size]
        position += size
        size = data[position]
        if size == _NULL:
            position += 1
            continue
        if size < 0x80:
            size, position = size >> 1, position + 1
        else:
            size, position = _size(data, position)
        if name not in found:
            found[name] = data[position : position + size]
        position += size
    if position != end:
        raise BatchCorrupt("a record's fields do not fill its length")
    try:
        return tuple([found[name] for name in names])
    except KeyError:
        return None
