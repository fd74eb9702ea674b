"""Transfer of a micro-batch's rows from Spark to the Python of its tasks, in Arrow batches of bounded size.

Spark computes the size of an Arrow batch again for each row, which takes longer than writing it. While rows are small
that is skipped: their number alone keeps a batch within Spark's limit of bytes.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import pyarrow as pa

from duramen.spark.tables.port import Storage
from duramen.spark.tables.task_writer import said, writing
from duramen.spark.tables.written import SAID_DDL, WrittenFile

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

__all__ = ["QueryHandover", "written"]

_ROWS: Final = 2_000
_ROW_BYTES: Final = 32 * 1024
"""Together Spark's own limit of 64 MiB."""

_BY_COUNT: Final[Mapping[str, str]] = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(_ROWS),
    "spark.sql.execution.arrow.maxBytesPerBatch": str((1 << 31) - 1),  # Spark takes this for no limit
}
_LARGE: Final = "duramen: a row has too many bytes to be counted only"
_SIGNS: Final = (_LARGE, "OutOfMemory", "OversizedAllocation")
"""The message of the error for large rows, in this step or earlier ones."""

_T = TypeVar("_T")


class QueryHandover:
    """The transfer for one query: limited by row count until a row is large, then with Spark's own limits."""

    def __init__(self) -> None:
        self._small = True

    def run(self, batch: "DataFrame", work: Callable[["DataFrame"], _T]) -> _T:
        """The result of `work`, which runs Spark on its frame; repeated if a row was large."""
        sizes = _sizes(batch.schema) if self._small else None
        if sizes is None:
            return work(batch)
        try:
            with _set(batch.sparkSession, _BY_COUNT):
                return work(_guarded(batch, sizes))
        except Exception as error:
            if not any(sign in str(error) for sign in _SIGNS):
                raise
        self._small = False
        return work(batch)


def written(batch: "DataFrame", storage: Storage, schema: pa.Schema, handing: QueryHandover) -> list[WrittenFile]:
    """Let Spark's tasks write a micro-batch below a location. Raises Spark's wrapper of TableStorageFailed."""
    there = batch.schema.names
    write = writing(storage, schema, there)
    # PySpark would take a dot in a column's name for a nested field.
    plain = [f"c{place}" for place in range(len(there))]
    return handing.run(batch, lambda frame: said(frame.toDF(*plain).mapInArrow(write, SAID_DDL)))


def _sizes(schema: "StructType") -> list[str] | None:
    """The bytes of each column of variable size, in SQL; None if that is not possible."""
    from pyspark.sql import types as st

    texts = (st.StringType, st.BinaryType, st.CharType, st.VarcharType)
    fixed = (st.NumericType, st.BooleanType, st.DateType, st.TimestampType, st.TimestampNTZType)
    if not all(isinstance(field.dataType, texts + fixed) for field in schema):
        return None
    names = [field.name.replace("`", "``") for field in schema if isinstance(field.dataType, texts)]
    return [f"coalesce(octet_length(`{name}`), 0)" for name in names]


def _guarded(batch: "DataFrame", sizes: list[str]) -> "DataFrame":
    """The same rows; an error at the first large one."""
    if not sizes:
        return batch
    return batch.where(f"CASE WHEN {' + '.join(sizes)} <= {_ROW_BYTES} THEN true ELSE raise_error('{_LARGE}') END")


@contextmanager
def _set(session: "SparkSession", settings: Mapping[str, str]) -> Iterator[None]:
    before = {name: session.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, known in before.items():
            if known is not None:
                session.conf.set(name, known)
