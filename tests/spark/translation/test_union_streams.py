"""Transactions over several streams, of which some are read from tables: no batch and no micro-batch has a part."""

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.translation.querying import FOREVER, Query
from tests.spark.translation.test_union import Lake
from tests.spark.translation.test_union_transactions import earlier_version
from tests.spark.translation.world import World, transactional

from duramen.client import Admin, Cluster, Producer
from duramen.node.process import NodeProcess
from duramen.spark.options import Options
from duramen.spark.read.source import BatchReader
from duramen.spark.read.streaming import StreamReader

Row = tuple[str, int, int, str]
Format = Literal["delta", "iceberg"]
NONE: dict[str, Any] = {"decode": "none"}


class Streams:
    """Two streams of two partitions, and transactions over both; a value names its transaction, or is `p`.

    Each record has a key of its own.
    """

    def __init__(self, one: World, other: World) -> None:
        self.worlds = (one, other)
        self.kafka = one.kafka
        self.keys = 0
        self.producers = [transactional(one, name) for name in "abc"]
        self.names = ["a1", "b1", "c1"]
        self.written: Counter[str] = Counter()
        self.committed: Counter[str] = Counter()

    def key(self) -> bytes:
        self.keys += 1
        return b"%d" % self.keys

    def write(self, index: int, *places: int) -> None:
        """To partitions of the first stream, 0 and 1, and of the other, 2 and 3."""
        for place in places:
            world = self.worlds[place // 2]
            self.producers[index].produce(world.stream, self.names[index].encode(), self.key(), place % 2)
            assert self.producers[index].flush(30) == 0
            self.written[self.names[index]] += 1

    def end(self, index: int, *, commit: bool = True) -> None:
        name, producer = self.names[index], self.producers[index]
        if commit:
            producer.commit_transaction(30)
            self.committed[name] = self.written[name]
        else:
            producer.abort_transaction(30)
        self.names[index] = f"{name[0]}{int(name[1:]) + 1}"
        producer.begin_transaction()

    def plain(self, count: int) -> None:
        for world in self.worlds:
            with Producer(world.cluster) as producer:
                for number in range(count):
                    producer.produce(world.stream, b"p", key=self.key(), partition=number % 2)
        self.committed["p"] += 2 * count

    def work(self) -> None:
        self.write(0, 0, 3, 0)
        self.write(1, 1, 2)
        self.plain(2)
        self.write(1, 3, 0)
        self.end(0)
        self.write(0, 1, 2)
        self.end(1)
        self.end(0, commit=False)
        self.write(0, 2, 0)
        self.end(0)

    def judge(self, found: list[Row]) -> Counter[str]:
        """Raise where a transaction is there in part."""
        counts = Counter(row[3] for row in found)
        for name, count in counts.items():
            assert name == "p" or count == self.committed[name], f"{name}: {count} of {self.written[name]}"
        return counts

    def options(self, **more: str) -> dict[str, str]:
        names = ",".join(world.stream for world in self.worlds)
        return {"kafka.bootstrap.servers": self.kafka, "subscribe": names, **more}

    def batch(self, **more: str) -> list[Row]:
        reader = BatchReader(Options(self.options(**more), "batch"))
        return rows(reader, reader.partitions())


def rows(reader: BatchReader | StreamReader, parts: Any) -> list[Row]:
    """Stream, partition, offset and value; each once."""
    found = [
        (row["topic"], row["partition"], row["offset"], row["value"].decode())
        for part in parts
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    assert len(found) == len({row[:3] for row in found})
    return sorted(found)


def query_of(streams: Streams, **more: str) -> Query[Row]:
    return Query(streams.options(startingOffsets="earliest", **more), rows)


@pytest.fixture
def other(node: NodeProcess, cluster: Cluster, stream_name: str, tmp_path: Path) -> World:
    Admin(cluster).create_stream(f"{stream_name}-other", 2)
    return World(node.kafka, cluster, f"{stream_name}-other", tmp_path / "other")


@pytest.fixture
def streams(world: World, other: World) -> Streams:
    return Streams(world, other)


@pytest.mark.parametrize("format_", ["delta", "iceberg"])
@pytest.mark.parametrize("both", [True, False], ids=["two tables", "table and log"])
def test_micro_batches_have_whole_transactions_over_streams(
    node: NodeProcess, streams: Streams, *, both: bool, format_: Format
) -> None:
    kind: dict[str, Any] = {"format": format_, **NONE}
    tabled = streams.worlds if both else streams.worlds[:1]
    lakes = [Lake(node, world, **{"table.format": format_, "table.decode": "none"}) for world in tabled]
    for turn in range(4):
        if turn == 3:
            streams.write(2, 0, 3)  # open over all that follows
        streams.work()
        for index, world in enumerate(tabled):
            if turn % 2 == index or turn == 3:
                world.round(**kind)
    for lake in lakes:
        lake.delete_before(12)
    query, seen = query_of(streams), Counter[str]()
    for most in (3, 20, FOREVER):
        query, seen = query_of(streams), Counter()
        for found in query.run(most):
            seen += streams.judge(found)
        assert seen == streams.committed
        assert len(query.batches) > {3: 8, 20: 3, FOREVER: 0}[most]
        query.replay()
    streams.write(2, 1)
    streams.end(2)
    streams.work()
    for found in query.run(5):
        seen += streams.judge(found)
    assert seen == streams.committed
    for world in tabled:
        world.to_the_end(**kind)
    query.replay()
    for lake in lakes:
        lake.delete_before(16)
    query.replay()


def test_batches_have_whole_transactions_over_streams(node: NodeProcess, streams: Streams) -> None:
    one, other = streams.worlds
    lakes = [Lake(node, world, **{"table.decode": "none"}) for world in streams.worlds]
    streams.work()
    one.to_the_end(**NONE)
    other.to_the_end(**NONE)
    streams.work()
    one.to_the_end(**NONE)
    # The other table has not what this one has of the same transactions.
    cold = streams.judge(streams.batch(tier="cold"))
    assert cold["a1"] == streams.committed["a1"]
    assert cold["a4"] == 0
    assert streams.judge(streams.batch()) == streams.committed
    other.to_the_end(**NONE)
    assert streams.judge(streams.batch(tier="cold")) == streams.committed
    lakes[0].delete_before(9)
    streams.work()
    assert streams.judge(streams.batch()) == streams.committed
    streams.write(2, 0, 3)
    assert streams.judge(streams.batch()) == streams.committed
    streams.end(2)
    assert streams.judge(streams.batch()) == streams.committed


def test_what_one_log_has_lost_in_part_is_not_shown_out_of_the_table_of_another(
    node: NodeProcess, streams: Streams
) -> None:
    lake = Lake(node, streams.worlds[0], **{"table.decode": "none"})
    bare = Lake(node, streams.worlds[1], **{"table.format": "none"})
    streams.write(2, 0, 3, 3)
    streams.plain(2)
    streams.write(2, 3)
    streams.end(2)
    streams.work()
    streams.worlds[0].to_the_end(**NONE)
    lake.delete_before(6)
    bare.delete_before(2)
    shown = Counter(row[3] for row in streams.batch())
    assert shown["c1"] == 0
    assert shown["a1"] == streams.committed["a1"]
    for most in (2, FOREVER):
        found = Counter(row[3] for rows_ in query_of(streams).run(most) for row in rows_)
        assert found == shown


def test_an_upserted_table_is_read_wholly_once_no_transaction_of_it_is_left_in_part(
    node: NodeProcess, streams: Streams
) -> None:
    kind: dict[str, Any] = {"upsert": True, **NONE}
    one = streams.worlds[0]
    lake = Lake(node, one, **{"table.decode": "none", "table.upsert.by": "key"})
    streams.work()
    one.to_the_end(**kind)
    streams.work()
    streams.write(2, 0, 3)
    one.to_the_end(**kind)
    lake.delete_before(6)
    for most in (2, FOREVER):
        query, seen = query_of(streams), Counter[str]()
        for found in query.run(most):
            seen += streams.judge(found)
        assert seen == streams.committed
    assert streams.judge(streams.batch()) == streams.committed


def test_a_table_of_an_earlier_version_ends_where_it_was_whole(node: NodeProcess, streams: Streams) -> None:
    one = streams.worlds[0]
    lake = Lake(node, one, **{"table.decode": "none"})
    streams.plain(4)
    earlier_version(one)
    streams.work()
    one.to_the_end(**NONE)
    expected = [row[:3] for row in streams.batch(tier="hot", startingOffsets="earliest")]
    lake.delete_before(6)
    found = [row[:3] for rows_ in query_of(streams).run(3) for row in rows_]
    assert sorted(found) == expected == [row[:3] for row in streams.batch()]


def test_micro_batches_on_spark_have_whole_transactions_over_streams(
    spark: SparkSession, node: NodeProcess, streams: Streams, tmp_path: Path
) -> None:
    lake = Lake(node, streams.worlds[0], **{"table.decode": "none"})
    for _ in range(3):
        streams.work()
        streams.worlds[0].to_the_end(**NONE)
    lake.delete_before(12)
    batches: list[list[Row]] = []

    def take(batch: DataFrame, _: int) -> None:
        found = batch.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value").collect()
        batches.append([(row.topic, row.partition, row.offset, row.value) for row in found])

    given = streams.options(startingOffsets="earliest", maxOffsetsPerTrigger="12")
    frame = spark.readStream.format("duramen").options(**given).load()
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert len(batches) > 3
    seen = Counter[str]()
    for found in batches:
        seen += streams.judge(found)
    assert seen == streams.committed
