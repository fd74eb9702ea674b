"""A page of a snapshot as bytes: whole record batches as the log has them, and which of their records are shown. Pure.

0  bytes   DURPAG01
8  int64   first offset            records before it are not of this page
16  int64   next offset             records from it on are not of this page; a reader goes on there
24  int64   base                    the offset of the first bit
32  uint32  size of the bits in bytes
36  …       bits, bit i % 8 of byte i // 8 is the offset base + i; then whole record batches to the end
"""

import struct
from collections.abc import Iterable
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import Buffer

__all__ = ["BATCHES_TYPE", "NEXT_OFFSET_HEADER", "ShownPage", "decode_page", "encode_page"]

BATCHES_TYPE: Final = "application/vnd.duramen.batches"
NEXT_OFFSET_HEADER: Final = "Duramen-Next-Offset"
"""Where to go on, in an answer that is no JSON document; absent where these were the last."""

_MAGIC: Final = b"DURPAG01"
_HEAD: Final = struct.Struct(">8sqqqI")


class ShownPage(NamedTuple):
    """Shown are the records of `batches` with offsets in `[first, next_offset)` that have their bit, from `base` on."""

    first: int
    next_offset: int
    base: int
    bits: Buffer
    batches: Buffer


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
