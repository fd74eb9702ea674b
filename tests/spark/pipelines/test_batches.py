"""A table has each micro-batch once, whatever is repeated, interrupted or raced, in both formats."""

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    Row,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)
from tests.examples import examples
from tests.spark.tables.test_storage import files_of_at_most

from duramen.base.errors import CheckpointInvalid, TableForeign, TableStorageFailed, TableUnsupported
from duramen.spark.pipelines.batches import SinkTable, TableBatchWriter, decision
from duramen.spark.pipelines.checkpoints import PipelineCheckpoint
from duramen.spark.pipelines.delta import DeltaSink
from duramen.spark.pipelines.iceberg import IcebergSink
from duramen.spark.tables.iceberg.catalog import IcebergEntry
from duramen.spark.tables.port import Storage
from duramen.spark.tables.storage import TableLocation

SCHEMA = pa.schema([pa.field("it", pa.int64())])


class Crash(Exception):
    """The driver is killed."""


class Session:
    """Settings are taken."""

    def __init__(self) -> None:
        self.conf = self

    def get(self, _: str) -> str:
        return ""

    def set(self, _: str, __: str) -> None:
        return None


class Batch:
    """A micro-batch as far as the writer needs one; with `crashes`, the driver ends when its files are written."""

    def __init__(self, rows: list[int], *, crashes: bool = False, parts: int = 2) -> None:
        self.schema = StructType().add("it", LongType())
        self.sparkSession = Session()
        self._crashes = crashes
        self._said: list[Row] = []
        self.batches = [
            pa.RecordBatch.from_pylist([{"it": it} for it in rows[part::parts]], schema=SCHEMA) for part in range(parts)
        ]

    def toDF(self, *_: str) -> "Batch":  # noqa: N802 -- Spark's name
        return self

    def mapInArrow(  # noqa: N802 -- Spark's name
        self, write: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], _: str
    ) -> "Batch":
        for rows in self.batches:
            self._said += [Row(**file) for said in write(iter([rows])) for file in said.to_pylist()]
        return self

    def collect(self) -> list[Row]:
        if self._crashes:
            raise Crash
        return self._said


def checkpoint_at(directory: Path, query_id: str = "one") -> PipelineCheckpoint:
    (directory / "offsets").mkdir(parents=True, exist_ok=True)
    (directory / "metadata").write_text(f'{{"id":"{query_id}"}}')
    return PipelineCheckpoint(directory)


def planned(checkpoint: PipelineCheckpoint, batch_id: int, end: int) -> None:
    (checkpoint.directory / "offsets" / str(batch_id)).write_text(f"v1\n{{}}\n{end}")


def table_at(location: Path, table_format: str, owner: str = "p/s") -> SinkTable[Any]:
    storage = Storage(str(location))
    return DeltaSink(storage, owner, None) if table_format == "delta" else IcebergSink(storage, owner)


def rows_of(location: Path, table_format: str) -> list[dict[str, Any]]:
    """As the format's own library reads it."""
    if table_format == "delta":
        found: list[dict[str, Any]] = DeltaTable(str(location)).to_pyarrow_table().to_pylist()
        return found
    storage = Storage(str(location))
    rows: list[dict[str, Any]] = IcebergEntry(storage, TableLocation(storage)).load().scan().to_arrow().to_pylist()
    return rows


class Query:
    """A query's driver, which may end and come back with nothing but its checkpoint."""

    def __init__(self, directory: Path, table_format: str) -> None:
        self.directory = directory
        self.format = table_format

    def writer(self, query_id: str = "one", owner: str = "p/s", where: str = "table") -> TableBatchWriter[Any]:
        table = table_at(self.directory / where, self.format, owner)
        return TableBatchWriter(table, checkpoint_at(self.directory / query_id, query_id))

    def write(self, rows: list[int], batch_id: int, *, query_id: str = "one", **more: Any) -> None:
        self.writer(query_id)(Batch(rows, **more), batch_id)  # type: ignore[arg-type]

    def numbers(self) -> list[int]:
        return sorted(row["it"] for row in rows_of(self.directory / "table", self.format))


