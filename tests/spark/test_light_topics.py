"""Spark reads a topic of the inventory by its name in Kafka."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import duramen
from duramen.node.process import NodeProcess

pytestmark = pytest.mark.long


def test_a_topic_of_the_inventory_is_read_by_name(
    spark: SparkSession, node: NodeProcess, read: Callable[..., DataFrame], stream_name: str, tmp_path: Path
) -> None:
    tenant = "t" + stream_name[-60:].strip("-")
    source, other = (f"{tenant}.prod.{name}" for name in ("a", "other"))
    with duramen.connect(node.http) as client:
        client.streams.create(stream_name)
        client.inventory.create_tenants([tenant])
        client.inventory.create_namespaces(tenant, ["prod"])
        client.inventory.create_topics(f"{tenant}/prod", ["a", "other"])
        for number in range(3):
            client.produce(source, [f"{number}-{at}" for at in range(100)])
            client.produce(other, ["other"] * 50)
        expected = sorted(f"{number}-{at}".encode() for number in range(3) for at in range(100))
        rows = read(subscribe=source).select("topic", "partition", "offset", "value").collect()
        assert sorted(bytes(row.value) for row in rows) == expected
        assert {(row.topic, row.partition) for row in rows} == {(source, 0)}

        def copy() -> None:
            options = {"kafka.bootstrap.servers": node.kafka, "subscribe": source, "startingOffsets": "earliest"}
            stream = spark.readStream.format("duramen").options(**options).load().select("value")
            writer = stream.writeStream.format("duramen").option("kafka.bootstrap.servers", node.kafka)
            query = writer.option("topic", stream_name).option("checkpointLocation", str(tmp_path))
            query = query.trigger(availableNow=True)
            query.start().awaitTermination()

        copy()
        client.produce(other, ["other"])
        client.inventory.move_topic(f"{tenant}/prod/a", f"{tenant}/prod/c", keep_alias=True)
        client.produce(f"{tenant}.prod.c", ["last"])
        copy()
        found = [record.value for batch in client.consume(stream_name) for record in batch]
    assert sorted(value or b"" for value in found) == sorted([*expected, b"last"])
