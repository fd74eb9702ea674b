"""Data files that Spark's tasks write by themselves: rows never go through the driver, only names and sizes do.

A file that no commit names is not part of its table: what a lost or doubled task attempt leaves does no harm.
"""

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["WRITTEN", "writing"]

WRITTEN: Final = "path STRING, size BIGINT, rows BIGINT"
"""What a task says of each file that it wrote; the path begins at the table."""

_SAID: Final = pa.schema([pa.field("path", pa.string()), pa.field("size", pa.int64()), pa.field("rows", pa.int64())])
_FILE_BYTES: Final = 128 << 20
"""At so many bytes in memory a file is closed and another begun."""


def writing(directory: str, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that writes rows as Parquet of `schema` into `directory`."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        pending: list[pa.RecordBatch] = []
        pending_bytes = 0
        for batch in batches:
            if batch.num_rows:
                pending.append(batch.cast(schema))
                pending_bytes += batch.nbytes
            if pending_bytes >= _FILE_BYTES:
                yield _file(directory, schema, pending)
                pending, pending_bytes = [], 0
        if pending:
            yield _file(directory, schema, pending)

    return write


def _file(directory: str, schema: pa.Schema, batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Write one file, on the disk before the driver hears of it."""
    path = Path(directory) / f"part-{uuid.uuid4()}.zstd.parquet"
    table = pa.Table.from_batches(batches, schema)
    try:
        with path.open("xb") as file:
            pq.write_table(table, file, compression="zstd")
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        path.unlink(missing_ok=True)
        raise
    said = {"path": path.name, "size": path.stat().st_size, "rows": table.num_rows}
    return pa.RecordBatch.from_pylist([said], schema=_SAID)
