"""The columns that Spark's Kafka source has, as Arrow wants them, and the rows that decoding makes put into them. Pure.

`COLUMNS` is Spark's schema in its own notation, `arrow_schema` is the same for Arrow. What record batches have of them
is `RECORD_COLUMNS`; topic and partition are added by `Part`.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "HEADERS_COLUMN",
    "HEADERS_TYPE",
    "RECORD_COLUMNS",
    "TIMESTAMP_TYPE",
    "Neighbours",
    "Part",
    "Rows",
    "arrow_schema",
    "bitmap",
    "check_columns",
    "header_lists",
    "record_batch",
]

COLUMNS: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT"
)
HEADERS_COLUMN: Final = "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"

TIMESTAMP_TYPE: Final = pa.timestamp("us", "UTC")
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("element", _HEADER))
RECORD_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
"""What can be decoded of records, in the order in which it comes."""

_LARGEST_MS: Final = ((1 << 63) - 1) // 1000
_FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", TIMESTAMP_TYPE),
    pa.field("timestampType", pa.int32()),
)


def arrow_schema(*, headers: bool) -> pa.Schema:
    """What a batch looks like, with the column `headers` or without."""
    return pa.schema([*_FIELDS, pa.field("headers", HEADERS_TYPE)] if headers else _FIELDS)


def check_columns(columns: Collection[str]) -> None:
    """Raise ValueError unless these are columns of records, at least one."""
    unknown = [name for name in columns if name not in RECORD_COLUMNS]
    if unknown or not columns:
        raise ValueError(f"columns of records are {', '.join(RECORD_COLUMNS)}, not {', '.join(unknown) or 'none'}")


class Rows(NamedTuple):
    """Decoded rows: `timestamps` are ms since 1970, `types` 0 (the producer's) or 1 (the append's).

    Keys, values and headers are None where nobody asked for them.
    """

    keys: pa.Array | None
    values: pa.Array | None
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    types: NDArray[np.int32]
    headers: pa.Array | None


def record_batch(rows: Rows, columns: Collection[str]) -> pa.RecordBatch:
    """`rows` as the columns that were asked for, in the order of `RECORD_COLUMNS`."""
    found = {"key": rows.keys, "value": rows.values, "headers": rows.headers}
    made = {name: column for name, column in found.items() if column is not None}
    if "offset" in columns:
        made["offset"] = pa.array(rows.offsets)
    if "timestamp" in columns:
        microseconds = np.clip(rows.timestamps, -_LARGEST_MS, _LARGEST_MS) * 1000
        made["timestamp"] = pa.Array.from_buffers(TIMESTAMP_TYPE, len(microseconds), [None, pa.py_buffer(microseconds)])
    if "timestampType" in columns:
        made["timestampType"] = pa.array(rows.types)
    names = [name for name in RECORD_COLUMNS if name in columns]
    return pa.RecordBatch.from_arrays([made[name] for name in names], names=names)


class Part:
    """A partition of a stream, and whether its headers are wanted: what all batches of one reading share."""

    def __init__(self, topic: str, partition: int, *, headers: bool) -> None:
        self.topic = topic
        self.partition = partition
        self.columns = RECORD_COLUMNS if headers else RECORD_COLUMNS[:-1]
        self._schema = arrow_schema(headers=headers)
        self._length = 0
        self._topics = self._partitions = pa.array([], pa.int32())

    def batch(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Decoded records, of which `columns` was asked for, with every column that Spark expects."""
        count = records.num_rows
        if count > self._length:
            # The same for every batch: made once for the longest, and sliced.
            self._length = count
            self._topics = _repeated(self.topic.encode(), count)
            self._partitions = pa.array(np.full(count, self.partition, np.int32))
        key, value, *others = records.columns
        columns = [key, value, self._topics.slice(0, count), self._partitions.slice(0, count), *others]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _repeated(text: bytes, count: int) -> pa.Array:
    ends = np.arange(count + 1, dtype=np.int32) * len(text)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)])


def bitmap(present: NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's validity bits, or None where nothing is null."""
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


class Neighbours:
    """Two binary arrays copied out of `data`, where the two of each row lie one behind the other, rows ascending.

    A negative size is null. The caller has checked that none of them overlap or reach beyond the data.
    """

    def __init__(
        self,
        data: pa.Buffer,
        first: NDArray[np.int64],
        first_size: NDArray[np.int64],
        second: NDArray[np.int64],
        second_size: NDArray[np.int64],
    ) -> None:
        count = len(first)
        edges = np.empty(4 * count + 1, np.int32)
        edges[0:-1:4] = first
        edges[1::4] = first + np.maximum(first_size, 0)
        edges[2::4] = second
        edges[3::4] = second + np.maximum(second_size, 0)
        edges[-1] = len(data)
        # Elements in turn: a first, what lies between, a second, what lies up to the next row.
        self._all = pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(edges), data])
        self._sizes = (first_size, second_size)

    def first(self) -> pa.Array:
        """The first of each row."""
        return self._taken(0)

    def second(self) -> pa.Array:
        """The second of each row."""
        return self._taken(1)

    def _taken(self, which: int) -> pa.Array:
        sizes = self._sizes[which]
        places = np.arange(2 * which, 4 * len(sizes), 4, dtype=np.int32)
        null = sizes < 0
        return self._all.take(pa.array(places, mask=null if null.any() else None))


def header_lists(counts: NDArray[np.int64], names: pa.Array, values: pa.Array) -> pa.Array:
    """Lists of headers for rows that have `counts` of them; rows without any have null, as in Spark's Kafka source."""
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    elements = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    validity = bitmap(counts > 0)
    return pa.Array.from_buffers(HEADERS_TYPE, len(counts), [validity, pa.py_buffer(ends)], children=[elements])
