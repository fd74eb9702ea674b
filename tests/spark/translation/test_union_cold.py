"""Streaming queries of tables alone: they end where they should, and have every offset once while tables go on."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.streaming.readwriter import DataStreamWriter
from tests.spark.translation.querying import FOREVER
from tests.spark.translation.test_union import Lake
from tests.spark.translation.transacting import Row, Writers, options, query_of, rows
from tests.spark.translation.world import World

from duramen.base.errors import RecordsLost, TableAhead
from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.options import Options
from duramen.spark.read import cold_tables as coldtables
from duramen.spark.read.stream import StreamReader

UPSERTED = {"table.decode": "none", "table.upsert.by": "key"}
NONE: dict[str, Any] = {"decode": "none"}


@pytest.mark.parametrize("upsert", [False, True], ids=["appended", "upserted"])
def test_available_now_ends_though_the_table_goes_on(node: NodeProcess, world: World, *, upsert: bool) -> None:
    kind: dict[str, Any] = {"upsert": upsert, **NONE}
    Lake(node, world, **(UPSERTED if upsert else {"table.decode": "none"}))

    def fill() -> None:
        world.produce([b"1"] * 8, keys=[b"%d" % number for number in range(8)])
        world.to_the_end(**kind)

    fill()
    query = query_of(world, startingOffsets="earliest", tier="cold")
    running = query.run_to_now()
    assert len(next(running)) == 8
    fill()
    assert list(running) == []


@pytest.mark.long
def test_a_table_that_is_behind_its_query_is_waited_for(
    node: NodeProcess, world: World, cluster: BrokerCluster
) -> None:
    """A checkpoint of a query that read the log too: what the table lacks of it does not come once more."""
    StreamAdmin(cluster).create_stream(f"{world.stream}-other", 2)
    other = World(node.kafka, cluster, f"{world.stream}-other", world.location.with_name("other"))
    worlds = (world, other)
    for one in worlds:
        Lake(node, one, **{"table.decode": "none"})
        one.produce([b"1"] * 8)
        one.to_the_end(**NONE)
        one.produce([b"2"] * 8)
    both = query_of(*worlds, startingOffsets="earliest", failOnDataLoss="false")
    assert sum(map(len, both.run())) == 32
    other.to_the_end(**NONE)
    other.produce([b"3"] * 8)
    other.to_the_end(**NONE)
    strict, cold = (query_of(*worlds, tier="cold", failOnDataLoss=fail) for fail in ("true", "false"))
    for query in (strict, cold):
        query.at = both.at
        assert [row[::3] for found in query.run_to_now(3) for row in found] == [(other.stream, "3")] * 8
    world.produce([b"3"] * 8)
    world.to_the_end(**NONE)
    assert [row[::3] for found in cold.run_to_now() for row in found] == [(world.stream, "3")] * 8


def upserted(node: NodeProcess, world: World) -> tuple[Lake, Callable[[bytes, bytes], None]]:
    """An upserted table of a stream, and what gives some keys a value and fills it."""
    lake = Lake(node, world, **UPSERTED)

    def put(keys: bytes, value: bytes) -> None:
        world.produce([value] * len(keys), keys=[b"%c" % key for key in keys])
        world.to_the_end(upsert=True, **NONE)

    return lake, put


def test_an_upserted_table_is_read_as_it_was_where_the_read_ends(node: NodeProcess, world: World) -> None:
    """Rows that are replaced while a micro-batch is planned are in it all the same."""
    _, put = upserted(node, world)
    put(b"abcd", b"1")
    reader = StreamReader(Options(options(world, startingOffsets="earliest", tier="cold"), "stream"))
    reader.prepareForTriggerAvailableNow()
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    put(b"ab", b"2")
    put(b"bce", b"3")
    assert [row.value for row in rows(reader, reader.partitions(begin, end))] == ["1"] * 4
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_state_of_an_upserted_table_that_is_gone_is_said(
    node: NodeProcess, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, put = upserted(node, world)
    put(b"abcd", b"1")
    query = query_of(world, startingOffsets="earliest", tier="cold")
    assert len(next(query.run_to_now())) == 4
    put(b"ab", b"2")
    query.replay()
    monkeypatch.setattr(coldtables, "_BACK_MS", -1)
    with pytest.raises(RecordsLost, match=f"the table of {world.stream} has gone on since this micro-batch"):
        query.replay()


def test_what_an_upserted_table_replaced_is_not_left_out_in_silence(node: NodeProcess, world: World) -> None:
    _, put = upserted(node, world)
    put(b"abcd", b"1")
    cold = query_of(world, startingOffsets="earliest", tier="cold")
    assert [row.value for found in cold.run_to_now() for row in found] == ["1"] * 4
    assert list(cold.run_to_now()) == []
    put(b"ab", b"2")
    put(b"b", b"3")
    with pytest.raises(RecordsLost, match="the table has each key once, at its newest; without tier=cold they come"):
        list(cold.run_to_now())
    log = query_of(world)
    log.at = cold.at  # the checkpoint is as it was
    assert sorted(row.value for found in log.run_to_now() for row in found) == ["2", "2", "3"]
    going_on = query_of(world, tier="cold", failOnDataLoss="false")
    going_on.at = cold.at
    assert sorted(row.value for found in going_on.run_to_now() for row in found) == ["2", "3"]


def test_a_query_that_an_upserted_table_and_the_log_left_behind_says_so(node: NodeProcess, world: World) -> None:
    lake, put = upserted(node, world)
    put(b"abcd", b"1")
    query = query_of(world, startingOffsets="earliest")
    assert len(list(query.run_to_now())) == 1
    put(b"ab", b"2")
    put(b"b", b"3")
    lake.delete_before(3)
    with pytest.raises(RecordsLost, match="the table has each key once, at its newest, and the log has them no more"):
        list(query.run_to_now())


def joined(node: NodeProcess, cluster: BrokerCluster, world: World) -> Writers:
    """Transactions over an upserted table, which has had one more, and another stream with a table."""
    StreamAdmin(cluster).create_stream(f"{world.stream}-other", 2)
    other = World(node.kafka, cluster, f"{world.stream}-other", world.location.with_name("other"))
    Lake(node, world, **UPSERTED)
    Lake(node, other, **{"table.decode": "none"})
    writers = Writers(world, other)
    writers.work()
    world.to_the_end(upsert=True, **NONE)
    other.to_the_end(**NONE)
    return writers


@pytest.mark.long
def test_an_upserted_table_is_taken_as_it_was_when_the_others_had_as_much(
    node: NodeProcess, cluster: BrokerCluster, world: World
) -> None:
    """Transactions go on: it is never at the same ones as the other table."""
    writers = joined(node, cluster, world)
    before = +writers.committed
    writers.work()
    world.to_the_end(upsert=True, **NONE)
    for most in (3, FOREVER):
        query, seen = writers.query(startingOffsets="earliest", tier="cold"), Counter[str]()
        for found in query.run_to_now(most):
            seen += writers.judge(Row(*row[:3], row.value) for row in found if before[row.value])
        assert seen == before
        query.replay()


@pytest.mark.long
def test_available_now_never_ends_in_silence_where_a_table_is_ahead_of_the_others(
    node: NodeProcess, cluster: BrokerCluster, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    writers = joined(node, cluster, world)
    writers.work()
    world.to_the_end(upsert=True, **NONE)
    monkeypatch.setattr(coldtables, "_BACK_MS", -1)
    given = {"startingOffsets": "earliest", "tier": "cold", "kafka.request.timeout.ms": "200"}
    query = writers.query(**given)
    with pytest.raises(TableAhead, match=f"the table of {world.stream} has transactions that are not wholly in the"):
        list(query.run_to_now())
    writers.worlds[1].to_the_end(**NONE)
    for found in query.run_to_now():
        writers.judge(found)
    assert writers.judge(row for _, _, found in query.batches for row in found) == +writers.committed


@pytest.mark.long
def test_on_spark_available_now_ends_and_what_was_replaced_ends_a_query_that_goes_on(
    spark: SparkSession, node: NodeProcess, world: World, tmp_path: Path
) -> None:
    _, put = upserted(node, world)
    put(b"abcd", b"1")
    seen: list[tuple[bytes, bytes]] = []

    def query(**options: str) -> DataStreamWriter:
        given = {"startingOffsets": "earliest", "subscribe": world.stream, **options}
        reader = spark.readStream.format("duramen").option("kafka.bootstrap.servers", world.kafka).options(**given)
        writer = reader.load().writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        return writer.foreachBatch(lambda frame, _: seen.extend((row.key, row.value) for row in frame.collect()))

    for _ in range(2):  # with nothing new it ends, too
        query(tier="cold").trigger(availableNow=True).start().awaitTermination()
        assert sorted(seen) == [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"d", b"1")]
    running = query(tier="cold").start()
    put(b"ab", b"2")
    put(b"b", b"3")
    with pytest.raises(StreamingQueryException, match="each key once, at its newest; without tier=cold they come from"):
        running.awaitTermination()
    query().trigger(availableNow=True).start().awaitTermination()
    assert sorted(seen[4:]) == [(b"a", b"2"), (b"b", b"2"), (b"b", b"3")]
