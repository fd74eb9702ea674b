"""Writes one Parquet file: rows collected into row groups, and synced before anything names the file."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duramen.spark.tables.statistics import delta_statistics
from duramen.spark.tables.storage import TableLocation
from duramen.spark.tables.written import WrittenFile

__all__ = ["ParquetFile"]

_GROUP_BYTES: Final = 32 << 20
_TELLING_ROWS: Final = 1000
_UNLIKE: Final = 0.9
"""The fraction of distinct values in the first rows from which on no dictionary is made."""
_LEVEL: Final = 1
_SAMPLES: Final = 4
_SAMPLE_BYTES: Final = 256 << 10
_TELLING_BYTES: Final = 64 << 10
_DENSE: Final = 15 / 16
"""The fraction of a column's bytes that compression must leave for the column to stay uncompressed."""
_FLOATS: Final = ("FLOAT", "DOUBLE")
_TOLD_APART: Final = (pa.types.is_binary, pa.types.is_string, pa.types.is_integer, pa.types.is_timestamp)


class ParquetFile:
    """One file; its methods raise storage errors."""

    def __init__(self, place: TableLocation, path: str, schema: pa.Schema, *, plain: Collection[str] = ()) -> None:
        """`plain` are columns without dictionaries, besides those found to be so."""
        self._place = place
        self._path = path
        self.schema = schema
        self._footers: list[pq.FileMetaData] = []
        self._stream = place.create(path)
        self._plain = frozenset(plain)
        self._writer: pq.ParquetWriter | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The written bytes, with an estimate of the waiting ones."""
        size_bytes: int = self._stream.tell()
        return size_bytes + self._waiting_bytes // 4

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows of the file's schema."""
        self._waiting.append(rows)
        self._waiting_bytes += rows.nbytes
        if self._waiting_bytes >= _GROUP_BYTES:
            self._flush()

    def _flush(self) -> pq.ParquetWriter:
        if self._writer is None:
            self._writer = self._begun(self._plain.union(*map(_unlike, self._waiting[:1])))
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema))
            self._waiting, self._waiting_bytes = [], 0
        return self._writer

    def _begun(self, plain: Collection[str]) -> pq.ParquetWriter:
        shared = [name for name in self.schema.names if name not in plain]
        sample = _sampled(self._waiting, self.schema, shared)
        return _writer(self._stream, self.schema, _dense(sample), shared, self._footers, ordered=_ordered(sample))

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def close(self) -> WrittenFile:
        """Write and sync all of it."""
        self._flush().close()
        size_bytes = self._stream.tell()
        self._stream.close()
        self._place.sync(self._path)
        return WrittenFile(self._path, size_bytes, delta_statistics(self._footers[0]))

    def abandon(self) -> None:
        """Remove it, as far as that is possible on a disk that may be full."""
        for step in (self._finish, self._stream.close, lambda: self._place.remove(self._path)):
            with suppress(OSError, RuntimeError, pa.ArrowException):
                step()


def _writer(
    stream: pa.NativeFile,
    schema: pa.Schema,
    dense: Mapping[str, bool],
    shared: Sequence[str],
    footers: list[pq.FileMetaData],
    *,
    ordered: Sequence[str] = (),
) -> pq.ParquetWriter:
    """A writer with dictionaries for the `shared` columns and statistics of `ordered` ones.

    `dense` ones are not compressed, all others are.
    """
    zstd = [path for path, is_dense in dense.items() if not is_dense]
    return pq.ParquetWriter(
        stream,
        schema,
        compression=dict.fromkeys(zstd, "zstd") if dense else "zstd",
        compression_level=dict.fromkeys(zstd, _LEVEL) if dense else _LEVEL,
        use_dictionary=shared,
        write_statistics=list(ordered),
        metadata_collector=footers,
        store_schema=False,
    )


def _unlike(rows: pa.RecordBatch) -> list[str]:
    """The columns in which almost all values are distinct."""
    if rows.num_rows < _TELLING_ROWS:
        return []
    return [
        field.name
        for field, values in zip(rows.schema, rows.columns, strict=True)
        if any(is_kind(field.type) for is_kind in _TOLD_APART) and len(pc.unique(values)) > _UNLIKE * rows.num_rows
    ]


def _sampled(waiting: Sequence[pa.RecordBatch], schema: pa.Schema, shared: Sequence[str]) -> pq.FileMetaData:
    """The footer of a file with some of the rows."""
    footers: list[pq.FileMetaData] = []
    writer = _writer(pa.BufferOutputStream(), schema, {}, shared, footers)
    sample = [_first(rows) for rows in waiting[:: max(1, len(waiting) // _SAMPLES)]]
    writer.write_table(pa.Table.from_batches(sample, schema))
    writer.close()
    return footers[0]


def _dense(footer: pq.FileMetaData) -> dict[str, bool]:
    """For each column whether its values hardly compress, as with compressed or encrypted data.

    By Parquet's paths. Empty if no column is so, or without rows.
    """
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    found = {
        column.path_in_schema: column.total_uncompressed_size >= _TELLING_BYTES
        and column.total_compressed_size > _DENSE * column.total_uncompressed_size
        for group in groups
        for column in map(group.column, range(group.num_columns))
    }
    return found if any(found.values()) else {}


def _ordered(footer: pq.FileMetaData) -> list[str]:
    """The columns with statistics, by Parquet's paths.

    Arrow's statistics of floats ignore not-a-number: readers that treat it as the largest number would skip its rows.
    """
    columns = [footer.schema.column(index) for index in range(footer.num_columns)]
    return [column.path for column in columns if column.physical_type not in _FLOATS]


def _first(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.slice(0, max(1, rows.num_rows * _SAMPLE_BYTES // max(rows.nbytes, _SAMPLE_BYTES)))
