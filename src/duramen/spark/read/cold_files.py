"""Cold reads in Spark tasks: the files of a stream's table, with the columns of records, and newest rows.

For an upserted table every key appears once, at its newest record: keys with a newer record in the log are omitted from
the files, and of the log only the last record of each key is read, or none if it is a tombstone. Runs on executors.
Imports that only tables need are made when they are read, because every query's own process imports this module.
"""

from collections.abc import Iterator, Sequence
from copy import copy
from itertools import chain
from typing import Final, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from duramen.spark.columns import RECORD_COLUMNS, PartitionColumns
from duramen.spark.plainly import without_traceback
from duramen.spark.read.reader import OffsetSpan, PartitionReader, SpanPartition
from duramen.spark.tables.port import DataFile, Storage, TableSpan

__all__ = ["ColdPartition", "FilePiece", "NewestPartition", "read_part"]

_RAW: Final = dict(
    zip(RECORD_COLUMNS, ("_key", "_value", "_offset", "_timestamp", "_timestamp_type", "_headers"), strict=True)
)


class FilePiece(NamedTuple):
    """Files with rows of one partition, and the shown ones among these: those that count in `[first, end)`.

    Rows below the `floor`, rows from `below` on, and rows of transactions that the markers `skipped` end are omitted.
    So are keys in `newer`, the span of the log after the table: None unless rows are upserted.
    """

    storage: Storage
    topic: str
    partition: int
    files: Sequence[DataFile]
    first: int
    end: int
    floor: int = 0
    skipped: tuple[int, ...] = ()
    newer: OffsetSpan | None = None
    below: int | None = None


class ColdPartition(InputPartition):
    """One task's share of a table."""

    def __init__(self, piece: FilePiece) -> None:
        super().__init__(piece)
        self.piece = piece


class NewestPartition(InputPartition):
    """One task's share of the log after an upserted table: the last record of each key, if its offset is shown."""

    def __init__(self, span: OffsetSpan, shown: tuple[int, int]) -> None:
        super().__init__(span)
        self.span = span
        self.shown = shown


def read_part(reading: PartitionReader, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of one partition of any kind; Spark creates one without offsets if there is nothing to read."""
    if isinstance(partition, SpanPartition):
        return chain.from_iterable(map(reading.read, partition.spans))
    if isinstance(partition, NewestPartition):
        return _newest_records(reading, partition.span, partition.shown)
    return _cold_records(reading, partition.piece) if isinstance(partition, ColdPartition) else iter(())


def _cold_records(reading: PartitionReader, piece: FilePiece) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    from duramen.spark.tables.columns import COMMIT, KEY, OFFSET, ROW_FIELDS
    from duramen.spark.tables.reader import read_file
    from duramen.spark.tables.storage import TableLocation

    part = PartitionColumns(piece.topic, piece.partition, reading.columns)
    newer = None if piece.newer is None else _newest(reading, piece.newer).column("key").combine_chunks()
    skipped = pa.array(piece.skipped, pa.int64())
    spans = [TableSpan(piece.partition, piece.first, piece.end)]
    raw = [_RAW[name] for name in part.columns]
    with without_traceback():
        place = TableLocation(piece.storage)
        for file in piece.files:
            for rows in read_file(place, file, pa.schema(ROW_FIELDS), columns={*raw, KEY, OFFSET, COMMIT}, spans=spans):
                shown = rows.filter(pc.greater_equal(rows.column(OFFSET), piece.floor)) if piece.floor else rows
                if piece.below is not None:
                    shown = shown.filter(pc.less(shown.column(OFFSET), piece.below))
                if piece.skipped:
                    shown = shown.filter(pc.invert(pc.is_in(shown.column(COMMIT), value_set=skipped)))
                if newer is not None:
                    shown = shown.filter(pc.invert(pc.is_in(shown.column(KEY), value_set=newer)))
                if shown.num_rows:
                    arrays = [shown.column(name) for name in raw]
                    yield part.batch(pa.RecordBatch.from_arrays(arrays, names=list(part.columns)))


def _with(reading: PartitionReader, columns: Sequence[str]) -> PartitionReader:
    """The same reader with other columns."""
    other = copy(reading)
    other.columns = tuple(columns)
    return other


def _newest(reading: PartitionReader, span: OffsetSpan) -> pa.Table:
    """The offset of the last record of each key in a span. Records without a key are skipped."""
    import pyarrow.compute as pc

    found = pa.table({"key": pa.array([], pa.binary()), "offset": pa.array([], pa.int64())})
    for batch in _with(reading, ("key", "offset")).read(span):
        rows = pa.Table.from_batches([batch])
        together = pa.concat_tables([found, rows.filter(pc.is_valid(rows.column("key")))], promote_options="none")
        grouped = together.group_by("key").aggregate([("offset", "max")])
        found = pa.table({"key": grouped.column("key"), "offset": grouped.column("offset_max")})
    return found


def _newest_records(reading: PartitionReader, span: OffsetSpan, shown: tuple[int, int]) -> Iterator[pa.RecordBatch]:
    import pyarrow.compute as pc

    offsets = _newest(reading, span).column("offset").combine_chunks()
    # Needed here for the decision which records are last, shown, and no tombstones.
    columns = [*reading.columns, *(name for name in ("value", "offset") if name not in reading.columns)]
    for batch in _with(reading, columns).read(span):
        at = batch.column("offset")
        last = pc.and_(pc.is_in(at, value_set=offsets), pc.is_valid(batch.column("value")))
        kept = batch.filter(pc.and_(last, pc.and_(pc.greater_equal(at, shown[0]), pc.less(at, shown[1]))))
        if kept.num_rows:
            yield kept.select(list(reading.columns))
