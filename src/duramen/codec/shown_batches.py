"""A page of a snapshot as bytes: record batches, and a bit for each visible record. Pure except for the native package.

0  bytes   DURPAG01
8  int64   first offset            records before it are not of this page
16  int64   next offset             records from it on are not of this page; a reader goes on there
24  int64   base                    the offset of the first bit
32  uint32  size of the bits in bytes
36  …       bits, bit i % 8 of byte i // 8 is the offset base + i; then record batches to the end,
           mostly with nothing but what is shown: others are as the log has them
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.codec.batch import CONTROL, LARGEST_BASE_OFFSET, DecodedRecord, batches, records

__all__ = [
    "BATCHES_TYPE",
    "NEXT_OFFSET_HEADER",
    "ShownFields",
    "ShownPage",
    "decode_page",
    "encode_page",
    "plain_fields",
    "shown_fields",
]

BATCHES_TYPE: Final = "application/vnd.duramen.batches"
NEXT_OFFSET_HEADER: Final = "Duramen-Next-Offset"
"""The header with the next position in a response that is no JSON document; absent at the end."""

_MAGIC: Final = b"DURPAG01"
_NO_TIME: Final = -(1 << 63)
_HEAD: Final = struct.Struct(">8sqqqI")


class ShownPage(NamedTuple):
    """Shown are the records of `batches` with offsets in `[first, next_offset)` that have their bit, from `base` on."""

    first: int
    next_offset: int
    base: int
    bits: Buffer
    batches: Buffer


class ShownFields(NamedTuple):
    """The records that are shown, field by field: a list of each, as long as the others."""

    offsets: list[int]
    timestamps_ms: list[int]
    keys: list[bytes | None]
    values: list[bytes | None]
    headers: list[tuple[tuple[bytes, bytes | None], ...]]


def encode_page(first: int, next_offset: int, base: int, bits: Buffer, batches: Iterable[Buffer]) -> bytes:
    """The page as bytes."""
    return b"".join((_HEAD.pack(_MAGIC, first, next_offset, base, len(bits)), bits, *batches))


def decode_page(content: bytes) -> ShownPage:
    """The page that was encoded. Raises BatchCorrupt."""
    view = memoryview(content)
    if len(view) < _HEAD.size:
        raise BatchCorrupt("a page of a snapshot is cut off")
    magic, first, next_offset, base, size = _HEAD.unpack_from(view)
    if magic != _MAGIC or _HEAD.size + size > len(view) or not 0 <= base <= first <= next_offset:
        raise BatchCorrupt("this is no page of a snapshot")
    split = _HEAD.size + size
    return ShownPage(first, next_offset, base, view[_HEAD.size : split], view[split:])


def shown_fields(page: ShownPage) -> ShownFields:
    """The content of the page. Raises BatchCorrupt."""
    if not is_installed():
        return plain_fields(page)
    import duramen_native

    try:
        return ShownFields(
            *duramen_native.shown_fields(page.batches, page.first, page.next_offset, page.bits, page.base)
        )
    except ValueError as error:
        raise BatchCorrupt(str(error)) from None


def plain_fields(page: ShownPage) -> ShownFields:
    """`shown_fields` in plain Python."""
    found, view, bits, base = list[DecodedRecord](), memoryview(page.batches), page.bits, page.base
    first, end = max(page.first, base), min(page.next_offset, base + 8 * len(bits))
    for at, head in batches(view):
        if head.attributes & CONTROL:
            continue
        if head.records < 0 or not 0 <= head.base_offset < LARGEST_BASE_OFFSET:
            raise BatchCorrupt(f"the record batch at offset {head.base_offset} has {head.records} records")
        for record in records(view[at : at + head.size]):
            if record.timestamp == _NO_TIME:
                raise BatchCorrupt(f"a record has the timestamp {record.timestamp}")
            place = record.offset - base
            if first <= record.offset < end and bits[place >> 3] >> (place & 7) & 1:
                found.append(record)
    return ShownFields(*map(list, zip(*found, strict=True))) if found else ShownFields([], [], [], [], [])
