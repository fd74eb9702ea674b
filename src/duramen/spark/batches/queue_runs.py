"""Entries of queues from the runs of a shard's view, as Arrow: column by column, without a step per row.

`duramen.queues.runs` has the layout of runs.
"""

from collections.abc import Collection, Mapping
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from duramen.codec.exports import RunsPage, headers_at
from duramen.spark.columns import TIMESTAMP_TYPE, BinaryColumns, arrow_schema, header_lists

__all__ = ["entries_of"]

_PADDING: Final = bytes(16)
_RUN_BYTES: Final = 16
_BODY_BYTES: Final = 9
_LATEST_MS: Final = ((1 << 63) - 1) // 1000
"""A timestamp column has microseconds: later and earlier times are shown as the last and the first one."""
_VALUE, _KEY, _HEADERS, _VERSION, _VISIBLE, _EXPIRES = 1, 2, 4, 8, 16, 32

_Numbers = NDArray[np.int64]


class _Bodies(NamedTuple):
    """Bodies of existing entries: the place of each, its queue, and its position."""

    begin: _Numbers
    end: _Numbers
    queue: _Numbers
    epoch: _Numbers
    offset: _Numbers

    def only(self, kept: NDArray[np.bool_]) -> "_Bodies":
        """The bodies where `kept` is true."""
        return _Bodies(*(column[kept] for column in self))


class _Data:
    """Bytes, and the little-endian numbers at any place in them."""

    def __init__(self, data: bytes) -> None:
        self.bytes = data
        size = len(data) - len(_PADDING) + 1

        def at(kind: str) -> NDArray[Any]:
            return np.ndarray((size,), kind, data, strides=(1,))

        self.u8, self.i32, self.u32, self.i64 = at("<u1"), at("<i4"), at("<u4"), at("<i8")


class _Fields(NamedTuple):
    """The fields of bodies: sizes are -1 for absent ones."""

    flags: _Numbers
    timestamp: _Numbers
    version: _Numbers
    key: _Numbers
    key_size: _Numbers
    headers: _Numbers
    expires_ms: _Numbers
    value: _Numbers
    value_size: _Numbers


def entries_of(page: RunsPage, now_ms: int, columns: Collection[str]) -> pa.RecordBatch:
    """The entries of a page that have not expired, with these columns."""
    data = _Data(b"".join((*page.runs, _PADDING)))
    bodies = _bodies(data, page)
    fields = _fields(data, bodies)
    if (fields.flags & _EXPIRES).any():
        kept = (fields.expires_ms == 0) | (fields.expires_ms > now_ms)
        bodies, fields = bodies.only(kept), _Fields(*(column[kept] for column in fields))
    makers: Mapping[str, Any] = {
        "queue": lambda: pa.array([name.decode() for name in page.names], pa.string()).take(pa.array(bodies.queue)),
        "position": lambda: _positions(bodies),
        "version": lambda: pa.array(fields.version),
        "headers": lambda: _headers(data, fields),
        "enqueued_at": lambda: pa.array(np.clip(fields.timestamp, -_LATEST_MS, _LATEST_MS) * 1000).view(TIMESTAMP_TYPE),
    }
    made = {name: makers[name]() for name in columns if name in makers}
    if "key" in columns or "value" in columns:
        both = BinaryColumns(pa.py_buffer(data.bytes), fields.key, fields.key_size, fields.value, fields.value_size)
        made |= {"key": both.first(), "value": both.second()}
    wanted = [name for name in columns if name in made]
    return pa.RecordBatch.from_arrays([made[name] for name in wanted], schema=arrow_schema(wanted))


def _bodies(data: _Data, page: RunsPage) -> _Bodies:
    sizes = np.fromiter(map(len, page.runs), np.int64, len(page.runs))
    start = np.cumsum(sizes) - sizes
    queue = np.repeat(np.arange(len(page.counts)), page.counts)
    count = data.u32[start + 12].astype(np.int64)
    run = np.repeat(np.arange(len(start)), count)
    number = np.arange(len(run)) - np.repeat(np.cumsum(count) - count, count)
    offsets = start[run] + _RUN_BYTES + 4 * number
    ends = offsets + 4 * count[run]
    base = (start + _RUN_BYTES + 8 * count)[run]
    end = base + data.u32[ends]
    begin = base + np.where(number > 0, data.u32[ends - 4], 0)
    offset = data.i64[start][run] + data.u32[offsets]
    found = _Bodies(begin, end, queue[run], data.i32[start + 8].astype(np.int64)[run], offset)
    return found.only(end > begin)  # an empty body is a deleted entry's


def _fields(data: _Data, bodies: _Bodies) -> _Fields:
    flags = data.u8[bodies.begin].astype(np.int64)
    at = bodies.begin + _BODY_BYTES

    def number(flag: int, otherwise: _Numbers | int) -> _Numbers:
        nonlocal at
        there = flags & flag != 0
        found = np.where(there, data.i64[at], otherwise)
        at = at + 8 * there
        return found

    version = number(_VERSION, bodies.offset)
    has_key = flags & _KEY != 0
    key_size = np.where(has_key, data.u32[at].astype(np.int64), -1)
    key = at + 4 * has_key
    at = key + np.maximum(key_size, 0)
    headers = at
    with_headers = np.flatnonzero(flags & _HEADERS)
    if len(with_headers):
        at = at.copy()
        at[with_headers] = [headers_at(data.bytes, int(place))[1] for place in at[with_headers]]
    number(_VISIBLE, 0)
    expires_ms = number(_EXPIRES, 0)
    value_size = np.where(flags & _VALUE != 0, bodies.end - at, -1)
    return _Fields(flags, data.i64[bodies.begin + 1], version, key, key_size, headers, expires_ms, at, value_size)


def _positions(bodies: _Bodies) -> pa.Array:
    epoch, offset = (pa.array(numbers).cast(pa.string()) for numbers in (bodies.epoch, bodies.offset))
    return pc.binary_join_element_wise(epoch, offset, ".")


def _headers(data: _Data, fields: _Fields) -> pa.Array:
    counts = np.zeros(len(fields.flags), np.int64)
    names, values = list[str](), list[bytes | None]()
    for row in np.flatnonzero(fields.flags & _HEADERS):
        found, _ = headers_at(data.bytes, int(fields.headers[row]))
        counts[row] = len(found)
        names += [name.decode(errors="replace") for name, _ in found]
        values += [value for _, value in found]
    return header_lists(counts, pa.array(names, pa.string()), pa.array(values, pa.binary()))
