"""Builds batches of the records that a snapshot shows, in plain Python: the native function's reference. Pure."""

import struct
from collections.abc import Iterator
from typing import Final

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import Buffer
from duramen.codec.batch import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    Header,
    batches,
    checked_body,
)
from duramen.codec.crc import crc32c
from duramen.codec.varint import read_varint
from duramen.keyed.kernel import Extracted

__all__ = ["SMALLEST_RECORD_BYTES", "ShownOffsets", "extract", "made_anew", "whole"]

SMALLEST_RECORD_BYTES: Final = 7
_UNSEALED = struct.Struct(">qiibI")
_SEALED = struct.Struct(">hiqqqhii")


def whole(view: memoryview, position: int) -> Iterator[tuple[int, Header]]:
    """Positions and headers of the whole batches; raises BatchCorrupt only for the first one."""
    began = True
    found = batches(view[position:])
    while True:
        try:
            at, head = next(found)
        except StopIteration:
            return
        except BatchCorrupt:
            if began:
                raise
            return
        began = False
        yield position + at, head


def extract(data: Buffer, position: int, first: int, end: int, bits: Buffer, base: int, most_bytes: int) -> Extracted:
    """See `Extract`."""
    view = memoryview(data).toreadonly().cast("B")
    shown = ShownOffsets(bits, base, first, end)
    made, next_offset, began = bytearray(), first, position
    for at, head in whole(view, position):
        if head.base_offset >= end:
            next_offset = max(next_offset, end)
            break
        if not head.attributes & CONTROL and shown.some(head.base_offset, head.next_offset):
            if len(made) >= max(1, most_bytes):
                break
            try:
                made += _made(view, at, head, shown)
            except BatchCorrupt:
                if at == began:
                    raise
                break
        position = at + head.size
        next_offset = max(next_offset, min(head.next_offset, end))
    return Extracted(position, next_offset, bytes(made))


class ShownOffsets:
    """The offsets of shown records."""

    def __init__(self, bits: Buffer, base: int, first: int, end: int) -> None:
        self._bits = bits
        self._base = base
        self._first = max(first, base)
        self._end = min(end, base + 8 * len(bits))

    def has(self, offset: int) -> bool:
        """Whether the record at this offset is shown."""
        place = offset - self._base
        return self._first <= offset < self._end and bool(self._bits[place >> 3] >> (place & 7) & 1)

    def some(self, first: int, end: int) -> bool:
        """Whether a record at one of these offsets is shown."""
        start, stop = max(first, self._first) - self._base, min(end, self._end) - self._base
        if start >= stop:
            return False
        low, high = start >> 3, (stop - 1) >> 3
        found = int.from_bytes(self._bits[low : high + 1], "little")
        return bool(found & ((1 << (stop - 8 * low)) - (1 << (start - 8 * low))))

    def every(self, first: int, end: int) -> bool:
        """Whether all records at these offsets are shown."""
        start, stop = first - self._base, end - self._base
        if first < self._first or end > self._end:
            return False
        found = int.from_bytes(self._bits[start >> 3 : stop + 7 >> 3], "little") >> (start & 7)
        return found.bit_count() >= stop - start and not ~found & ((1 << stop - start) - 1)


def _made(view: memoryview, at: int, head: Header, shown: ShownOffsets) -> Buffer:
    """The batch with the shown records, unchanged if that is not longer; empty without any."""
    made = made_anew(view, at, head, shown)
    return view[at : at + head.size] if len(made) >= head.size else made


def made_anew(view: memoryview, at: int, head: Header, shown: ShownOffsets) -> bytes:
    """The batch with the shown records, uncompressed; empty without any. Raises BatchCorrupt."""
    content, start, stop = checked_body(view, at, head)
    if head.records > (stop - start) // SMALLEST_RECORD_BYTES:
        raise BatchCorrupt(
            f"a record of the batch at offset {head.base_offset} is damaged: "
            f"{head.records} do not fit into {stop - start} bytes"
        )
    data = bytes(content[start:stop])
    try:
        kept = _kept(data, head, shown)
    except (ValueError, IndexError):
        raise BatchCorrupt(f"a record of the batch at offset {head.base_offset} is damaged") from None
    return _sealed(head, len(kept), b"".join(kept)) if kept else b""


def _kept(data: bytes, head: Header, shown: ShownOffsets) -> list[bytes]:
    kept = list[bytes]()
    position, previous = 0, -1
    for _ in range(head.records):
        start = position
        length, position = read_varint(data, position)
        end = position + length
        _, position = read_varint(data, position + 1)
        delta, position = read_varint(data, position)
        if not position <= end <= len(data) or not previous < delta <= head.last_offset_delta:
            raise ValueError("its fields do not fill its length")
        if shown.has(head.base_offset + delta):
            kept.append(data[start:end])
        position, previous = end, delta
    if position != len(data):
        raise ValueError("bytes follow the last record")
    return kept


def _sealed(head: Header, records: int, body: bytes) -> bytes:
    attributes = head.attributes & (APPEND_TIME | DELETE_HORIZON)
    sealed = _SEALED.pack(
        attributes, head.last_offset_delta, head.base_timestamp, head.max_timestamp, -1, -1, -1, records
    )
    length = HEADER_BYTES - LENGTH_END + len(body)
    crc = crc32c(body, crc32c(sealed))
    return _UNSEALED.pack(head.base_offset, length, head.leader_epoch, head.magic, crc) + sealed + body
