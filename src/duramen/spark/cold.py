"""What Spark tasks read of a stream that is a table: its cold files, with the columns of records, and newest rows.

Of an upserted table every key comes once, at its newest: a key that the log has newer is left out of the files, and of
the log only the last record of each key is read, none where that is a tombstone. Runs on executors.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import InputPartition

from duramen.client import TopicPartition
from duramen.spark.columns import Part
from duramen.spark.plainly import said_plainly
from duramen.spark.reading import Reading, Span, SpanPartition
from duramen.spark.tables.port import DataFile, Storage
from duramen.spark.tables.port import Span as TableSpan

__all__ = ["ColdPartition", "NewestPartition", "Piece", "place_of", "read_part"]

_RAW: Final[Mapping[str, str]] = {
    "key": "_key", "value": "_value", "offset": "_offset", "timestamp": "_timestamp",
    "timestampType": "_timestamp_type", "headers": "_headers",
}  # fmt: skip
_DECIDING: Final = ("key", "value", "offset")


class Piece(NamedTuple):
    """Files with rows of one partition, and which of them count: those with offsets in `[first, end)`.

    Keys that `newer` has, a span of the log behind the table's end, are left out; it is None unless rows are upserted.
    """

    storage: Storage
    topic: str
    partition: int
    files: Sequence[DataFile]
    first: int
    end: int
    newer: Span | None = None


class ColdPartition(InputPartition):
    """One task's share of a table."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(piece)
        self.piece = piece


class NewestPartition(InputPartition):
    """One task's share of the log behind an upserted table: the last record of each key."""

    def __init__(self, span: Span) -> None:
        super().__init__(span)
        self.span = span


def place_of(partition: InputPartition) -> TopicPartition:
    """The partition of the stream that a task reads of."""
    if isinstance(partition, ColdPartition):
        return TopicPartition(partition.piece.topic, partition.piece.partition)
    if isinstance(partition, NewestPartition | SpanPartition):
        return partition.span.at
    raise TypeError(partition)


def read_part(reading: Reading, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The records of one share, whichever it is; Spark makes one without any where there is nothing to read."""
    if isinstance(partition, SpanPartition):
        return reading.read(partition.span)
    if isinstance(partition, NewestPartition):
        return _newest_records(reading, partition.span)
    return _cold_records(reading, partition.piece) if isinstance(partition, ColdPartition) else iter(())


def _cold_records(reading: Reading, piece: Piece) -> Iterator[pa.RecordBatch]:
    from duramen.spark.tables.columns import RAW_FIELDS
    from duramen.spark.tables.reading import read_file
    from duramen.spark.tables.storage import Place

    part = Part(piece.topic, piece.partition, reading.columns)
    newer = None if piece.newer is None else _newest(reading, piece.newer).column("key").combine_chunks()
    spans = [TableSpan(piece.partition, piece.first, piece.end)]
    columns = [_RAW[name] for name in part.columns]
    read = columns if newer is None or "_key" in columns else [*columns, "_key"]
    with said_plainly():
        place = Place(piece.storage)
        for file in piece.files:
            for rows in read_file(place, file, pa.schema(RAW_FIELDS), columns=read, spans=spans):
                kept = rows if newer is None else rows.filter(pc.invert(pc.is_in(rows.column("_key"), value_set=newer)))
                if kept.num_rows:
                    arrays = [kept.column(name) for name in columns]
                    yield part.batch(pa.RecordBatch.from_arrays(arrays, names=list(part.columns)))


def _newest(reading: Reading, span: Span) -> pa.Table:
    """Of each key that a span has, the offset of its last record. Records without a key are none."""
    found = pa.table({"key": pa.array([], pa.binary()), "offset": pa.array([], pa.int64())})
    for batch in reading.read(span, ("key", "offset")):
        rows = pa.Table.from_batches([batch.select(["key", "offset"])])
        together = pa.concat_tables([found, rows.filter(pc.is_valid(rows.column("key")))], promote_options="none")
        grouped = together.group_by("key").aggregate([("offset", "max")])
        found = pa.table({"key": grouped.column("key"), "offset": grouped.column("offset_max")})
    return found


def _newest_records(reading: Reading, span: Span) -> Iterator[pa.RecordBatch]:
    wanted, offsets = list(reading.columns), _newest(reading, span).column("offset").combine_chunks()
    for batch in reading.read(span, [*wanted, *(name for name in _DECIDING if name not in wanted)]):
        last = pc.and_(pc.is_in(batch.column("offset"), value_set=offsets), pc.is_valid(batch.column("value")))
        kept = batch.filter(last)
        if kept.num_rows:
            yield kept.select(wanted)
