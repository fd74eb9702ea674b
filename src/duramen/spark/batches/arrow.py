"""Record batches to Arrow, without a Python object per record. Pure; numpy and pyarrow only.

The twin of the native decoder: its reference in tests, and the fallback without the package.

The batches of one fetch are decoded together: their headers one by one (`bodies`), then every field of all records at
once. `rows` finds where records begin, and reads a varint of every row in as many steps as the longest has bytes. Keys
and values are adjacent in one Arrow array over the batches' own bytes, from which `take` copies the columns for Spark
(`columns`). Unusual input goes to the plain decoder in `plain`, the reference, which decodes it or names the error.
"""

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from duramen.base.ports import Buffer
from duramen.codec.batch import APPEND_TIME
from duramen.spark.batches import plain
from duramen.spark.batches.bodies import Body, joined, portions
from duramen.spark.batches.rows import Bytes, Odd, Places, read_varints, record_starts
from duramen.spark.columns import BinaryColumns, Rows, check_columns, header_lists, record_batch

__all__ = ["decode", "decode_rows"]

_SAFE: Final = 1 << 61  # sums of two numbers below this do not overflow
_MOST_HEADERS: Final = 64  # of one record; beyond it the plain decoder is faster


def decode(buffer: Buffer, first: int, end: int, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """The records in `buffer`, which has whole record batches, with an offset in `[first, end)`.

    A batch that is cut off at the buffer's end is left out, as are control batches. Raises BatchCorrupt for a batch
    that does not match its CRC or is malformed; ValueError if `columns` are not of `RECORD_COLUMNS`.
    """
    check_columns(columns)
    for bodies in portions(memoryview(buffer), first, end):
        rows = decode_rows(bodies, first, end, columns)
        if len(rows.offsets):
            yield record_batch(rows, columns)


def decode_rows(bodies: Sequence[Body], first: int, end: int, columns: Collection[str]) -> Rows:
    """Like `plain.decode_rows`, but faster."""
    try:
        return _decode_rows(bodies, first, end, columns)
    except (Odd, IndexError):
        return plain.decode_rows(bodies, first, end, columns)


def _require(fits: NDArray[np.bool_]) -> None:
    if not fits.all():
        raise Odd


def _decode_rows(bodies: Sequence[Body], first: int, end: int, columns: Collection[str]) -> Rows:
    buffer, bodies = joined(bodies)
    data = np.frombuffer(buffer, np.uint8)
    counts = np.array([body.head.records for body in bodies], np.int64)
    starts = record_starts(data, [(body.position, body.end, body.head.records) for body in bodies])
    limits = np.empty_like(starts)
    limits[:-1] = starts[1:]
    limits[np.cumsum(counts) - 1] = [body.end for body in bodies]
    _, at = read_varints(data, starts)
    timestamp_deltas, at = read_varints(data, at + 1)
    offset_deltas, at = read_varints(data, at)
    key_sizes, keys = read_varints(data, at)
    at = _past(keys, key_sizes, limits)
    value_sizes, values = read_varints(data, at)
    at = _past(values, value_sizes, limits)
    header_counts, at = read_varints(data, at)
    _require((header_counts >= 0) & (at <= limits) & ((header_counts > 0) | (at == limits)))
    offsets, timestamps, types = _places(bodies, counts, offset_deltas, timestamp_deltas)
    content = pa.py_buffer(buffer)
    header_column = _headers(data, content, at, limits, header_counts) if "headers" in columns else None
    kept = (offsets >= first) & (offsets < end)
    if not kept.all():
        keys, key_sizes, values, value_sizes = keys[kept], key_sizes[kept], values[kept], value_sizes[kept]
        offsets, timestamps, types = offsets[kept], timestamps[kept], types[kept]
        header_column = header_column.filter(pa.array(kept)) if header_column is not None else None
    both = BinaryColumns(content, keys, key_sizes, values, value_sizes)
    return Rows(
        both.first() if "key" in columns else None,
        both.second() if "value" in columns else None,
        offsets,
        timestamps,
        types,
        header_column,
    )


def _past(at: Places, sizes: Places, limits: Places) -> Places:
    """The ends of fields that start at `at`; they must be inside their records."""
    _require(sizes <= limits - at)
    past: Places = at + np.maximum(sizes, 0)
    _require(past <= limits)
    return past


def _places(
    bodies: Sequence[Body], counts: Places, offset_deltas: Places, timestamp_deltas: Places
) -> tuple[Places, Places, NDArray[np.int32]]:
    """Offsets, timestamps in ms and their types."""
    last, base_offsets, base_timestamps, max_timestamps = (
        np.repeat(np.array(values, np.int64), counts)
        for values in zip(
            *((b.head.last_offset_delta, b.head.base_offset, b.head.base_timestamp, b.head.max_timestamp)
              for b in bodies),
            strict=True,
        )
    )  # fmt: skip
    _require((offset_deltas >= 0) & (offset_deltas <= last))
    if any(max(abs(b.head.base_timestamp), abs(b.head.max_timestamp)) >= _SAFE for b in bodies):
        raise Odd
    _require(np.abs(timestamp_deltas) < _SAFE)
    types = np.repeat(np.array([bool(body.head.attributes & APPEND_TIME) for body in bodies], np.int32), counts)
    timestamps = np.where(types == 0, base_timestamps + timestamp_deltas, max_timestamps)
    return base_offsets + offset_deltas, timestamps, types


def _headers(data: Bytes, content: pa.Buffer, at: Places, limits: Places, counts: Places) -> pa.Array:
    """The lists of headers that start at `at`: read level by level (every record's first, second …), then ordered."""
    at = at.copy()
    levels: list[tuple[Places, ...]] = []
    rows: Places = np.flatnonzero(counts)
    while rows.size:
        if len(levels) == _MOST_HEADERS:
            raise Odd
        name_sizes, names = read_varints(data, at[rows])
        _require(name_sizes >= 0)
        value_sizes, values = read_varints(data, _past(names, name_sizes, limits[rows]))
        at[rows] = _past(values, value_sizes, limits[rows])
        levels.append((rows, names, name_sizes, values, value_sizes))
        rows = rows[counts[rows] > len(levels)]
    _require(at == limits)
    if not levels:
        levels.append((counts[:0],) * 5)
    rows, names, name_sizes, values, value_sizes = (np.concatenate(column) for column in zip(*levels, strict=True))
    order = np.argsort(rows, kind="stable")
    both = BinaryColumns(content, names[order], name_sizes[order], values[order], value_sizes[order])
    return header_lists(counts, _as_text(both.first()), both.second())


def _as_text(names: pa.Array) -> pa.Array:
    _, ends, content = names.buffers()
    text = pa.Array.from_buffers(pa.string(), len(names), [None, ends, content])
    if content is not None and (np.frombuffer(memoryview(content), np.uint8) >= 0x80).any():
        try:
            text.validate(full=True)
        except pa.ArrowInvalid:
            raise Odd from None
    return text
