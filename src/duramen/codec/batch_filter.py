"""Removes records from a batch: finds the records, and builds the batch again from those that stay.

Remaining records keep their offset and timestamp. The batch keeps its base offset, last offset delta, producer,
sequence, epoch and codec. Records are copied unchanged; only keys are read, values and headers are skipped.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import Buffer
from duramen.codec.batch import (
    APPEND_TIME,
    CODEC_MASK,
    DELETE_HORIZON,
    HEADER_BYTES,
    LENGTH_END,
    MAX_DECOMPRESSED_BYTES,
    Header,
)
from duramen.codec.compression import compress, decompress
from duramen.codec.crc import crc32c
from duramen.codec.varint import encode_varint, read_varint

__all__ = ["RecordSpan", "body", "marker_type", "rebuild", "spans"]

_UNSEALED = struct.Struct(">qiibI")
_SEALED = struct.Struct(">hiqqqhii")
_MARKER = struct.Struct(">hh")


class RecordSpan(NamedTuple):
    """The place of a record in a batch's decompressed records, and the fields that decide whether it stays."""

    start: int
    end: int
    offset_delta: int
    timestamp_delta: int
    key: bytes | None
    tombstone: bool


_span = RecordSpan._make


def body(batch: Buffer, found: Header, limit_bytes: int = MAX_DECOMPRESSED_BYTES) -> bytes:
    """The records of a whole batch, decompressed. Raises BatchCorrupt."""
    codec = found.attributes & CODEC_MASK
    data = memoryview(batch)[HEADER_BYTES : found.size]
    return decompress(codec, data, limit_bytes) if codec else bytes(data)


def spans(data: bytes, count: int) -> Iterator[RecordSpan]:
    """The `count` records in `data`. Raises BatchCorrupt where one of them does not fit."""
    position = 0
    try:
        for _ in range(count):
            start = position
            length, position = read_varint(data, position)
            end = position + length
            timestamp_delta, position = read_varint(data, position + 1)
            offset_delta, position = read_varint(data, position)
            low = data[position]
            size, position = (low >> 1 ^ -(low & 1), position + 1) if low < 0x80 else read_varint(data, position)
            key = None
            if size >= 0:
                key = data[position : position + size]
                position += size
            size, position = read_varint(data, position)
            if length < 0 or end > len(data) or position > end:
                raise BatchCorrupt("a record is cut off")
            yield _span((start, end, offset_delta, timestamp_delta, key, size < 0))
            position = end
    except (ValueError, IndexError) as error:
        raise BatchCorrupt(f"a record is damaged: {error}") from None


def marker_type(data: bytes) -> int | None:
    """The type of the control record that begins `data`: 0 aborts, 1 commits a transaction; None where there is none.

    https://kafka.apache.org/documentation/#controlbatch
    """
    span = next(spans(data, 1), None) if data else None
    if span is None or span.key is None or len(span.key) < _MARKER.size:
        return None
    return int(_MARKER.unpack_from(span.key)[1])


def rebuild(found: Header, data: bytes, kept: Sequence[RecordSpan], delete_horizon_ms: int = -1) -> bytes:
    """The batch with only the records in `kept`; with a delete horizon if one is given (KIP-534).

    The largest timestamp is that of the remaining records; a batch without records keeps its own.
    """
    attributes, base_timestamp = found.attributes, found.base_timestamp
    if delete_horizon_ms >= 0:
        attributes, base_timestamp = attributes | DELETE_HORIZON, delete_horizon_ms
    shift = found.base_timestamp - base_timestamp
    parts = [_shifted(data, span, shift) if shift else data[span.start : span.end] for span in kept]
    max_timestamp = found.max_timestamp
    if kept and not attributes & APPEND_TIME:
        max_timestamp = found.base_timestamp + max(span.timestamp_delta for span in kept)
    codec = attributes & CODEC_MASK
    content = b"".join(parts)
    if codec and kept:
        content = compress(codec, content)
    elif codec:
        attributes &= ~CODEC_MASK
    sealed = _SEALED.pack(
        attributes,
        found.last_offset_delta,
        base_timestamp,
        max_timestamp,
        found.producer_id,
        found.producer_epoch,
        found.base_sequence,
        len(kept),
    )
    length = HEADER_BYTES - LENGTH_END + len(content)
    crc = crc32c(content, crc32c(sealed))
    return _UNSEALED.pack(found.base_offset, length, found.leader_epoch, found.magic, crc) + sealed + content


def _shifted(data: bytes, span: RecordSpan, shift: int) -> bytes:
    """A record whose timestamp is relative to a base that is `shift` ms earlier."""
    _, start = read_varint(data, span.start)
    _, rest = read_varint(data, start + 1)
    record = data[start : start + 1] + encode_varint(span.timestamp_delta + shift) + data[rest : span.end]
    return encode_varint(len(record)) + record
