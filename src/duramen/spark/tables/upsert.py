"""Tables with one row per key: how files change when newer records of their keys arrive.

A key's records are in one partition, so the newest is the one with the largest offset there; a null value removes the
key. A transaction committed late may have records older than those already applied; they are ignored. Files with a
superseded key are rewritten without its row (copy on write), in the same commit.
"""

from collections.abc import Iterable, Sequence
from enum import Enum, auto

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duramen.spark.tables.columns import KEY, OFFSET, VALUE
from duramen.spark.tables.files import DataFileWriter, FileLayout
from duramen.spark.tables.port import DataFile, TableSpan
from duramen.spark.tables.reader import counted_at, read_file
from duramen.spark.tables.storage import TableLocation, reading_errors

__all__ = ["NewestRows", "RowForm", "upsert"]

_MOST_ROWS = 1 << 18


class RowForm(Enum):
    """The form of the rows: records of the log, or each key once, from a snapshot or from changes.

    A whole snapshot replaces all rows of the partition in the table.
    """

    RECORDS = auto()
    CHANGES = auto()
    WHOLE = auto()


class NewestRows:
    """Collects the row with the largest offset for each key."""

    def __init__(self) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows with keys; a batch may have more columns than the previous one."""
        self._batches.append(batch)
        self._rows += batch.num_rows
        if self._rows >= _MOST_ROWS:
            kept = self.table()
            self._batches = kept.to_batches()
            # If most keys are distinct, it is not worth checking again after each batch.
            self._rows = -kept.num_rows

    def table(self) -> pa.Table:
        """The rows so far, one per key."""
        whole = pa.concat_tables(map(_one, self._batches), promote_options="permissive").combine_chunks()
        if not whole.num_rows:
            return whole
        codes = whole.column(KEY).combine_chunks().dictionary_encode()
        last = np.zeros(len(codes.dictionary), np.int64)
        order = np.argsort(whole.column(OFFSET).combine_chunks().to_numpy(), kind="stable")
        # Of several assignments to one place the last one stays.
        last[codes.indices.to_numpy()[order]] = order
        return whole.take(pa.array(np.sort(last)))


def _one(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])


def upsert(
    place: TableLocation,
    layout: FileLayout,
    span: TableSpan,
    live: Sequence[DataFile],
    schema: pa.Schema,
    rows: Iterable[pa.RecordBatch],
    coming: RowForm = RowForm.RECORDS,
) -> tuple[list[DataFile], list[str]]:
    """Write the files that result from the `live` files of a partition and `rows`, which have keys.

    Records are those that count in the span, after those that counted earlier and are newer than the oldest of these:
    they are in the files already, unless they were removed. Returns the new files, and the paths of the replaced ones.
    Raises TableStorageFailed.
    """
    mine = [file for file in live if file.partition == span.partition]
    if coming is RowForm.RECORDS:
        return _merge_records(place, layout, span, mine, schema, rows)
    keys: list[pa.Array] = []
    with DataFileWriter(place, layout, span.partition) as writer:
        for batch in rows:
            writer.add(batch.filter(pc.is_valid(batch.column(VALUE))))
            if mine and coming is RowForm.CHANGES:
                keys.append(batch.column(KEY))
        if coming is RowForm.WHOLE:
            removed = [file.path for file in mine]
        else:
            removed = _rewrite(place, writer, mine, schema, pa.concat_arrays(keys)) if keys else []
        return writer.finish(), removed


def _merge_records(
    place: TableLocation,
    layout: FileLayout,
    span: TableSpan,
    mine: Sequence[DataFile],
    schema: pa.Schema,
    rows: Iterable[pa.RecordBatch],
) -> tuple[list[DataFile], list[str]]:
    newest = NewestRows()
    count = 0
    for batch in rows:
        newest.add(batch)
        count += batch.num_rows
    if not count:
        return [], []
    coming = _counting_from(span.begin, newest.table())
    if not coming.num_rows:
        return [], []
    with DataFileWriter(place, layout, span.partition) as writer:
        removed = _rewrite(place, writer, mine, schema, coming.column(KEY).combine_chunks())
        for batch in coming.filter(pc.is_valid(coming.column(VALUE))).to_batches():
            writer.add(batch)
        return writer.finish(), removed


def _rewrite(
    place: TableLocation, writer: DataFileWriter, files: Sequence[DataFile], schema: pa.Schema, keys: pa.Array
) -> list[str]:
    """Rewrite the files that have some of the keys without these; returns their paths."""
    removed = [file for file in files if _has(place, file, keys)]
    for file in removed:
        for batch in read_file(place, file, schema):
            writer.add(batch.filter(pc.invert(pc.is_in(batch.column(KEY), value_set=keys))))
    return [file.path for file in removed]


def _counting_from(offset: int, rows: pa.Table) -> pa.Table:
    """The rows that count from that offset on."""
    return rows.filter(pc.greater_equal(counted_at(rows), offset))


def _has(place: TableLocation, file: DataFile, keys: pa.Array) -> bool:
    with reading_errors(place.uri_of(file.path)), pq.ParquetFile(place.open(file.path)) as opened:
        return any(
            pc.any(pc.is_in(batch.column(KEY), value_set=keys)).as_py() for batch in opened.iter_batches(columns=[KEY])
        )
