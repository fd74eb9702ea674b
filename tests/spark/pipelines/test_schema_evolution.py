"""Columns of a sink's table follow the rows' as far as its format can; what cannot says how to go on."""

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType
from tests.spark.pipelines.running import problems_of, run_once
from tests.spark.pipelines.test_batches import Batch, Query, rows_of

from duramen.base.errors import TableForeign
from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.values.fields import fitted, wider

Rows = list[Mapping[str, Any]]


@pytest.fixture(params=["delta", "iceberg"])
def query(request: pytest.FixtureRequest, tmp_path: Path) -> Query:
    return Query(tmp_path, str(request.param))


@pytest.fixture(autouse=True)
def _ddl(spark: SparkSession) -> None:
    """PySpark reads DDL with a session only."""


class Guarded(Batch):
    """A micro-batch whose rows are small."""

    def where(self, _: str) -> "Guarded":
        return self


def batch_of(columns: str, rows: Rows) -> Batch:
    """A micro-batch with these columns, in Spark's DDL."""
    batch = Guarded([])
    batch.schema = cast("StructType", StructType.fromDDL(columns))
    batch.batches = [pa.RecordBatch.from_pylist(list(rows), schema=to_arrow_schema(batch.schema, timezone="UTC"))]
    return batch


def write(query: Query, *batches: tuple[str, Rows]) -> list[dict[str, Any]]:
    """All of them, one after another; what the table has then, as the format's own library reads it."""
    for batch_id, (columns, rows) in enumerate(batches):
        query.writer()(batch_of(columns, rows), batch_id)  # type: ignore[arg-type]
    found = rows_of(query.directory / "table", query.format)
    # pyiceberg reads lists that are null as empty ones.
    plain = [{name: None if value == [] else value for name, value in row.items()} for row in found]
    return sorted(plain, key=lambda row: int(row["it"]))


def test_a_new_column_is_added_and_one_that_is_gone_is_null(query: Query) -> None:
    assert write(
        query,
        ("it BIGINT, a STRING", [{"it": 1, "a": "x"}]),
        ("it BIGINT, b DOUBLE, a STRING", [{"it": 2, "a": "y", "b": 0.5}]),
        ("it BIGINT, c ARRAY<STRUCT<d: INT>>", [{"it": 3, "c": [{"d": 1}]}]),
        ("it BIGINT, c ARRAY<STRUCT<d: INT, e: STRING>>", [{"it": 4, "c": [{"d": 2, "e": "z"}]}]),
        ("it BIGINT", [{"it": 5}]),
    ) == [
        {"it": 1, "a": "x", "b": None, "c": None},
        {"it": 2, "a": "y", "b": 0.5, "c": None},
        {"it": 3, "a": None, "b": None, "c": [{"d": 1, "e": None}]},
        {"it": 4, "a": None, "b": None, "c": [{"d": 2, "e": "z"}]},
        {"it": 5, "a": None, "b": None, "c": None},
    ]


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("before", "after", "small", "large"),
    [
        ("INT", "BIGINT", 7, 1 << 40),
        ("FLOAT", "DOUBLE", 0.5, 1e300),
        ("DECIMAL(9, 2)", "DECIMAL(12, 2)", Decimal("1.50"), Decimal("9999999999.25")),
        ("STRUCT<n: INT>", "STRUCT<n: BIGINT>", {"n": 7}, {"n": 1 << 40}),
    ],
)
def test_a_type_is_widened_where_the_format_can(
    query: Query, before: str, after: str, small: object, large: object
) -> None:
    batches: list[tuple[str, Rows]] = [
        (f"it INT, n {before}", [{"it": 1, "n": small}]), (f"it INT, n {after}", [{"it": 2, "n": large}])
    ]  # fmt: skip
    if query.format == "iceberg":
        assert [row["n"] for row in write(query, *batches)] == [small, large]
        return
    with pytest.raises(
        TableForeign, match=r"library cannot widen it; CAST\(n AS .*\) in a step keeps the column"
    ) as no:
        write(query, *batches)
    assert str(query.directory / "table") in str(no.value)
    assert [row["n"] for row in rows_of(query.directory / "table", query.format)] == [small]


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("wide", "narrow", "value"),
    [("BIGINT", "INT", 7), ("BIGINT", "TINYINT", 7), ("DOUBLE", "FLOAT", 0.5), ("DOUBLE", "INT", 7),
     ("DECIMAL(12, 3)", "DECIMAL(9, 2)", Decimal("1.5")), ("MAP<STRING, BIGINT>", "MAP<STRING, INT>", [("a", 1)])],
)  # fmt: skip
def test_narrower_rows_fit_a_wider_column(query: Query, wide: str, narrow: str, value: object) -> None:
    found = write(
        query, (f"it INT, n {wide}", [{"it": 1, "n": value}]), (f"it INT, n {narrow}", [{"it": 2, "n": value}])
    )
    assert [row["n"] for row in found] == [value, value]


