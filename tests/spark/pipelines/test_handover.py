"""Rows handed to the Python of tasks: by their number while they are small, the same rows whatever they are."""

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as sf

from duramen.spark.pipelines.handover import QueryHandover

SETTINGS = ("spark.sql.execution.arrow.maxRecordsPerBatch", "spark.sql.execution.arrow.maxBytesPerBatch")

SAID = pa.schema([("records", pa.int64()), ("size", pa.int64())])


def told(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        bytes_ = sum(len(value) for value in batch.column("value").to_pylist() if value is not None)
        yield pa.RecordBatch.from_pylist([{"records": batch.num_rows, "size": bytes_}], schema=SAID)


class Work:
    """Looks how rows come to a task, and how often it had to."""

    def __init__(self) -> None:
        self.done = 0

    def __call__(self, frame: DataFrame) -> list[Row]:
        self.done += 1
        return frame.mapInArrow(told, "records BIGINT, size BIGINT").collect()


def of(spark: SparkSession, rows: int, size: str) -> DataFrame:
    return (
        spark.range(rows)
        .coalesce(1)
        .select("id", sf.expr(f"CASE WHEN id > 0 THEN repeat('v', {size}) END").alias("value"))
    )


@pytest.mark.long
def test_small_rows_come_by_their_number_and_the_settings_are_put_back(spark: SparkSession) -> None:
    before = [spark.conf.get(name) for name in SETTINGS]
    work = Work()
    said = QueryHandover().run(of(spark, 5001, "10"), work)
    assert [row.records for row in said] == [2000, 2000, 1001]
    assert sum(row.size for row in said) == 50_000
    assert work.done == 1
    assert [spark.conf.get(name) for name in SETTINGS] == before


def test_once_a_row_is_large_all_come_as_spark_has_it(spark: SparkSession) -> None:
    handing, work = QueryHandover(), Work()
    large = of(spark, 3001, "IF(id = 3000, 40000, 10)")
    for done in (2, 3):
        said = handing.run(large, work)
        assert [row.records for row in said] == [3001]
        assert said[0].size == 2999 * 10 + 40_000
        assert work.done == done


def test_rows_whose_size_nobody_knows_come_as_spark_has_it(spark: SparkSession) -> None:
    nested = of(spark, 3001, "10").withColumn("all", sf.array("id"))
    assert [row.records for row in QueryHandover().run(nested, Work())] == [3001]


def test_a_column_may_have_any_name(spark: SparkSession) -> None:
    odd = of(spark, 2001, "10").withColumn("1 odd-name", sf.col("value"))
    assert [row.records for row in QueryHandover().run(odd, Work())] == [2000, 1]


def test_what_fails_for_another_reason_fails_at_once(spark: SparkSession) -> None:
    tried = []

    def work(frame: DataFrame) -> None:
        tried.append(frame)
        raise OSError("the disk is full")

    before = [spark.conf.get(name) for name in SETTINGS]
    with pytest.raises(OSError, match="the disk is full"):
        QueryHandover().run(of(spark, 1, "10"), work)
    assert len(tried) == 1
    assert [spark.conf.get(name) for name in SETTINGS] == before
