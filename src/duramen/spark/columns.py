"""The columns that Spark's Kafka source has, as Arrow wants them, and the rows that decoding makes put into them. Pure.

`COLUMNS` is Spark's schema in its own notation, `arrow_schema` is the same for Arrow.
"""

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = ["COLUMNS", "HEADERS_COLUMN", "Part", "Rows", "arrow_schema", "bitmap", "header_lists", "pairs"]

COLUMNS: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
HEADERS_COLUMN: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

_TIMESTAMP: Final = pa.timestamp("us", "UTC")
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_LARGEST_MS: Final = ((1 << 63) - 1) // 1000
_FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIMESTAMP),
    pa.field("timestampType", pa.int32()),
)


def arrow_schema(*, headers: bool) -> pa.Schema:
    """What a batch looks like, with the column `headers` or without."""
    return pa.schema([*_FIELDS, pa.field("headers", _HEADERS)] if headers else _FIELDS)


class Rows(NamedTuple):
    """Decoded rows: `timestamps` are ms since 1970, `types` 0 (the producer's) or 1 (the append's)."""

    keys: pa.Array
    values: pa.Array
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    types: NDArray[np.int32]
    headers: pa.Array | None


class Part:
    """A partition of a stream, and whether its headers are wanted: what all batches of one reading share."""

    def __init__(self, topic: str, partition: int, *, headers: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.headers = headers
        self._schema = arrow_schema(headers=headers)
        self._length = 0
        self._topics = self._partitions = pa.array([], pa.int32())

    def batch(self, rows: Rows) -> pa.RecordBatch:
        """`rows` with every column that Spark expects."""
        count = len(rows.offsets)
        if count > self._length:
            # The same for every batch: made once for the longest, and sliced.
            self._length = count
            self._topics = _repeated(self.topic.encode(), count)
            self._partitions = pa.array(np.full(count, self.partition, np.int32))
        microseconds = np.clip(rows.timestamps, -_LARGEST_MS, _LARGEST_MS) * 1000
        columns = [
            rows.keys,
            rows.values,
            self._topics.slice(0, count),
            self._partitions.slice(0, count),
            pa.array(rows.offsets),
            pa.Array.from_buffers(_TIMESTAMP, count, [None, pa.py_buffer(microseconds)]),
            pa.array(rows.types),
        ]
        if rows.headers is not None:
            columns.append(rows.headers)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _repeated(text: bytes, count: int) -> pa.Array:
    ends = np.arange(count + 1, dtype=np.int32) * len(text)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)])


def bitmap(present: NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's validity bits, or None where nothing is null."""
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


def pairs(
    data: pa.Buffer,
    first: NDArray[np.int64],
    first_size: NDArray[np.int64],
    second: NDArray[np.int64],
    second_size: NDArray[np.int64],
) -> tuple[pa.Array, pa.Array]:
    """Two binary arrays copied out of `data`, where the two of each row lie one behind the other, rows ascending.

    A negative size is null. The caller has checked that none of them overlap or reach beyond the data.
    """
    count = len(first)
    edges = np.empty(4 * count + 1, np.int32)
    edges[0:-1:4] = first
    edges[1::4] = first + np.maximum(first_size, 0)
    edges[2::4] = second
    edges[3::4] = second + np.maximum(second_size, 0)
    edges[-1] = len(data)
    # Elements in turn: a first, what lies between, a second, what lies up to the next row.
    everything = pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(edges), data])
    places = np.arange(0, 4 * count, 4, dtype=np.int32)
    return _taken(everything, places, first_size), _taken(everything, places + 2, second_size)


def _taken(everything: pa.Array, places: NDArray[np.int32], sizes: NDArray[np.int64]) -> pa.Array:
    null = sizes < 0
    return everything.take(pa.array(places, mask=null if null.any() else None))


def header_lists(counts: NDArray[np.int64], names: pa.Array, values: pa.Array) -> pa.Array:
    """Lists of headers for rows that have `counts` of them; rows without any have null, as in Spark's Kafka source."""
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    elements = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    validity = bitmap(counts > 0)
    return pa.Array.from_buffers(_HEADERS, len(counts), [validity, pa.py_buffer(ends)], children=[elements])