@pytest.fixture(params=["delta", "iceberg"])
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Query:
    return Query(tmp_path, str(request.param))


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
@settings(max_examples=examples(15))
@given(
    batches=st.lists(
        st.tuples(st.lists(st.integers(0, 9), max_size=4), st.sampled_from(["once", "twice", "crash", "crash after"])),
        max_size=5,
    )
)
def test_each_batch_is_there_once(
    tmp_path_factory: pytest.TempPathFactory, table_format: str, batches: list[tuple[list[int], str]]
) -> None:
    query = Query(tmp_path_factory.mktemp("table"), table_format)
    expected: list[int] = []
    for batch_id, (rows, fate) in enumerate(batches):
        # A driver that ended comes back with nothing but the checkpoint.
        planned(checkpoint_at(query.directory / "one"), batch_id, batch_id)
        if fate == "crash":
            with pytest.raises(Crash):
                query.write(rows, batch_id, crashes=True)
        query.write(rows, batch_id)
        if fate in ("twice", "crash after"):
            query.write(rows, batch_id)
        expected += rows
        assert query.numbers() == sorted(expected)


def test_two_drivers_race_and_each_batch_is_there_once(query: Query) -> None:
    for batch_id in range(5):
        errors: list[BaseException] = []
        writers = [query.writer(), query.writer()]

        def run(writer: TableBatchWriter[Any], batch_id: int = batch_id, errors: list[BaseException] = errors) -> None:
            try:
                writer(Batch([batch_id]), batch_id)  # type: ignore[arg-type]
            except Exception as error:  # noqa: BLE001 -- a thread's failure is the test's
                errors.append(error)

        threads = [threading.Thread(target=run, args=(writer,)) for writer in writers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if batch_id:  # while it is made, one of two may fail, and its query is started again
            assert errors == []
    assert query.numbers() == [0, 1, 2, 3, 4]


def test_a_checkpoint_that_is_older_or_newer_than_the_table_is_refused(query: Query, tmp_path: Path) -> None:
    for batch_id in range(3):
        query.write([batch_id], batch_id)
    with pytest.raises(CheckpointInvalid, match=r"older than the table .*: it is at micro-batch 1, .* up to 2"):
        query.write([1], 1)
    with pytest.raises(CheckpointInvalid, match=r"is older than the checkpoint: .* up to 4, and the last is 2"):
        query.write([5], 5)
    assert len(query.numbers()) == 3
    with pytest.raises(CheckpointInvalid, match="up to 6, and none"):
        query.writer(where="other")(Batch([1]), 7)  # type: ignore[arg-type]
    assert not (tmp_path / "other").exists()


def test_a_repeated_number_with_other_offsets_is_refused(query: Query) -> None:
    checkpoint = checkpoint_at(query.directory / "one")
    planned(checkpoint, 0, 100)
    query.write([1], 0)
    query.write([1], 0)
    planned(checkpoint, 0, 101)
    with pytest.raises(CheckpointInvalid, match="micro-batch 0 ends at other offsets"):
        query.write([1, 2], 0)
    assert query.numbers() == [1]


def test_a_new_checkpoint_does_not_write_all_of_it_again(query: Query) -> None:
    query.write([1], 0)
    with pytest.raises(CheckpointInvalid, match="was begun with another checkpoint"):
        query.write([1], 0, query_id="two")


def test_a_location_that_is_not_ours_is_refused(query: Query, tmp_path: Path) -> None:
    if query.format == "delta":
        write_deltalake(tmp_path / "table", pa.Table.from_pylist([{"it": 1}], schema=SCHEMA))
    else:
        storage = Storage(str(tmp_path / "table"))
        IcebergEntry(storage, TableLocation(storage)).create(SCHEMA, {})
    with pytest.raises(TableForeign, match="was not made by a pipeline"):
        query.write([1], 0)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "letter.txt").write_text("dear")
    with pytest.raises(TableForeign, match=r"has files and is no .*table.*: letter\.txt"):
        query.writer(where="files")(Batch([1]), 0)  # type: ignore[arg-type]


