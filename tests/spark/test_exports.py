"""Spark over queue spaces and the inventory: tables as of one moment, and the operations of a space as a stream."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession

import duramen
from duramen.node.process import NodeProcess
from duramen.node.processes import NodeProcesses

Read = Callable[..., DataFrame]


@pytest.fixture
def client(node: NodeProcess) -> Iterator[duramen.Client]:
    with duramen.connect(node.http) as client:
        yield client


@pytest.fixture
def table(spark: SparkSession, node: NodeProcess) -> Read:
    def load(**options: Any) -> DataFrame:
        return spark.read.format("duramen").options(server=node.http, **options).load()

    return load


def test_the_entries_of_a_space_are_a_table(client: duramen.Client, table: Read, stream_name: str) -> None:
    client.spaces.create(stream_name, shards=3)
    queues = client.queues(stream_name)
    names = [f"user-{number}" for number in range(50)]
    queues.enqueue_many([(name, f"{name}/{number}") for number in range(4) for name in names])
    first, second, *_ = queues.retrieve("user-7").entries
    queues.edit("user-7", [(first.position, "edited")])
    queues.delete("user-7", [second.position])
    frame = table(queues=stream_name, minPartitions=6)
    assert frame.columns == ["queue", "position", "version", "key", "value", "headers", "enqueued_at"]
    assert frame.rdd.getNumPartitions() == 6
    rows = frame.collect()
    assert Counter(row.queue for row in rows) == {name: 4 - (name == "user-7") for name in names}
    for name in names:
        there = [(one.position, one.version, one.value) for one in queues.retrieve(name).entries]
        found = [(row.position, row.version, bytes(row.value)) for row in rows if row.queue == name]
        assert sorted(found, key=lambda one: int(one[0].split(".")[1])) == there
    counted = table(queues=stream_name, columns="queue").groupBy("queue").count().collect()
    assert {row.queue: row["count"] for row in counted} == Counter(row.queue for row in rows)


@pytest.mark.long
def test_the_topic_of_a_queue_is_read_to_its_end(
    spark: SparkSession, node: NodeProcess, client: duramen.Client, stream_name: str
) -> None:
    client.spaces.create(stream_name, shards=1, config={"queue.topic.prefix": f"{stream_name}."})
    queues = client.queues(stream_name)
    first, second, *_, last = queues.enqueue("ann", [f"{number}" for number in range(20)])
    queues.enqueue("bob", ["other"] * 10)
    queues.edit("ann", [(first, "edited")])
    queues.delete("ann", [second, last])
    options = {"kafka.bootstrap.servers": node.kafka, "subscribe": f"{stream_name}.ann"}
    rows = spark.read.format("duramen").options(**options).load().orderBy("offset").collect()
    assert [bytes(row.value).decode() for row in rows] == ["edited", *map(str, range(2, 19))]
    assert rows[0].offset == int(first.split(".")[1])


@pytest.mark.long
def test_the_entries_of_a_space_of_a_cluster_are_a_table(spark: SparkSession, tmp_path: Path) -> None:
    names = [f"user-{number}" for number in range(50)]
    with NodeProcesses(tmp_path, 3) as nodes:
        first, second, third = nodes.nodes.values()
        with duramen.connect(first.http) as client:
            client.spaces.create("mail", shards=6)
            client.queues("mail").enqueue_many([(name, f"{name}/{number}") for number in range(4) for name in names])

        def read(**options: Any) -> DataFrame:
            return spark.read.format("duramen").options(queues="mail", **options).load()

        for node in (first, second, third):
            rows = read(server=node.http, minPartitions=12).collect()
            assert Counter(row.queue for row in rows) == dict.fromkeys(names, 4)
            assert {bytes(row.value).decode() for row in rows} == {f"{name}/{at}" for name in names for at in range(4)}
        third.kill()
        assert read(server=second.http).count() == 4 * len(names)


def test_the_inventory_is_a_table(client: duramen.Client, table: Read, stream_name: str) -> None:
    tenant, inventory = stream_name.replace(".", "-")[:40], client.inventory
    inventory.create_tenants([tenant], labels={"plan": "gold"})
    inventory.create_namespaces(tenant, ["dev", "prod", "gone"])
    for namespace, count in (("dev", 300), ("prod", 20), ("gone", 5)):
        inventory.create_topics(f"{tenant}/{namespace}", [f"t{number:03}" for number in range(count)])
    inventory.policies.set(f"{tenant}/prod", {"durability": "os"})
    inventory.create_topics(f"{tenant}/prod", [f"os-{number}" for number in range(30)])
    inventory.policies.set(f"{tenant}/prod", {"durability": None})
    inventory.move_topic(f"{tenant}/dev/t007", f"{tenant}/prod/bond")
    inventory.policies.set(tenant, {"quota.topics": 1000})
    inventory.policies.set(f"{tenant}/prod/bond", {"producer_byte_rate": 99})
    inventory.delete_topic(f"{tenant}/dev/t008")
    inventory.delete_namespace(f"{tenant}/gone")
    rows = [row for row in table(inventory="topics", minPartitions=20).collect() if row.tenant == tenant]
    assert Counter(row.namespace for row in rows) == {"dev": 298, "prod": 51}
    assert {(row.name, row.state) for row in rows if row.name in ("bond", "t009")} == {
        ("bond", "moved"), ("t009", "created"),
    }  # fmt: skip
    assert {row.name for row in rows if row.durability == "os"} == {f"os-{number}" for number in range(30)}
    assert {row.durability for row in rows} == {"os", "sync"}
    (bond,) = [row for row in rows if row.name == "bond"]
    assert bond.id == str(inventory.topic(f"{tenant}/prod/bond").id)
    assert bond.account == "default"
    assert bond.policies == {"producer_byte_rate": "99", "quota.topics": "1000"}
    assert {str(row.policies) for row in rows if row is not bond} == {"{'quota.topics': '1000'}"}
    counts = table(inventory="topics", columns="tenant").groupBy("tenant").count().collect()
    assert {row.tenant: row["count"] for row in counts}[tenant] == 349
    (made,) = [row for row in table(inventory="tenants").collect() if row.name == tenant]
    assert (made.account, made.labels) == ("default", {"plan": "gold"})
    assert made.policies == {"quota.topics": "1000"}
    spaces = [row.name for row in table(inventory="namespaces").collect() if row.tenant == tenant]
    assert sorted(spaces) == ["dev", "prod"]


@pytest.mark.long
def test_what_does_not_fit_is_said_in_a_line(table: Read, spark: SparkSession, node: NodeProcess) -> None:
    for options, said in (
        ({"queues": "nowhere-mail"}, "there is no queue space nowhere-mail"),
        ({"queues": " "}, "queues names no queue space"),
        ({"queues": "mail", "subscribe": "mail"}, "subscribe does not go with queues"),
        ({"queues": "mail", "inventory": "topics"}, "inventory does not go with queues"),
        ({"inventory": "topics", "startingOffsets": "earliest"}, "startingOffsets does not go with inventory"),
        ({"inventory": "streams"}, "it must be one of topics, namespaces, tenants"),
        ({"inventory": "topics", "columns": "names"}, "did you mean name?"),
    ):
        with pytest.raises(PySparkException) as caught:
            table(**options).count()
        assert said in str(caught.value), options
    reader = spark.readStream.format("duramen").options(server=node.http, queues="mail")
    query = reader.load().writeStream.format("noop").start()
    with pytest.raises(PySparkException, match="a streaming query reads the operations of a space"):
        query.awaitTermination()


@pytest.mark.long
def test_the_operations_of_a_space_are_a_stream_until_its_log_is_cut(
    spark: SparkSession, new_node: Callable[..., NodeProcess], tmp_path: Any
) -> None:
    with new_node() as node, duramen.connect(node.http) as client:
        client.spaces.create("mail", shards=1, config={"queue.log.retention.ms": 0, "segment.bytes": 1 << 20})
        queues = client.queues("mail")
        first, second = queues.enqueue("ann", ["one", "two"])
        queues.edit("ann", [(first, "uno")])
        queues.delete("ann", [second])
        options = {"kafka.bootstrap.servers": node.kafka, "subscribe": "mail", "startingOffsets": "earliest"}
        found = list[tuple[str, Any]]()

        def take(frame: DataFrame, _: int) -> None:
            found.extend((bytes(row.key).decode(), row.value and bytes(row.value).decode()) for row in frame.collect())

        def run() -> None:
            reader = spark.readStream.format("duramen").options(**options).load()
            writer = reader.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
            writer.trigger(availableNow=True).start().awaitTermination()

        run()
        assert found == [("ann", "one"), ("ann", "two"), ("ann", "uno"), ("ann", None)]
        while client.streams.describe("mail").partitions[0].start_offset <= 4:
            queues.enqueue("bob", [b"x" * 90] * 8_000)
        with pytest.raises((PySparkException, PythonException), match=r"queue\.log\.retention\.ms"):
            run()
