"""Compaction: joins small files of a partition, row by row, in one commit that moves no offsets.

Files keep to one partition of the stream and one combination of partition values, in offset order.
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from duramen.base.errors import TableConflict
from duramen.spark.tables.files import FileLayout, write_rows
from duramen.spark.tables.port import Cleaned, DataFile, TableSpan
from duramen.spark.tables.reader import aligned
from duramen.spark.tables.storage import TableLocation, reading_errors, storage_errors

__all__ = ["compacted", "runs"]


class Compacting(Protocol):
    """The part of a table that compaction needs."""

    def schema(self) -> pa.Schema: ...
    def scan(self, spans: Sequence[TableSpan] | None = None) -> list[DataFile]: ...
    def commit(self, files: Sequence[DataFile], spans: Sequence[TableSpan], removed: Sequence[str] = ()) -> None: ...


def runs(files: Sequence[DataFile], target_bytes: int) -> Iterator[list[DataFile]]:
    """Lists of files to join, each into one: small neighbours by offset, at least two. Pure."""
    groups: dict[tuple[object, ...], list[DataFile]] = {}
    for file in files:
        groups.setdefault((file.partition, file.values), []).append(file)
    for group in groups.values():
        run: list[DataFile] = []
        for file in group:
            if file.size_bytes >= target_bytes // 2 or sum(f.size_bytes for f in run) + file.size_bytes > target_bytes:
                if len(run) > 1:
                    yield run
                run = []
            if file.size_bytes < target_bytes // 2:
                run.append(file)
        if len(run) > 1:
            yield run


def compacted(table: Compacting, place: TableLocation, layout: FileLayout, target_bytes: int) -> Cleaned:
    """Join small files of a table, one commit for each list; if another writer wins, they are left for later."""
    files = table.scan()
    schema = table.schema()
    read = written = 0
    for run in runs(files, target_bytes):
        with storage_errors(place.uri):
            made = _joined(place, layout, run, schema, target_bytes)
        try:
            table.commit(made, (), [file.path for file in run])
        except TableConflict:
            for file in made:
                place.remove(file.path)
            continue
        read += len(run)
        written += len(made)
    return Cleaned(read=read, written=written)


def _joined(
    place: TableLocation, layout: FileLayout, run: Sequence[DataFile], schema: pa.Schema, target: int
) -> list[DataFile]:
    values = run[0].values
    names = [name for name in schema.names if layout.keep_columns or name not in layout.partition_by]
    wanted = pa.schema([schema.field(name) for name in names])

    def batches() -> Iterator[pa.RecordBatch]:
        for file in run:
            with reading_errors(place.uri_of(file.path)), pq.ParquetFile(place.open(file.path)) as opened:
                for batch in opened.iter_batches():
                    yield aligned(batch, wanted, {})

    # Rows of one combination of values: the files need no split, only the same values.
    plain = FileLayout(target_bytes=2 * target)
    made = write_rows(place, plain, run[0].partition, batches())
    newest = max(file.modified_ms for file in run)
    return [file._replace(values=values, modified_ms=newest) for file in made]