def test_a_table_of_another_sink_and_other_columns_are_refused(query: Query) -> None:
    query.write([1], 0)
    with pytest.raises(TableForeign, match="belongs to the pipeline p/s"):
        query.writer(owner="p/t")(Batch([1]), 1)  # type: ignore[arg-type]
    other = Batch([])
    other.schema = StructType().add("it", "string")
    with pytest.raises(TableForeign, match=r"it is (int64|long), and the rows' is string"):
        query.writer()(other, 1)  # type: ignore[arg-type]
    other.schema = StructType().add("It", LongType())
    with pytest.raises(TableForeign, match=r"it, which differs from the rows' It in case only; It AS it in a step"):
        query.writer()(other, 1)  # type: ignore[arg-type]


def test_a_type_that_a_format_does_not_have_is_refused(query: Query) -> None:
    other = Batch([])
    other.schema = StructType().add("it", DayTimeIntervalType())
    with pytest.raises(TableUnsupported, match="has no type for"):
        query.writer()(other, 0)  # type: ignore[arg-type]


def test_types_of_spark_s_stay_what_they_are(query: Query) -> None:
    inner = ArrayType(StructType().add("a", IntegerType(), nullable=False).add("b", StringType()))
    kinds: dict[str, DataType] = {
        "b": ByteType(), "s": ShortType(), "i": IntegerType(), "f": FloatType(), "d": DecimalType(9, 2),
        "t": TimestampType(), "n": TimestampNTZType(), "day": DateType(), "x": BinaryType(), "l": inner,
        "m": MapType(StringType(), IntegerType()), "z": BooleanType(),
    }  # fmt: skip
    schema = StructType([StructField(name, kind) for name, kind in kinds.items()])
    moment = datetime(2024, 1, 2, 3, 4, 5, 678_901)  # noqa: DTZ001 -- of a type without a zone
    row = {
        "b": 1, "s": 2, "i": 3, "f": 0.5, "d": Decimal("1.50"), "t": moment.replace(tzinfo=UTC), "n": moment,
        "day": moment.date(), "x": b"x", "l": [{"a": 1, "b": "c"}], "m": [("k", 1)], "z": True,
    }  # fmt: skip
    arrow = to_arrow_schema(schema, timezone="UTC")
    for batch_id in range(2):
        batch = Batch([], parts=1)
        batch.schema = schema
        batch.batches = [pa.RecordBatch.from_pylist([row], schema=arrow)]
        query.writer()(batch, batch_id)  # type: ignore[arg-type]
    assert rows_of(query.directory / "table", query.format) == [row, row]


def test_a_file_that_cannot_be_written_leaves_the_table_as_it_was(query: Query) -> None:
    query.write([1], 0)
    writer = query.writer()
    for size_bytes in (100, 600):  # in the data, and in the commit
        with files_of_at_most(size_bytes), pytest.raises(TableStorageFailed) as failed:
            writer(Batch([2], parts=1), 1)  # type: ignore[arg-type]
        assert "\n" not in str(failed.value)
        assert query.numbers() == [1]
    query.write([2], 1)
    assert query.numbers() == [1, 2]


@given(st.integers(-1, 5), st.integers(0, 8), st.sampled_from(["", "a", "b"]), st.sampled_from(["", "a", "b"]))
def test_what_is_decided(last: int, batch_id: int, known: str, digest: str) -> None:
    try:
        decided = decision("t", last, batch_id, known, digest)
    except CheckpointInvalid:
        other = bool(known and digest and known != digest)
        assert batch_id not in (last, last + 1) or (batch_id == last and other)
    else:
        assert decided == ("write" if batch_id == last + 1 else "done")
        assert batch_id in (last, last + 1)
