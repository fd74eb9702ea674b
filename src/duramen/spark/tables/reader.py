"""Reads data files as rows with the table's present columns, independent of those at their write."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duramen.spark.tables.columns import COMMIT, OFFSET
from duramen.spark.tables.partition_values import array_of
from duramen.spark.tables.port import DataFile, TableSpan
from duramen.spark.tables.storage import TableLocation, reading_errors
from duramen.spark.values.fields import fitted

__all__ = ["aligned", "counted_at", "read_file"]


def read_file(
    place: TableLocation,
    file: DataFile,
    schema: pa.Schema,
    *,
    columns: Collection[str] | None = None,
    spans: Sequence[TableSpan] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file, with `columns` of the table's `schema` (default all); those that count in `spans`, or all.

    Raises TableStorageFailed.
    """
    names = [name for name in schema.names if columns is None or name in columns]
    wanted = pa.schema([schema.field(name) for name in names])
    values = dict(file.values)
    with reading_errors(place.uri_of(file.path)), pq.ParquetFile(place.open(file.path)) as opened:
        there = [name for name in opened.schema_arrow.names if name in names or name in (OFFSET, COMMIT)]
        for batch in opened.iter_batches(columns=there):
            kept = batch if spans is None else batch.filter(_within(counted_at(batch), file.partition, spans))
            if kept.num_rows:
                yield aligned(kept, wanted, values)


def counted_at(rows: pa.RecordBatch | pa.Table) -> Any:
    """The offset at which each row counts."""
    offsets = rows.column(OFFSET)
    return pc.coalesce(rows.column(COMMIT), offsets) if COMMIT in rows.schema.names else offsets


def _within(offsets: pa.Array, partition: int, spans: Sequence[TableSpan]) -> pa.Array:
    mask = pc.less(offsets, 0)
    for span in spans:
        if span.partition == partition:
            mask = pc.or_(mask, pc.and_(pc.greater_equal(offsets, span.begin), pc.less(offsets, span.end)))
    return mask


def aligned(batch: pa.RecordBatch, schema: pa.Schema, values: Mapping[str, str | None]) -> pa.RecordBatch:
    """The same rows with the columns of `schema`: missing ones come from a file's partition `values`, or are null."""
    for name, value in values.items():
        if name in schema.names and name not in batch.schema.names:
            one = array_of(value, schema.field(name).type)
            batch = batch.append_column(name, one.take(pa.array(np.zeros(batch.num_rows, np.int32))))
    return fitted(batch, schema)
