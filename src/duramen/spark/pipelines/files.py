"""Data files that Spark's tasks write by themselves: rows never go through the driver, only names and sizes do.

A file that no commit names is not part of its table: what a lost or doubled task attempt leaves does no harm.
"""

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from duramen.spark.pipelines.handing import Handing
from duramen.spark.tables.parquet import ParquetFile, Written
from duramen.spark.tables.port import Storage
from duramen.spark.tables.storage import Place, storage_errors

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

__all__ = ["writing", "written"]

_SAID: Final = pa.schema([(name, pa.int64() if name == "size_bytes" else pa.string()) for name in Written._fields])
_SAID_DDL: Final = "path STRING, size_bytes BIGINT, statistics STRING"
"""What a task says of each file that it wrote."""

_FILE_BYTES: Final = 128 << 20
"""At so many bytes a file is closed and another begun."""


def written(batch: "DataFrame", storage: Storage, schema: pa.Schema, handing: Handing) -> list[Written]:
    """Have Spark's tasks write a micro-batch below a location. Raises what Spark makes of TableStorageFailed."""
    write = writing(storage, schema)
    rows = handing.run(batch, lambda frame: frame.mapInArrow(write, _SAID_DDL).collect())
    return [Written(row.path, row.size_bytes, row.statistics) for row in rows]


def writing(storage: Storage, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that writes rows as Parquet of `schema`, and says `Written` of each file."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        place = Place(storage)
        file: ParquetFile | None = None
        try:
            for batch in batches:
                rows = batch.select(schema.names).cast(schema)
                with storage_errors(place.uri):
                    if rows.num_rows and file is None:
                        file = ParquetFile(place, f"part-{uuid.uuid4()}.zstd.parquet", schema)
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


def _closed(place: Place, file: ParquetFile) -> pa.RecordBatch:
    """The file is on the disk before the driver hears of it."""
    with storage_errors(place.uri):
        return pa.RecordBatch.from_pylist([file.close()._asdict()], schema=_SAID)
