"""Reading a stream that is a table: cold files and hot log together, every offset once, and never less in silence."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PythonException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.translation.world import World, transactional, write

from duramen.client import Producer
from duramen.client.http import HttpNode, path_of
from duramen.node.process import NodeProcess
from duramen.spark.translation.creation import SparkRunner, open_tables

Read = Callable[..., DataFrame]

NOW_MS = int(time.time() * 1000)


class Lake:
    """A stream that is declared to be a table."""

    def __init__(self, node: NodeProcess, world: World, **config: str) -> None:
        self.node = node
        self.world = world
        self._server = HttpNode(node.http)
        self._path = path_of("streams", world.stream)
        wish = {"table.format": "delta", "table.location": str(world.location), "table.decode": "json", **config}
        self._server.patch(self._path, {"config": wish})

    def produce(self, first: int, end: int) -> None:
        """Records with times and headers, partitions in turn."""
        with Producer(self.world.cluster) as producer:
            for number in range(first, end):
                headers = [(b"n", b"%d" % number), (b"n", None)][: number % 3]
                producer.produce(
                    self.world.stream, b'{"a": %d}' % number, key=None if number % 5 == 0 else b"%d" % number,
                    partition=number % 2, timestamp_ms=NOW_MS + number, headers=headers,
                )  # fmt: skip

    def delete_before(self, offset: int, partition: int | None = None) -> None:
        """As retention does, in every partition unless one is named."""
        self._server.post(f"{self._path}/records/delete", {"before": offset, "partition": partition})


@pytest.fixture
def lake(node: NodeProcess, world: World) -> Lake:
    return Lake(node, world)


def places(frame: DataFrame) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in frame.select("partition", "offset").collect())


def whole(first: int, end: int) -> list[tuple[int, int]]:
    return [(partition, offset) for partition in range(2) for offset in range(first, end)]


def test_tasks_on_spark_translate_and_the_driver_commits(spark: SparkSession, world: World, lake: Lake) -> None:
    lake.produce(0, 40)
    runner = SparkRunner(spark)
    round_ = world.rounds(open_tables, runner, runner.slots)
    assert round_.run(world.cluster).records == 40
    assert [(row["_stream_partition"], row["_offset"]) for row in world.rows()] == whole(0, 20)


def test_all_is_the_default_and_every_offset_is_there_once_as_it_was(lake: Lake, world: World, read: Read) -> None:
    lake.produce(0, 40)
    before = [tuple(row) for row in read(tier="hot", includeHeaders="true").orderBy("partition", "offset").collect()]
    world.to_the_end()
    cold = [tuple(row) for row in read(tier="cold", includeHeaders="true").orderBy("partition", "offset").collect()]
    assert cold == before
    lake.produce(40, 60)
    lake.delete_before(15)
    assert places(read()) == whole(0, 30)
    assert places(read(tier="all", startingOffsets=f'{{"{world.stream}": {{"0": 10, "1": 18}}}}')) == [
        *((0, offset) for offset in range(10, 30)), *((1, offset) for offset in range(18, 30)),
    ]  # fmt: skip
    assert places(read(tier="hot")) == whole(15, 30)
    assert places(read(tier="cold")) == whole(0, 20)
    assert [
        tuple(row) for row in read(includeHeaders="true").where("offset < 20").orderBy("partition", "offset").collect()
    ] == (before)


@pytest.mark.long
def test_what_a_tier_leaves_out_is_never_left_out_in_silence(lake: Lake, world: World, read: Read) -> None:
    lake.produce(0, 40)
    world.to_the_end()
    lake.produce(40, 60)
    lake.delete_before(15)
    named = f'{{"{world.stream}": {{"0": 0, "1": 0}}}}'
    with pytest.raises(AnalysisException, match="has the offsets 15 to 29, and should be read from 0 on"):
        read(tier="hot", startingOffsets=named).count()
    assert read(tier="hot", startingOffsets=named, failOnDataLoss="false").count() == 30
    beyond = f'{{"{world.stream}": {{"0": 25, "1": 25}}}}'
    with pytest.raises(AnalysisException, match="has the offsets 0 to 19, and should be read to 24"):
        read(tier="cold", endingOffsets=beyond).count()
    lake.delete_before(25)
    with pytest.raises(AnalysisException, match="the records 20 to 24 are neither in the table nor in the log"):
        read().count()
    assert places(read(failOnDataLoss="false")) == sorted([*whole(0, 20), *whole(25, 30)])


@pytest.mark.long
def test_times_are_looked_for_in_both_tiers(lake: Lake, world: World, read: Read) -> None:
    lake.produce(0, 40)
    world.to_the_end()
    lake.produce(40, 60)
    lake.delete_before(15)
    assert places(read(startingTimestamp=NOW_MS + 10)) == whole(5, 30)
    assert places(read(startingTimestamp=NOW_MS + 44)) == whole(22, 30)
    assert places(read(endingTimestamp=NOW_MS + 10)) == whole(0, 5)
    assert places(read(tier="cold", startingTimestamp=NOW_MS + 10)) == whole(5, 20)


def test_reads_while_the_table_is_written_and_the_log_is_cut(lake: Lake, world: World, read: Read) -> None:
    found: list[list[tuple[int, int]]] = []
    for turn in (1, 2):
        lake.produce(20 * (turn - 1), 20 * turn)
        world.round(between=lambda: found.append(places(read())))
        assert found[-1] == whole(0, 10 * turn)
        lake.delete_before(10 * turn - 3)
        assert places(read()) == whole(0, 10 * turn)


def test_a_streaming_query_begins_in_the_table_and_goes_on_in_the_log(
    spark: SparkSession, lake: Lake, world: World, tmp_path: Path
) -> None:
    lake.produce(0, 40)
    world.to_the_end()
    lake.produce(40, 60)
    lake.delete_before(15)
    seen: list[tuple[int, int]] = []

    def run(**options: str) -> None:
        reader = spark.readStream.format("duramen").option("kafka.bootstrap.servers", world.kafka)
        reader = reader.option("subscribe", world.stream).option("startingOffsets", "earliest").options(**options)
        writer = reader.load().writeStream.foreachBatch(lambda frame, _: seen.extend(places(frame)))
        query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
        query.awaitTermination()

    run(maxOffsetsPerTrigger="24")
    assert sorted(seen) == whole(0, 30)
    lake.produce(60, 80)
    world.to_the_end()
    lake.delete_before(37)
    run(maxOffsetsPerTrigger="24")
    assert sorted(seen) == whole(0, 40)
    lake.produce(80, 100)
    world.to_the_end()
    lake.delete_before(47)
    with pytest.raises(StreamingQueryException, match="are gone"):
        run(tier="hot")
    run()
    assert sorted(seen) == whole(0, 50)


@pytest.mark.long
def test_a_transaction_that_ends_behind_the_table_is_there_once(lake: Lake, world: World, read: Read) -> None:
    first, second = (transactional(world, name) for name in ("a", "b"))
    write(world, first, b"1")
    write(world, second, b"2")
    first.commit_transaction(30)
    world.to_the_end()
    assert lake.world is world
    assert [bytes(row.value) for row in read(tier="cold").collect()] == [b"1"]
    assert [bytes(row.value) for row in read().collect()] == [b"1"]
    second.commit_transaction(30)
    assert sorted(bytes(row.value) for row in read().collect()) == [b"1", b"2"]
    only = read(columns="value,offset").where("offset >= 1")
    assert [(bytes(row.value), row.offset) for row in only.collect()] == [(b"2", 1)]


@pytest.mark.long
def test_an_upserted_table_has_every_key_once_at_its_newest(node: NodeProcess, world: World, read: Read) -> None:
    Lake(node, world, **{"table.upsert.by": "key"})
    keys = [b"k%d" % (number % 8) for number in range(40)]
    world.produce([b'{"a": %d}' % number for number in range(40)], keys=keys)
    assert world.round(upsert=True).committed
    world.produce([b'{"a": 100}', None, b'{"a": 101}', b'{"a": 7}'], keys=[b"k1", b"k2", b"new", b"gone"])
    world.produce([None], keys=[b"gone"])
    newest = {key: value for _, key, value in world.made}

    def rows(frame: DataFrame) -> list[tuple[bytes, bytes]]:
        return sorted((bytes(row.key), bytes(row.value)) for row in frame.collect())

    expected = sorted((key, value) for key, value in newest.items() if key is not None and value is not None)
    assert rows(read()) == expected
    assert len(rows(read(tier="cold"))) == 8
    assert read(tier="hot").count() == 45
    with pytest.raises(AnalysisException, match="is read whole: leave out where to begin"):
        read(startingOffsets=f'{{"{world.stream}": {{"0": 3, "1": 3}}}}').count()
    world.to_the_end(upsert=True)
    assert rows(read()) == expected


@pytest.mark.long
def test_tiers_of_a_stream_without_a_table_and_of_a_table_that_is_not_there_say_so(
    node: NodeProcess, world: World, read: Read
) -> None:
    world.produce([b"1"] * 4)
    with pytest.raises(AnalysisException, match=r"tier=cold: stream .* is no table"):
        read(tier="cold").count()
    with pytest.raises(AnalysisException, match="tier: 'warm' does not fit; it must be one of hot, cold, all"):
        read(tier="warm").count()
    lake = Lake(node, world)
    assert read().count() == 4
    assert read(tier="cold").count() == 0
    lake.world.location.mkdir()
    (lake.world.location / "diary.txt").write_text("dear")
    with pytest.raises((AnalysisException, PythonException), match="tier=hot reads what is in the log alone"):
        read().count()
    assert read(tier="hot").count() == 4