@pytest.mark.variants(2)
@pytest.mark.parametrize(("before", "after"), [("BIGINT", "DOUBLE"), ("BIGINT", "STRING"), ("STRING", "DATE"),
                                               ("STRUCT<n: INT>", "STRUCT<n: STRING>")])  # fmt: skip
def test_what_cannot_be_says_how_to_go_on(query: Query, before: str, after: str) -> None:
    write(query, (f"it INT, n {before}", [{"it": 1}]))
    how = r"; CAST\(n AS (BIGINT|STRING|struct<n:int>)\) in a step keeps the column, AS gives the new one another name"
    with pytest.raises(TableForeign, match=how):
        query.writer()(batch_of(f"it INT, n {after}", [{"it": 2}]), 1)  # type: ignore[arg-type]
    assert len(rows_of(query.directory / "table", query.format)) == 1


NUMBERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(5, 2),
           pa.decimal128(9, 0), pa.decimal128(38, 3))  # fmt: skip


@given(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS), st.lists(st.integers(-100, 100) | st.none(), max_size=9))
def test_the_wider_of_two_has_all_values_of_both(one: pa.DataType, other: pa.DataType, values: list[int]) -> None:
    found = wider(one, other)
    assert found == wider(other, one)
    assert wider(one, one) == one
    if found is None:
        return
    for kind in (one, other):
        array = (
            pa.array(values, pa.int64()).cast(pa.decimal128(38, 0) if pa.types.is_decimal(kind) else kind).cast(kind)
        )
        for narrow, wide in ((array, found), (pa.array([[("k", None)]] * 2, pa.map_(pa.string(), kind)),
                                              pa.map_(pa.string(), found))):  # fmt: skip
            batch = pa.record_batch({"it": narrow})
            assert fitted(batch.slice(1), pa.schema([("it", wide)])).column("it").to_pylist() == narrow.to_pylist()[1:]


PIPELINE = """\
pipeline: grows
brokers: {brokers}
sources:
  there:
    stream: {stream}
    options: {{startingOffsets: earliest}}
steps:
  numbers: {{sql: "SELECT CAST(value AS STRING) AS id, {columns} FROM there"}}
sinks:
  appended: {{from: numbers, delta: appended}}
  keyed: {{from: numbers, delta: keyed, keys: id}}
  berg: {{from: numbers, iceberg: berg}}
"""


@pytest.mark.long
def test_a_pipeline_whose_file_gets_a_column(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    """Each run reads one record more, and its columns are others; keyed rows are replaced whole."""
    StreamAdmin(cluster).create_stream(stream_name, 1)
    file = tmp_path / "grows.yaml"

    def run(columns: str, value: bytes) -> None:
        with Producer(cluster) as producer:
            producer.produce(stream_name, value)
        file.write_text(PIPELINE.format(brokers=node.kafka, stream=stream_name, columns=columns))
        assert [said for said in problems_of(spark, file) if "warning" not in said] == []
        run_once(spark, file, restarts=3)

    run("1 AS a", b"one")
    run("2 AS a, 'x' AS `b`", b"two")
    run("CAST(3 AS TINYINT) AS a", b"one")
    assert "numbers has no column b, which is null in its new rows of the table" in "".join(problems_of(spark, file))

    def found(table: str, table_format: str) -> list[tuple[Any, ...]]:
        rows = rows_of(tmp_path / table, table_format)
        return sorted((row["id"], row["a"], row["b"]) for row in rows)

    every = [("one", 1, None), ("one", 3, None), ("two", 2, "x")]
    assert (found("appended", "delta"), found("berg", "iceberg")) == (every, every)
    assert found("keyed", "delta") == every[1:]
    file.write_text(PIPELINE.format(brokers=node.kafka, stream=stream_name, columns="CAST(4 AS BIGINT) AS a"))
    said = [one for one in problems_of(spark, file) if "cannot widen it; CAST(a AS INT) in a step" in one]
    assert [one.split(":")[1] for one in said] == ["10", "11"], "Iceberg can, and Delta cannot"
