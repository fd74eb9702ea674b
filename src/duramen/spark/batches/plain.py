"""Records decoded one by one: the reference for `arrow`, and its fallback for unusual bytes. Pure."""

from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from duramen.base.errors import BatchCorrupt
from duramen.base.ports import Buffer
from duramen.codec.batch import APPEND_TIME, Header
from duramen.codec.varint import read_varint
from duramen.spark.batches.bodies import Body
from duramen.spark.columns import Rows, header_lists

__all__ = ["decode_rows"]

_INT64_MAX = (1 << 63) - 1

_Headers = list[tuple[str, bytes | None]]


class _Lists:
    """Rows being collected."""

    def __init__(self) -> None:
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.offsets: list[int] = []
        self.timestamps: list[int] = []
        self.types: list[int] = []
        self.headers: list[_Headers] = []


def decode_rows(bodies: Sequence[Body], first: int, end: int, columns: Collection[str]) -> Rows:
    """The records of `bodies` with offsets in `[first, end)`. Raises BatchCorrupt.

    Headers are decoded only if they are among `columns`.
    """
    lists, headers = _Lists(), "headers" in columns
    for body in bodies:
        try:
            _decode_body(body, first, end, lists, headers=headers)
        except (ValueError, IndexError) as error:
            raise BatchCorrupt(f"a record of the batch at offset {body.head.base_offset} is damaged: {error}") from None
    return Rows(
        pa.array(lists.keys, pa.binary()) if "key" in columns else None,
        pa.array(lists.values, pa.binary()) if "value" in columns else None,
        np.array(lists.offsets, np.int64),
        np.array(lists.timestamps, np.int64),
        np.array(lists.types, np.int32),
        _header_column(lists.headers) if headers else None,
    )


def _header_column(rows: list[_Headers]) -> pa.Array:
    names = pa.array([name for row in rows for name, _ in row], pa.string())
    values = pa.array([value for row in rows for _, value in row], pa.binary())
    return header_lists(np.array([len(row) for row in rows], np.int64), names, values)


def _decode_body(body: Body, first: int, end: int, lists: _Lists, *, headers: bool) -> None:
    head, data = body.head, memoryview(body.data)[: body.end]
    append_time = bool(head.attributes & APPEND_TIME)
    position = body.position
    for _ in range(head.records):
        length, position = read_varint(data, position)
        limit = position + length
        if length < 0 or limit > body.end:
            raise ValueError("it is cut off")
        timestamp_delta, position = read_varint(data, position + 1)
        offset_delta, position = read_varint(data, position)
        key, position = _field(data, position, limit)
        value, position = _field(data, position, limit)
        count, position = read_varint(data, position)
        if count < 0 or position > limit or (count == 0 and position != limit):
            raise ValueError("its fields do not fill its length")
        offset, timestamp = _place(head, offset_delta, timestamp_delta, append_time=append_time)
        found = _headers(data, position, limit, count) if headers else []
        position = limit
        if first <= offset < end:
            lists.keys.append(key)
            lists.values.append(value)
            lists.offsets.append(offset)
            lists.timestamps.append(timestamp)
            lists.types.append(append_time)
            lists.headers.append(found)
    if position != body.end:
        raise ValueError(f"{body.end - position} bytes follow the last one")


def _place(head: Header, offset_delta: int, timestamp_delta: int, *, append_time: bool) -> tuple[int, int]:
    if not 0 <= offset_delta <= head.last_offset_delta:
        raise ValueError(f"its offset is not one of the batch's ({offset_delta})")
    timestamp = head.max_timestamp if append_time else head.base_timestamp + timestamp_delta
    if not -_INT64_MAX <= timestamp <= _INT64_MAX:
        raise ValueError("its timestamp has more than 64 bits")
    return head.base_offset + offset_delta, timestamp


def _field(data: Buffer, position: int, limit: int) -> tuple[bytes | None, int]:
    length, position = read_varint(data, position)
    if length < 0:
        return None, position
    if position + length > limit:
        raise ValueError("it is cut off")
    return bytes(data[position : position + length]), position + length


def _headers(data: Buffer, position: int, limit: int, count: int) -> _Headers:
    if count > limit - position:
        raise ValueError(f"it cannot have {count} headers")
    found = []
    for _ in range(count):
        name, position = _field(data, position, limit)
        value, position = _field(data, position, limit)
        if name is None:
            raise ValueError("a header has no key")
        found.append((name.decode("utf-8", "replace"), value))
    if position != limit:
        raise ValueError("its fields do not fill its length")
    return found
