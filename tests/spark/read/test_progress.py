"""What the progress of a streaming query says of its source, as Spark's Kafka source says it."""

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import duramen.spark
from duramen.client import BrokerCluster, Producer
from duramen.node.process import NodeProcess
from duramen.spark.launching import java_compiler as compiling
from duramen.spark.options import Options
from duramen.spark.read.selection import Selection


def sources(spark: SparkSession, node: NodeProcess, checkpoint: Path, **options: str) -> list[dict[str, Any]]:
    """Of each micro-batch with data, what its progress says of the one source."""
    reader = spark.readStream.format("duramen").option("kafka.bootstrap.servers", node.kafka)
    frame = reader.options(startingOffsets="earliest", maxOffsetsPerTrigger="40", **options).load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    return [json.loads(one.json)["sources"][0] for one in query.recentProgress if one.numInputRows]


@pytest.fixture
def skewed(cluster: BrokerCluster, stream: str) -> str:
    """A stream with 10, 20, 30 and 40 records in its partitions."""
    with Producer(cluster) as producer:
        for partition in range(4):
            for number in range(10 * (partition + 1)):
                producer.produce(stream, b"%d" % number, partition=partition)
    return stream


def test_how_far_the_partitions_are_behind(spark: SparkSession, node: NodeProcess, skewed: str, tmp_path: Path) -> None:
    found = sources(spark, node, tmp_path, subscribe=skewed)
    assert len(found) > 1
    assert {source["description"] for source in found} == {f"Duramen[Subscribe[{skewed}]]"}
    for source in found:
        at, latest = source["endOffset"][skewed], source["latestOffset"][skewed]
        behind = [latest[name] - at[name] for name in "0123"]
        assert source["metrics"] == {
            "minOffsetsBehindLatest": str(min(behind)),
            "maxOffsetsBehindLatest": str(max(behind)),
            "avgOffsetsBehindLatest": str(sum(behind) / 4),
        }
    assert float(found[0]["metrics"]["avgOffsetsBehindLatest"]) == 15
    assert found[-1]["metrics"]["maxOffsetsBehindLatest"] == "0"


CHOICES = [
    ("subscribe", "a, b", "Subscribe[a, b]"),
    ("path", "a", "Subscribe[a]"),
    ("subscribePattern", "a|b.*", "SubscribePattern[a|b.*]"),
    ("assign", '{"a": [1, 0]}', "Assign[a-1, a-0]"),
]


@pytest.mark.parametrize(("option", "value", "description"), CHOICES)
def test_what_is_read(option: str, value: str, description: str) -> None:
    options = Options({"kafka.bootstrap.servers": "127.0.0.1:1", option: value}, "stream")
    assert Selection(options).description == description


@pytest.mark.long
def test_a_spark_of_another_version_reads_without(
    spark: SparkSession, node: NodeProcess, skewed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "source_of", lambda _: "public class DescribedSources { nonsense }")
    other = spark.newSession()  # whose listener has not compiled the class yet
    duramen.spark.report_lag(other)
    found = sources(other, node, tmp_path, subscribe=skewed)
    assert sum(source["numInputRows"] for source in found) == 100
    assert all("metrics" not in source for source in found)
