"""Rows of every type with the values at which filters go wrong, tables of them, and comparisons with such values."""

from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from duramen.spark.pipelines.batches import SinkTable, TableBatchWriter
from duramen.spark.pipelines.checkpoints import PipelineCheckpoint
from duramen.spark.pipelines.delta import DeltaSink
from duramen.spark.pipelines.iceberg import IcebergSink
from duramen.spark.tables.port import Storage

_DAYS: Final = (-719_530, -719_529, -719_162, -719_161, -354_286, -1, 0, 19_000, 2_932_896, 2_932_897, 5_000_000)
"""Around the years 0, 1, 1000, 1970 and 9999, and beyond."""

_TIMES: Final = sorted(
    {day * 86_400_000_000 + more for day in _DAYS for more in (0, 1, 999, 1000, 86_399_999_999)}
)  # fmt: skip
_TEXTS: Final = (
    "", "a", "b", "a" * 15 + "\U0001f600", "a" * 15 + "\ud7ff" * 2, "a" * 16, "a" * 17, "\U0010ffff" * 16,
    "\U0010ffff" * 17, "\uffff" * 17, "b" * 32, "b" * 33, "b" * 31 + "\U0001f600", "b" * 31 + "\U0001f600\U0001f600",
    "\x00", "\u00e4" * 5000, "'\"\\",
)  # fmt: skip
_FLOATS: Final = (float("-inf"), -1.5, -0.0, 0.0, 1.5, float("inf"), float("nan"))
_WIDE: Final = Context(prec=38)
VALUES: Final[dict[str, Sequence[Any]]] = {
    "tiny": (-128, -1, 0, 127),
    "small": (-32768, 0, 32767),
    "whole": (-(1 << 31), -1, 0, 1, (1 << 31) - 1),
    "long": (-(1 << 63), -(1 << 53) - 1, 0, (1 << 53) + 1, (1 << 63) - 1),
    "flag": (False, True),
    "real": _FLOATS,
    "double": _FLOATS,
    "short_decimal": tuple(map(Decimal, ("-9999999.99", "-0.01", "0.00", "0.01", "1.28", "9999999.99"))),
    "long_decimal": tuple(
        Decimal(sign + digits + "0" * 10 if digits != "9" * 38 else sign + digits).scaleb(-10, _WIDE)
        for sign, digits in (("-", "9" * 38), ("-", "1"), ("", "0"), ("", "1"), ("", "9" * 38))
    ),
    "text": _TEXTS,
    "raw": (b"", b"\x00", b"\x7f", b"\xff", b"\xff" * 16, b"\xff" * 17, b"a" * 16, b"a" * 17, b"a" + b"\xff" * 16),
    "day": _DAYS,
    "at": _TIMES,
    "local": _TIMES,
}  # fmt: skip
"""By column; days and times as the number since 1970."""

KINDS: Final[dict[str, tuple[DataType, pa.DataType]]] = {
    "tiny": (ByteType(), pa.int8()),
    "small": (ShortType(), pa.int16()),
    "whole": (IntegerType(), pa.int32()),
    "long": (LongType(), pa.int64()),
    "flag": (BooleanType(), pa.bool_()),
    "real": (FloatType(), pa.float32()),
    "double": (DoubleType(), pa.float64()),
    "short_decimal": (DecimalType(9, 2), pa.decimal128(9, 2)),
    "long_decimal": (DecimalType(38, 10), pa.decimal128(38, 10)),
    "text": (StringType(), pa.string()),
    "raw": (BinaryType(), pa.binary()),
    "day": (DateType(), pa.date32()),
    "at": (TimestampType(), pa.timestamp("us", "UTC")),
    "local": (TimestampNTZType(), pa.timestamp("us")),
}
NUMBER: Final = "number"
OPERATORS: Final = ("=", "<", "<=", ">", ">=", "<>", "IS NULL", "IS NOT NULL")

Rows = Sequence[dict[str, Any]]


class Comparison(NamedTuple):
    """A column compared with a value of its own kind; with none for `IS NULL`."""

    column: str
    operator: str
    value: Any


rows: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {name: st.none() | st.sampled_from(values) for name, values in VALUES.items()}
)
files: st.SearchStrategy[list[list[dict[str, Any]]]] = st.lists(
    st.lists(rows, min_size=1, max_size=3), min_size=1, max_size=3
)
comparisons: st.SearchStrategy[Comparison] = st.sampled_from(list(VALUES)).flatmap(
    lambda name: st.builds(Comparison, st.just(name), st.sampled_from(OPERATORS), st.sampled_from(VALUES[name]))
)
EVERY: Final = tuple(
    Comparison(name, operator, value)
    for name, values in VALUES.items()
    for operator in OPERATORS
    for value in (values[:1] if operator.startswith("IS") else values)
)


def one_by_one() -> Iterator[Rows]:
    """Each value in a file of its own, beside the first of the others."""
    most = max(map(len, VALUES.values()))
    for index in range(most):
        yield [{name: values[index % len(values)] for name, values in VALUES.items()}]
    yield [dict.fromkeys(VALUES)]


def array_of(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Values of a column as Arrow has them."""
    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).cast(kind)
    return pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)


class _Batch:
    """A micro-batch as far as a sink needs one; its rows go into one file."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.schema = StructType().add(NUMBER, LongType())
        for name, (kind, _) in KINDS.items():
            self.schema = self.schema.add(name, kind)
        self.sparkSession = self.conf = self
        self._batch = batch
        self._said: list[Row] = []

    def get(self, _: str) -> str:
        return ""

    def set(self, _: str, __: str) -> None:
        return None

    def where(self, _: str) -> "_Batch":
        return self

    def toDF(self, *_: str) -> "_Batch":  # noqa: N802 -- Spark's name
        return self

    def mapInArrow(self, write: Any, _: str) -> "_Batch":  # noqa: N802 -- Spark's name
        self._said = [Row(**file) for said in write(iter([self._batch])) for file in said.to_pylist()]
        return self

    def collect(self) -> list[Row]:
        return self._said


def make(directory: Path, table_format: str, found: Sequence[Rows]) -> Path:
    """A pipeline's table with these files; rows are numbered in their order. Returns where it is."""
    location, checkpoint = directory / f"{table_format}", directory / f"checkpoint-{table_format}"
    (checkpoint / "offsets").mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"one"}')
    storage = Storage(str(location))
    table: SinkTable[Any] = DeltaSink(storage, "p/s", None) if table_format == "delta" else IcebergSink(storage, "p/s")
    count = 0
    for batch_id, some in enumerate(found):
        columns = {NUMBER: pa.array(range(count, count + len(some)), pa.int64())}
        columns |= {name: array_of([row[name] for row in some], kind) for name, (_, kind) in KINDS.items()}
        count += len(some)
        batch: Any = _Batch(pa.record_batch(columns))
        TableBatchWriter(table, PipelineCheckpoint(checkpoint))(batch, batch_id)
    return location
