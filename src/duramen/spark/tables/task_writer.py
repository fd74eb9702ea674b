"""Data files that Spark's tasks write themselves: only names and sizes go through the driver, not rows.

A file that no commit names is not part of its table: files of lost or duplicate task attempts do no harm.
"""

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from duramen.spark.tables.parquet import ParquetFile
from duramen.spark.tables.port import Storage
from duramen.spark.tables.storage import TableLocation, storage_errors
from duramen.spark.tables.written import SAID, WrittenFile
from duramen.spark.values.fields import fitted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["named", "said", "writing"]

_FILE_BYTES: Final = 128 << 20
"""The size at which a file is closed and another started."""


def named() -> str:
    """The name of a new file."""
    return f"part-{uuid.uuid4()}.zstd.parquet"


def said(files: "DataFrame") -> list[WrittenFile]:
    """Run the tasks whose rows report the files that they wrote. Raises Spark's wrapper of TableStorageFailed."""
    return [WrittenFile(row.path, row.size_bytes, row.statistics) for row in files.collect()]


def writing(
    storage: Storage, schema: pa.Schema, names: Sequence[str] | None = None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function of a task for `mapInArrow`: its rows become Parquet of `schema`, reported as `WrittenFile`.

    `names` are the columns' names if the rows have others. Columns that the rows lack are null.
    """

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = TableLocation(storage)
        file: ParquetFile | None = None
        try:
            for batch in batches:
                with storage_errors(place.uri):
                    rows = fitted(batch if names is None else batch.rename_columns(names), schema)
                    if rows.num_rows and file is None:
                        file = ParquetFile(place, named(), schema)
                    if rows.num_rows and file is not None:
                        file.add(rows)
                if file is not None and file.size_bytes >= _FILE_BYTES:
                    yield _closed(place, file)
                    file = None
            if file is not None:
                yield _closed(place, file)
                file = None
        finally:
            if file is not None:
                file.abandon()

    return write


def _closed(place: TableLocation, file: ParquetFile) -> pa.RecordBatch:
    """The file is durable before the driver learns of it."""
    with storage_errors(place.uri):
        return pa.RecordBatch.from_pylist([file.close()._asdict()], schema=SAID)
