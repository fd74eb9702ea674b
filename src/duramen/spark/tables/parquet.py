"""One Parquet file being written: rows gathered into row groups, and on the disk before anything names it."""

from collections.abc import Collection
from contextlib import suppress
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from duramen.spark.tables.statistics import delta_statistics
from duramen.spark.tables.storage import Place

__all__ = ["ParquetFile", "Written"]

_GROUP_BYTES: Final = 32 << 20
_TELLING_ROWS: Final = 1000
_UNLIKE: Final = 0.9
"""The part of the first rows that has to have a value of its own for a dictionary not to be made."""
_TOLD_APART: Final = (pa.types.is_binary, pa.types.is_string, pa.types.is_integer, pa.types.is_timestamp)


class Written(NamedTuple):
    """A file that is whole; `path` is relative to the table's location, `statistics` is JSON as Delta has it."""

    path: str
    size_bytes: int
    statistics: str


class ParquetFile:
    """One file; its methods raise what the storage says."""

    def __init__(self, place: Place, path: str, schema: pa.Schema, *, plain: Collection[str] = ()) -> None:
        """`plain` are columns of which a dictionary is not worth its making, beside those that turn out to be so."""
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
        """What is written, with a guess at what waits."""
        size_bytes: int = self._stream.tell()
        return size_bytes + self._waiting_bytes // 4

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows of the file's schema."""
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
        return pq.ParquetWriter(
            self._stream,
            self.schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in self.schema.names if name not in plain],
            metadata_collector=self._footers,
            store_schema=False,
        )

    def _finish(self) -> None:
        if self._writer is not None:
            self._writer.close()

    def close(self) -> Written:
        """Have all of it survive a loss of power."""
        self._flush().close()
        size_bytes = self._stream.tell()
        self._stream.close()
        self._place.sync(self._path)
        return Written(self._path, size_bytes, delta_statistics(self._footers[0]))

    def abandon(self) -> None:
        """Let go of it, as far as that can be done on a disk that may be full."""
        for step in (self._finish, self._stream.close, lambda: self._place.remove(self._path)):
            with suppress(OSError, RuntimeError, pa.ArrowException):
                step()


def _unlike(rows: pa.RecordBatch) -> list[str]:
    """The columns of which nearly every value is another."""
    if rows.num_rows < _TELLING_ROWS:
        return []
    return [
        field.name
        for field, values in zip(rows.schema, rows.columns, strict=True)
        if any(is_kind(field.type) for is_kind in _TOLD_APART) and len(pc.unique(values)) > _UNLIKE * rows.num_rows
    ]
