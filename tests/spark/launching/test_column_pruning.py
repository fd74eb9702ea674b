"""Batches read the columns that their query takes, and give what they give when all are read."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from tests.spark.jvm import java_frame, java_session

import duramen.spark
from duramen.client import BrokerCluster, Producer
from duramen.spark.launching import java_compiler as compiling
from duramen.spark.launching.column_pruning import prune_columns

ALL = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@pytest.fixture
def frame(cluster: BrokerCluster, read: Callable[..., DataFrame], stream: str) -> DataFrame:
    with Producer(cluster) as producer:
        for number in range(40):
            key, headers = b"k%d" % (number % 3), [(b"h", b"%d" % number)]
            producer.produce(stream, b"v%d" % number, key=key, headers=headers)
    return read()


def columns_read(frame: DataFrame) -> list[tuple[str, ...]]:
    """Of each scan of a frame's plan."""
    plan: str = java_frame(frame).queryExecution().optimizedPlan().toString()
    scans = re.findall(r"RelationV2\[([^\]]*)\]", plan)
    return [tuple(re.sub(r"#.*", "", name.strip()) for name in scan.split(",")) for scan in scans]


@contextmanager
def without_the_rule(spark: SparkSession) -> Iterator[None]:
    java = java_session(spark)
    rules = java.experimental().extraOptimizations()
    put = getattr(java.experimental(), "extraOptimizations_$eq")
    put(rules.take(0))
    try:
        yield
    finally:
        put(rules)


QUERIES: dict[str, tuple[Callable[[DataFrame], DataFrame], tuple[str, ...]]] = {
    "none": (lambda frame: frame.agg(sf.count("*")), ("partition",)),
    "one": (lambda frame: frame.agg(sf.sum(sf.length("value"))), ("value",)),
    "renamed": (lambda frame: frame.select(sf.col("value").alias("key")), ("value",)),
    "an expression": (lambda frame: frame.select(sf.concat("key", "value").alias("both")), ("key", "value")),
    "grouped": (lambda frame: frame.groupBy("topic").agg(sf.max("offset")), ("topic", "offset")),
    "filtered": (lambda frame: frame.filter("length(key) = 2").select("value"), ("key", "value")),
    "filtered twice": (
        lambda frame: frame.filter("length(key) = 2").filter(sf.rand() >= 0).filter("offset > 2").select("value"),
        ("key", "value", "offset"),
    ),
    "sorted": (lambda frame: frame.orderBy("offset").select("timestampType"), ("offset", "timestampType")),
    "in Python": (lambda frame: frame.select("value").mapInArrow(lambda batches: batches, "value BINARY"), ("value",)),
    "all": (lambda frame: frame, ALL),
    "all, filtered": (lambda frame: frame.filter("length(value) > 2"), ALL),
    "limited": (lambda frame: frame.select("topic").limit(3), ("topic",)),
}  # fmt: skip


@pytest.mark.variants(2)
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_reads_what_it_takes(spark: SparkSession, frame: DataFrame, name: str) -> None:
    query, wanted = QUERIES[name]
    assert columns_read(query(frame)) == [wanted]
    found = sorted(map(tuple, query(frame).collect()))
    with without_the_rule(spark):
        assert columns_read(query(frame)) == [ALL]
        assert found == sorted(map(tuple, query(frame).collect()))


@pytest.mark.long
def test_headers_are_read_where_they_are_asked_for(frame: DataFrame, read: Callable[..., DataFrame]) -> None:
    whole = read(includeHeaders="true")
    assert columns_read(whole.select("headers")) == [("headers",)]
    assert whole.select("headers.key").first() == (["h"],)
    assert columns_read(whole.select("offset")) == [("offset",)]
    assert whole.select("offset").count() == frame.count()


@pytest.mark.long
def test_columns_that_were_named_are_narrowed_further(frame: DataFrame, read: Callable[..., DataFrame]) -> None:
    named = read(columns="value,offset,key")
    assert columns_read(named.select("key", "offset")) == [("offset", "key")]
    assert sorted(named.select("key", "offset").collect()) == sorted(frame.select("key", "offset").collect())
    assert columns_read(named.agg(sf.count("*"))) == [("value", "offset", "key")]
    assert named.count() == 40


@pytest.mark.long
def test_two_scans_of_a_frame_read_the_same_records(frame: DataFrame) -> None:
    joined = frame.select("partition", "offset").join(
        frame.select("partition", "offset", "value"), ["partition", "offset"]
    )
    assert columns_read(joined) == [ALL, ALL]
    assert joined.count() == 40


@pytest.mark.long
def test_a_subquery_reads_the_same_records(spark: SparkSession, frame: DataFrame) -> None:
    frame.createOrReplaceTempView("pruned")
    try:
        newest = spark.sql("SELECT value FROM pruned WHERE offset = (SELECT max(offset) FROM pruned)")
        assert columns_read(newest) == [ALL, ALL]
        assert newest.count() >= 1
    finally:
        spark.catalog.dropTempView("pruned")


@pytest.mark.long
def test_a_scan_that_filters_were_handed_to_is_left_as_it_is(spark: SparkSession, frame: DataFrame) -> None:
    spark.conf.set(PUSHDOWN, "true")
    try:
        one = frame.filter("partition = 1").select("value")
        assert columns_read(one) == [ALL]
        count = one.count()
    finally:
        spark.conf.unset(PUSHDOWN)
    assert count == frame.filter("partition = 1").count()


@pytest.mark.long
def test_rows_that_are_names_of_files_are_left_as_they_are(
    frame: DataFrame, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    files = read(parquetTo=tmp_path / "files")
    assert columns_read(files.select(files.columns[0])) == [tuple(files.columns)]
    assert 1 <= files.select(files.columns[0]).count() <= frame.count()


@pytest.mark.long
def test_another_source_is_left_as_it_is(spark: SparkSession) -> None:
    assert spark.range(5).selectExpr("id", "id * 2 AS twice").agg(sf.sum("twice")).first() == (20,)


def rules(spark: SparkSession) -> int:
    return int(java_session(spark).experimental().extraOptimizations().size())


def test_the_rule_is_there_once(spark: SparkSession) -> None:
    before = rules(spark)
    assert before == 1
    assert duramen.spark.session() is spark.active()
    assert rules(spark) == before


def test_a_spark_that_does_not_know_what_the_rule_needs_goes_without(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in ("public class PruneColumns extends org.apache.spark.sql.Nothing {}", "not Java at all"):
        monkeypatch.setattr(compiling, "source_of", lambda _, source=wrong: source)
        with without_the_rule(spark):
            prune_columns(spark)
            assert rules(spark) == 0
    assert rules(spark) == 1
