"""Reads batches of plain records without an object per record.

`codec.batch.encode` writes batches of values only, all with one timestamp; events are stored so, and a start reads tens
of thousands of them. Most producers write batches of keys and values.
"""

from collections.abc import Iterator
from typing import Final

from duramen.base.errors import BatchCorrupt
from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.codec.batch import (
    APPEND_TIME,
    CODEC_MASK,
    CONTROL,
    CRC_START,
    HEADER_BYTES,
    LARGEST_BASE_OFFSET,
    MAX_DECOMPRESSED_BYTES,
    DecodedRecord,
    header,
    records,
)
from duramen.codec.crc import crc32c
from duramen.codec.varint import read_varint

__all__ = [
    "KeyedRecord",
    "keyed_records",
    "newest_keyed",
    "plain_entries",
    "plain_newest_keyed",
    "plain_records",
    "plain_values",
]

KeyedRecord = tuple[int, int, bytes, bytes | None]
"""Offset, timestamp, key and value."""

_SHORT: Final = tuple(byte < 0x80 and not byte & 1 for byte in range(256))  # varints of one byte that are not negative
_FURTHEST: Final = 1 << 62  # two such numbers together have 64 bits

_MAGIC: Final = 2
_NO_TIME: Final = -(1 << 63)
_NO_KEY: Final = 1  # the length -1


def plain_values(batch: bytes) -> list[bytes] | None:
    """The values of a whole batch whose CRC is right; None where it is not plain or not sound: ask `records` then.

    Raises BatchCorrupt where it is too short for a header.
    """
    found = header(batch)
    if found.magic != _MAGIC or found.size != len(batch) or found.attributes & CODEC_MASK:
        return None
    values: list[bytes] = []
    end = HEADER_BYTES
    try:
        for index in range(found.records):
            length, begin = read_varint(batch, end)
            offset_delta, key = read_varint(batch, begin + 2)
            size, value = read_varint(batch, key + 1)
            end = value + size
            if batch[begin] or batch[begin + 1] or offset_delta != index or batch[key] != _NO_KEY:
                return None
            if size < 0 or batch[end] or end + 1 != begin + length:  # the last byte means: no headers
                return None
            values.append(batch[value:end])
            end += 1
    except (ValueError, IndexError):
        return None
    return values if end == len(batch) and found.records == found.last_offset_delta + 1 else None


def keyed_records(batch: Buffer, *, verify: bool) -> list[KeyedRecord] | None:
    """The records of a whole batch; None where one has headers or no key, or it is compressed or not sound.

    Then ask `records`. Raises BatchCorrupt where it is too short for a header.
    """
    found = header(batch)
    if found.magic != _MAGIC or found.size != len(batch) or found.attributes & (CODEC_MASK | APPEND_TIME):
        return None
    if verify and crc32c(memoryview(batch)[CRC_START:]) != found.crc:
        return None
    base_offset, base_timestamp = found.base_offset, found.base_timestamp
    if not -_FURTHEST < base_timestamp < _FURTHEST:
        return None
    data, rows, at, previous = bytes(batch), list[KeyedRecord](), HEADER_BYTES, -1
    try:
        for _ in range(found.records):
            length, at = read_varint(data, at)
            end = at + length
            timestamp_delta, at = (data[at + 1] >> 1, at + 2) if _SHORT[data[at + 1]] else read_varint(data, at + 1)
            offset_delta, at = read_varint(data, at)
            size, at = (data[at] >> 1, at + 1) if _SHORT[data[at]] else read_varint(data, at)
            key = data[at : at + size]
            at += size
            value_size, at = read_varint(data, at)
            value = None if value_size < 0 else data[at : at + value_size]
            at += max(0, value_size)
            plain = size >= 0 and not data[at] and at + 1 == end  # the last byte means: no headers
            if not plain or offset_delta <= previous or not -_FURTHEST < timestamp_delta < _FURTHEST:
                return None
            rows.append((base_offset + offset_delta, base_timestamp + timestamp_delta, key, value))
            at, previous = end, offset_delta
    except (ValueError, IndexError):
        return None
    return rows if at == len(data) and previous <= found.last_offset_delta else None


def plain_entries(
    batch: Buffer, *, verify: bool, limit_bytes: int = MAX_DECOMPRESSED_BYTES
) -> list[KeyedRecord] | None:
    """Like `keyed_records`, also for compressed batches; None also for a control batch."""
    if _is_ordinary(batch):
        found = keyed_records(batch, verify=verify)
        if found is not None:
            return found
    rows = list[KeyedRecord]()
    for record in plain_records(batch, verify=verify, limit_bytes=limit_bytes):
        if record is None or record.key is None or record.headers:
            return None
        rows.append((record.offset, record.timestamp, record.key, record.value))
    return rows


def plain_records(
    batch: Buffer, *, verify: bool = True, limit_bytes: int = MAX_DECOMPRESSED_BYTES
) -> Iterator[DecodedRecord | None]:
    """The records of a whole batch; None, and nothing after it, where it is not sound, or a control batch."""
    try:
        if not _is_ordinary(batch):
            yield None
            return
        for record in records(batch, verify=verify, limit_bytes=limit_bytes):
            if record.timestamp == _NO_TIME:
                yield None
                return
            yield record
    except BatchCorrupt:
        yield None


def _is_ordinary(batch: Buffer) -> bool:
    """Whether a header is that of a whole batch of records, as far as it can tell."""
    try:
        head = header(batch)
    except BatchCorrupt:
        return False
    in_range = head.records >= 0 and 0 <= head.base_offset < LARGEST_BASE_OFFSET
    return in_range and head.size == len(batch) and not head.attributes & CONTROL


def newest_keyed(batch: Buffer, limit_bytes: int) -> int | None:
    """The largest timestamp of a batch whose records all have a key; None where one has none, or it is not sound.

    It is decompressed to so many bytes at most, and its CRC is not looked at.
    """
    if not is_installed():
        return plain_newest_keyed(batch, limit_bytes)
    import duramen_native

    return duramen_native.newest_keyed(batch, limit_bytes)


def plain_newest_keyed(batch: Buffer, limit_bytes: int) -> int | None:
    """`newest_keyed` in plain Python."""
    newest = _NO_TIME
    try:
        head = header(batch)
        if head.size != len(batch) or head.attributes & CONTROL or head.records <= 0:
            return None
        if not 0 <= head.base_offset < LARGEST_BASE_OFFSET:
            return None
        for record in records(batch, verify=False, limit_bytes=limit_bytes):
            if record.key is None or record.timestamp == _NO_TIME:
                return None
            newest = max(newest, record.timestamp)
    except BatchCorrupt:
        return None
    return newest
