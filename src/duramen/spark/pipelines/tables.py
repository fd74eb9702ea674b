"""Tables that a pipeline reads at its start: Delta and Iceberg, in directories and on S3.

The driver lists a table's files, and tasks read them according to the formats: partition values, renamed columns,
deleted rows. Spark needs no jar for that.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from duramen.base.errors import TableForeign, TableUnsupported
from duramen.spark.plainly import without_traceback
from duramen.spark.tables.port import DataFile, Storage
from duramen.spark.tables.storage import TableLocation, reading_errors, storage_errors
from duramen.spark.values.fields import fitted

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["delta_frame", "iceberg_frame"]

_TASK_BYTES: Final = 128 << 20
_SHARE: Final = "share"
_HIDDEN: Final = {"deletionVectors", "columnMapping"}

Read = Callable[[Any], Iterator[pa.RecordBatch]]
"""Reads one part of a share; runs in tasks."""


class _DeltaFile(NamedTuple):
    """A file of a Delta table, with its storage."""

    storage: Storage
    file: DataFile
    schema: pa.Schema


class _IcebergFile(NamedTuple):
    """A file of an Iceberg table with its deletes, as planned by `pyiceberg`, and the table state that has it."""

    metadata: str
    properties: dict[str, str]
    task: Any


def delta_frame(spark: "SparkSession", storage: Storage) -> "DataFrame":
    """A Delta table in its present state. Raises TableForeign, TableUnsupported, TableStorageFailed."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from duramen.spark.tables.delta.log import DeltaLog, fields_of

    place = TableLocation(storage)
    with storage_errors(place.uri):
        log = DeltaLog(place)
        if not log.is_there():
            raise TableForeign(f"there is no Delta table {place.uri}")
        table = log.load()
        hidden = sorted(set(table.protocol().reader_features or []) & _HIDDEN)
        if hidden:
            raise TableUnsupported(
                f"the Delta table {place.uri} uses {', '.join(hidden)}, which its files alone do not show"
            )
        schema = fields_of(table.schema())
        found = list(_delta_files(table))
        if found and place.is_local and not table.metadata().partition_columns:
            # Spark reads only the columns that it needs.
            columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
            return spark.read.schema(columns).parquet(*(place.uri_of(file.path) for file in found))
        files = [_DeltaFile(storage, file, schema) for file in found]
    return _frame(spark, schema, _read_delta, files, [one.file.size_bytes for one in files])


def _delta_files(table: "DeltaTable") -> Iterator[DataFile]:
    from duramen.spark.tables.delta.log import added

    for row, values in added(table):
        yield DataFile(unquote(row["path"]), row["size_bytes"], row["num_records"] or 0, 0, 0, 0, 0, values)


def _read_delta(one: _DeltaFile) -> Iterator[pa.RecordBatch]:
    from duramen.spark.tables.reader import read_file

    return read_file(TableLocation(one.storage), one.file, one.schema)


def iceberg_frame(spark: "SparkSession", storage: Storage) -> "DataFrame":
    """An Iceberg table in its present state. Raises TableForeign, TableUnsupported, TableStorageFailed."""
    from duramen.spark.tables.iceberg.catalog import IcebergEntry, arrow_schema, has_catalog

    place = TableLocation(storage)
    with storage_errors(place.uri):
        entry = IcebergEntry(storage, place)
        table = entry.find() if has_catalog(storage, place) else None
        if table is None:
            raise TableForeign(f"there is no Iceberg table {place.uri} in its catalog")
        schema, properties = arrow_schema(table), dict(table.io.properties)
        files = [_IcebergFile(table.metadata_location, properties, task) for task in table.scan().plan_files()]
    return _frame(spark, schema, _read_iceberg, files, [one.task.file.file_size_in_bytes for one in files])


def _read_iceberg(one: _IcebergFile) -> Iterator[pa.RecordBatch]:
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan
    from pyiceberg.table import StaticTable

    with reading_errors(one.metadata):
        table = StaticTable.from_metadata(one.metadata, one.properties)
        yield from ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue()).to_record_batches([one.task])


def _frame(
    spark: "SparkSession", schema: pa.Schema, read: Read, files: Sequence[object], sizes: Sequence[int]
) -> "DataFrame":
    """The rows of files, which tasks read, with about equal amounts each."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from duramen.spark.api import to_arrow_schema

    columns = from_arrow_schema(schema, prefer_timestamp_ntz=True)
    if not files:
        return spark.createDataFrame([], columns)
    shares: list[list[object]] = []
    room = 0
    for file, size in zip(files, sizes, strict=True):
        if not shares or size > room:
            shares.append([])
            room = _TASK_BYTES
        shares[-1].append(file)
        room -= size
    rows = spark.sparkContext.parallelize([(pickle.dumps(share),) for share in shares], len(shares))
    told = spark.createDataFrame(rows, f"{_SHARE} BINARY")
    return told.mapInArrow(_reading(read, to_arrow_schema(columns)), columns)


def _reading(read: Read, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(told: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with without_traceback():
            for batch in told:
                for share in batch.column(_SHARE).to_pylist():
                    for one in pickle.loads(share):  # noqa: S301 -- the driver made it
                        for rows in read(one):
                            yield fitted(rows, schema)

    return run
