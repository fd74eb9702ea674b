"""The columns of Spark's Kafka source as Arrow types, and the decoded rows. Pure.

Queues and the inventory have columns of their own. `spark_schema` returns columns in Spark's notation, `arrow_schema`
the same for Arrow. `RECORD_COLUMNS` come from record batches; `PartitionColumns` adds topic and partition.
"""

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

__all__ = [
    "COLUMNS",
    "COMMIT_COLUMNS",
    "HEADERS_TYPE",
    "INVENTORY_COLUMNS",
    "QUEUE_COLUMNS",
    "RECORD_COLUMNS",
    "TIMESTAMP_TYPE",
    "BinaryColumns",
    "PartitionColumns",
    "Rows",
    "arrow_schema",
    "bitmap",
    "check_columns",
    "choose_columns",
    "header_lists",
    "record_batch",
    "spark_schema",
]

TIMESTAMP_TYPE: Final = pa.timestamp("us", "UTC")
_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
HEADERS_TYPE: Final = pa.list_(pa.field("element", _HEADER))
RECORD_COLUMNS: Final = ("key", "value", "offset", "timestamp", "timestampType", "headers")
"""The columns that are decoded from records, in order."""

COMMIT_COLUMNS: Final = ("commit", "sequence", "producer")
"""The transaction columns that tables keep besides: marker, commit sequence, and producer id."""

