"""Records written to files by the reading tasks: with `parquetTo` a task's rows are the names of its files.

So records for files do not pass through Java row by row. Imports that only writing needs are made then, because every
query's own process imports this module.
"""

from collections.abc import Iterator

import pyarrow as pa

from duramen.spark.columns import arrow_schema, spark_schema
from duramen.spark.options import Options
from duramen.spark.plainly import without_traceback
from duramen.spark.read.reader import columns_of
from duramen.spark.tables.port import Storage
from duramen.spark.tables.written import SAID, SAID_DDL

__all__ = ["Filing"]


class Filing:
    """The form of each task's output. It is pickled and sent to the executors."""

    def __init__(self, options: Options) -> None:
        """Raises OptionInvalid."""
        self._columns = columns_of(options)
        self._storage = Storage(options.text("parquetTo"), options.storage("parquetStorage"))

    @property
    def is_asked(self) -> bool:
        """Whether records are written to files."""
        return bool(self._storage.location)

    @property
    def ddl(self) -> str:
        """The columns that Spark sees, in its notation."""
        return SAID_DDL if self.is_asked else spark_schema(self._columns)

    @property
    def schema(self) -> pa.Schema:
        """The same for Arrow."""
        return SAID if self.is_asked else arrow_schema(self._columns)

    def rows(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The output of a task for its records. Raises TableStorageFailed."""
        return self._written(records) if self.is_asked else records

    def _written(self, records: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from duramen.spark.tables.task_writer import writing

        with without_traceback():
            yield from writing(self._storage, arrow_schema(self._columns))(records)
