"""One Parquet file being written: rows gathered into row groups, and on the disk before anything names it."""

from collections.abc import Collection
from contextlib import suppress
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from duramen.spark.tables.statistics import delta_statistics
from duramen.spark.tables.storage import Place

__all__ = ["ParquetFile", "Written"]

_GROUP_BYTES: Final = 32 << 20


class Written(NamedTuple):
    """A file that is whole; `path` is relative to the table's location, `statistics` is JSON as Delta has it."""

    path: str
    size_bytes: int
    statistics: str


class ParquetFile:
    """One file; its methods raise what the storage says."""

    def __init__(self, place: Place, path: str, schema: pa.Schema, *, plain: Collection[str] = ()) -> None:
        """`plain` are columns of which a dictionary is not worth its making."""
        self._place = place
        self._path = path
        self.schema = schema
        self._footers: list[pq.FileMetaData] = []
        self._stream = place.create(path)
        self._writer = pq.ParquetWriter(
            self._stream,
            schema,
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in schema.names if name not in plain],
            metadata_collector=self._footers,
            store_schema=False,
        )
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

    def _flush(self) -> None:
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting, self.schema))
            self._waiting, self._waiting_bytes = [], 0

    def close(self) -> Written:
        """Have all of it survive a loss of power."""
        self._flush()
        self._writer.close()
        size_bytes = self._stream.tell()
        self._stream.close()
        self._place.sync(self._path)
        return Written(self._path, size_bytes, delta_statistics(self._footers[0]))

    def abandon(self) -> None:
        """Let go of it, as far as that can be done on a disk that may be full."""
        for step in (self._writer.close, self._stream.close, lambda: self._place.remove(self._path)):
            with suppress(OSError, RuntimeError, pa.ArrowException):
                step()