_LARGEST_MS: Final = ((1 << 63) - 1) // 1000
_TYPES: Final[Mapping[str, tuple[str, pa.DataType]]] = {
    "key": ("BINARY", pa.binary()),
    "value": ("BINARY", pa.binary()),
    "topic": ("STRING", pa.string()),
    "partition": ("INT", pa.int32()),
    "offset": ("BIGINT", pa.int64()),
    "timestamp": ("TIMESTAMP", TIMESTAMP_TYPE),
    "timestampType": ("INT", pa.int32()),
    "headers": ("ARRAY<STRUCT<key: STRING, value: BINARY>>", HEADERS_TYPE),
    "queue": ("STRING", pa.string()),
    "position": ("STRING", pa.string()),
    "version": ("BIGINT", pa.int64()),
    "enqueued_at": ("TIMESTAMP", TIMESTAMP_TYPE),
    "id": ("STRING", pa.string()),
    "name": ("STRING", pa.string()),
    "tenant": ("STRING", pa.string()),
    "namespace": ("STRING", pa.string()),
    "account": ("STRING", pa.string()),
    "state": ("STRING", pa.string()),
    "created_at": ("TIMESTAMP", TIMESTAMP_TYPE),
    "labels": ("MAP<STRING, STRING>", pa.map_(pa.string(), pa.string())),
    "policies": ("MAP<STRING, STRING>", pa.map_(pa.string(), pa.string())),
    "durability": ("STRING", pa.string()),
}
COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""Every column of records; `headers`, the last, only on request."""
QUEUE_COLUMNS: Final = ("queue", "position", "version", "key", "value", "headers", "enqueued_at")
"""The columns of queue entries."""
INVENTORY_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "topics": ("id", "name", "tenant", "namespace", "account", "state", "policies", "durability"),
    "namespaces": ("id", "name", "tenant", "account", "created_at", "labels", "policies"),
    "tenants": ("id", "name", "account", "created_at", "labels", "policies"),
}
"""The columns of the tables of the inventory."""


def choose_columns(text: str, *, headers: bool, every: Sequence[str] = COLUMNS) -> tuple[str, ...]:
    """The columns named in a comma-separated list, in that order; all of them for an empty list.

    Records have `headers` only if it is named, unless `headers` is true. Raises ValueError for a column that does not
    exist or is named twice.
    """
    if not text.strip():
        return tuple(every) if headers or every is not COLUMNS else COLUMNS[:-1]
    by_lower = {name.lower(): name for name in every}
    chosen: list[str] = []
    for given in text.split(","):
        name = by_lower.get(given.strip().lower())
        if name is None:
            near = difflib.get_close_matches(given.strip().lower(), by_lower, n=1)
            hint = f"did you mean {by_lower[near[0]]}?" if near else f"there are {', '.join(every)}"
            raise ValueError(f"there is no column {given.strip()!r}; {hint}")
        if name in chosen:
            raise ValueError(f"{name} is named twice")
        chosen.append(name)
    return tuple(chosen)


def spark_schema(columns: Sequence[str]) -> str:
    """These columns in Spark's schema notation."""
    return ", ".join(f"{name} {_TYPES[name][0]}" for name in columns)


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The Arrow schema of these columns."""
    return pa.schema([pa.field(name, _TYPES[name][1]) for name in columns])


def check_columns(columns: Collection[str]) -> None:
    """Raise ValueError unless these are columns of records, at least one."""
    unknown = [name for name in columns if name not in RECORD_COLUMNS]
    if unknown or not columns:
        raise ValueError(f"columns of records are {', '.join(RECORD_COLUMNS)}, not {', '.join(unknown) or 'none'}")


class Rows(NamedTuple):
    """Decoded rows: `timestamps` are ms since 1970, `types` 0 (the producer's) or 1 (the append's).

    Keys, values and headers are None if they were not requested.
    """

    keys: pa.Array | None
    values: pa.Array | None
    offsets: NDArray[np.int64]
    timestamps: NDArray[np.int64]
    types: NDArray[np.int32]
    headers: pa.Array | None


def record_batch(rows: Rows, columns: Collection[str]) -> pa.RecordBatch:
    """`rows` as the requested columns, in the order of `RECORD_COLUMNS`."""
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


class PartitionColumns:
    """A partition of a stream, and the columns requested of it: shared by all batches of one read.

    `columns` are the ones to decode for that.
    """

    def __init__(self, topic: str, partition: int, wanted: Sequence[str]) -> None:
        self.topic = topic
        self.partition = partition
        # At least one column must show the number of records.
        self.columns = tuple(name for name in RECORD_COLUMNS if name in wanted) or ("offset",)
        self._schema = arrow_schema(wanted)
        self._length = 0
        self._same: dict[str, pa.Array] = {}

    def batch(self, records: pa.RecordBatch) -> pa.RecordBatch:
        """Decoded records with `columns`, completed to every column that Spark expects."""
        count = records.num_rows
        if count > self._length:
            # The same for every batch: made once for the longest, and sliced.
            self._length = count
            self._same["topic"] = _repeated(self.topic.encode(), count)
            self._same["partition"] = pa.array(np.full(count, self.partition, np.int32))
        columns = [
            self._same[name].slice(0, count) if name in ("topic", "partition") else records.column(name)
            for name in self._schema.names
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _repeated(text: bytes, count: int) -> pa.Array:
    ends = np.arange(count + 1, dtype=np.int32) * len(text)
    return pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(ends), pa.py_buffer(text * count)])


def bitmap(present: NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's validity bits, or None without nulls."""
    return None if present.all() else pa.py_buffer(np.packbits(present, bitorder="little"))


class BinaryColumns:
    """Two binary arrays copied out of `data`, in which the two values of each row are adjacent, rows ascending.

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
        # Elements alternate: a first, the bytes between, a second, the bytes up to the next row.
        self._all = pa.Array.from_buffers(pa.binary(), 4 * count, [None, pa.py_buffer(edges), data])
        self._sizes = (first_size, second_size)

    def first(self) -> pa.Array:
        """The first value of each row."""
        return self._taken(0)

    def second(self) -> pa.Array:
        """The second value of each row."""
        return self._taken(1)

    def _taken(self, which: int) -> pa.Array:
        sizes = self._sizes[which]
        places = np.arange(2 * which, 4 * len(sizes), 4, dtype=np.int32)
        null = sizes < 0
        return self._all.take(pa.array(places, mask=null if null.any() else None))


def header_lists(counts: NDArray[np.int64], names: pa.Array, values: pa.Array) -> pa.Array:
    """Lists of headers for rows with `counts` of them; rows without headers have null, as in Spark's Kafka source."""
    ends = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=ends[1:])
    elements = pa.StructArray.from_arrays([names, values], fields=list(_HEADER))
    validity = bitmap(counts > 0)
    return pa.Array.from_buffers(HEADERS_TYPE, len(counts), [validity, pa.py_buffer(ends)], children=[elements])
