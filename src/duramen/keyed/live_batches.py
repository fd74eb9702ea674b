"""Batches of a live topic: those that `Extract` builds from a log, and empty ones for holes. Pure."""

import struct
from typing import Final

from duramen.base.ports import Buffer
from duramen.codec.batch import APPEND_TIME, CODEC_MASK, DELETE_HORIZON, HEADER_BYTES, Header, batches
from duramen.codec.crc import crc32c
from duramen.keyed.extract import ShownOffsets, made_anew
from duramen.keyed.kernel import Kernel
from duramen.keyed.view import VisibleRecords

__all__ = ["empty_batches", "live_batches"]

_CRC_AT: Final = 17
_SEALED_AT: Final = 21
_ATTRIBUTES: Final = struct.Struct(">hi")
_PRODUCER: Final = slice(43, 57)
_LARGEST_DELTA: Final = (1 << 31) - 1
_EMPTY: Final = struct.Struct(">hiqqqhii")
_HEAD: Final = struct.Struct(">qiibI")
_MAGIC: Final = 2
_NOBODY: Final = -1
_AS_IT_IS: Final = APPEND_TIME | DELETE_HORIZON


def live_batches(
    kernel: Kernel, data: Buffer, visible: VisibleRecords, first: int, end: int, most_bytes: int
) -> tuple[bytes, int, int]:
    """Batches with the shown records of `[first, end)`, their end, and the offset to continue at.

    Raises BatchCorrupt.
    """
    base, bits = visible
    found = kernel.extract(data, 0, first, end, memoryview(bits).toreadonly(), base, most_bytes)
    shown = ShownOffsets(bits, base, first, end)
    made, reached, start = bytearray(), first, 0
    view = memoryview(found.batches)
    for at, head in batches(view):
        reached = head.next_offset
        # Most batches need no change: they are passed on in place.
        if (
            not head.producer_id == head.producer_epoch == head.base_sequence == _NOBODY
            or head.attributes & ~_AS_IT_IS
            or reached > end
        ):
            made += view[start:at]
            made += _without_producer(view, at, head, shown, end)
            start = at + head.size
    made += view[start:]
    reached = min(reached, end)
    # A shown offset may have no record: a tombstone that compaction has dropped.
    behind = first + 1 if found.position == len(data) else first
    return bytes(made), reached, max(found.next_offset, behind)


def _without_producer(view: memoryview, at: int, head: Header, shown: ShownOffsets, end: int) -> Buffer:
    """Strip the producer of a batch that `Extract` left unchanged; it may have more than the shown records."""
    kept = APPEND_TIME | DELETE_HORIZON | CODEC_MASK
    batch: Buffer = view[at : at + head.size]
    if head.attributes & CODEC_MASK and not shown.every(head.base_offset, head.next_offset):
        batch, kept = made_anew(view, at, head, shown), APPEND_TIME | DELETE_HORIZON
    last = min(head.next_offset, end) - 1 - head.base_offset
    changed = bytearray(batch)
    _ATTRIBUTES.pack_into(changed, _SEALED_AT, head.attributes & kept, last)
    changed[_PRODUCER] = b"\xff" * 14
    if changed != batch:
        struct.pack_into(">I", changed, _CRC_AT, crc32c(memoryview(changed)[_SEALED_AT:]))
    return changed


def empty_batches(first: int, end: int, leader_epoch: int) -> bytes:
    """Batches without records for the offsets `[first, end)`, like those left by compaction."""
    made = b""
    while first < end:
        delta = min(end - 1 - first, _LARGEST_DELTA)
        sealed = _EMPTY.pack(0, delta, -1, -1, -1, -1, -1, 0)
        made += _HEAD.pack(first, HEADER_BYTES - 12, leader_epoch, _MAGIC, crc32c(sealed)) + sealed
        first += delta + 1
    return made
