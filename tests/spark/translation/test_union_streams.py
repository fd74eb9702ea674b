"""Transactions over several streams, of which some are read from tables: no batch and no micro-batch has a part."""

from collections import Counter
from pathlib import Path
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.spark.translation.querying import FOREVER
from tests.spark.translation.test_union import Lake
from tests.spark.translation.test_union_transactions import earlier_version
from tests.spark.translation.transacting import Row, Writers, options
from tests.spark.translation.world import World

from duramen.base.errors import TableAhead
from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.read import cold_tables as coldtables
from duramen.spark.tables.registry import open_table

Format = Literal["delta", "iceberg"]
NONE: dict[str, Any] = {"decode": "none"}
UPSERTED = {"table.decode": "none", "table.upsert.by": "key"}


@pytest.fixture
def other(node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path) -> World:
    StreamAdmin(cluster).create_stream(f"{stream_name}-other", 2)
    return World(node.kafka, cluster, f"{stream_name}-other", tmp_path / "other")


@pytest.fixture
def streams(world: World, other: World) -> Writers:
    return Writers(world, other)


@pytest.mark.long
@pytest.mark.parametrize("format_", ["delta", pytest.param("iceberg", marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "both", [True, pytest.param(False, marks=pytest.mark.long)], ids=["two tables", "table and log"]
)
def test_micro_batches_have_whole_transactions_over_streams(
    node: NodeProcess, streams: Writers, *, both: bool, format_: Format
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
    query, seen = streams.query(startingOffsets="earliest"), Counter[str]()
    for most in (3, 20, FOREVER):
        query, seen = streams.query(startingOffsets="earliest"), Counter()
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


@pytest.mark.long
def test_batches_have_whole_transactions_over_streams(node: NodeProcess, streams: Writers) -> None:
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


@pytest.mark.long
def test_what_one_log_has_lost_in_part_is_not_shown_out_of_the_table_of_another(
    node: NodeProcess, streams: Writers
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
    shown = Counter(row.value for row in streams.batch())
    assert shown["c1"] == 0
    assert shown["a1"] == streams.committed["a1"]
    for most in (2, FOREVER):
        found = Counter(row.value for rows_ in streams.query(startingOffsets="earliest").run(most) for row in rows_)
        assert found == shown


@pytest.mark.long
def test_an_upserted_table_is_read_wholly_once_no_transaction_of_it_is_left_in_part(
    node: NodeProcess, streams: Writers
) -> None:
    kind: dict[str, Any] = {"upsert": True, **NONE}
    one = streams.worlds[0]
    lake = Lake(node, one, **UPSERTED)
    streams.work()
    one.to_the_end(**kind)
    streams.work()
    streams.write(2, 0, 3)
    one.to_the_end(**kind)
    lake.delete_before(6)
    for most in (2, FOREVER):
        query, seen = streams.query(startingOffsets="earliest"), Counter[str]()
        for found in query.run(most):
            seen += streams.judge(found)
        assert seen == streams.committed
    assert streams.judge(streams.batch()) == streams.committed


def overwritten(lake: Lake, writers: Writers) -> None:
    """Of the second transaction the upserted table of the first stream has no row, and its log no marker."""
    one = lake.world
    writers.write(0, 0, key=b"k")
    writers.end(0)
    writers.plain(6)
    writers.remove(0, 0, b"k")
    writers.write(0, 2)
    writers.end(0)
    one.to_the_end(upsert=True, **NONE)
    lake.delete_before(open_table(one.declaration(upsert=True, **NONE)).ends()[0], partition=0)
    writers.committed["a1"] = 0  # it is overwritten


@pytest.mark.long
@pytest.mark.parametrize("most", [1, 4, FOREVER])
def test_a_transaction_of_which_an_upserted_table_has_no_row_is_not_shown_apart(
    node: NodeProcess, streams: Writers, most: int
) -> None:
    one = streams.worlds[0]
    overwritten(Lake(node, one, **UPSERTED), streams)
    query = streams.query(startingOffsets="earliest")
    for found in query.run(most):
        # With the table's rows, the key without the one that is gone, comes what was committed with that.
        assert any(row.topic == one.stream for row in found) == any(row.value == "a2" for row in found)
    assert Counter(row.value for _, _, found in query.batches for row in found) == +streams.committed
    query.replay()


@pytest.mark.long
def test_a_batch_of_tables_alone_takes_an_upserted_one_as_it_was_when_the_others_had_as_much(
    node: NodeProcess, streams: Writers
) -> None:
    one, other = streams.worlds
    Lake(node, one, **UPSERTED)
    Lake(node, other, **{"table.decode": "none"})
    before = Counter[str]()
    for _ in range(3):
        streams.work()
        one.to_the_end(upsert=True, **NONE)
        # Transactions go on: what is read has a part of none, and is never less than the tables had together once.
        found = streams.judge(streams.batch(tier="cold"))
        assert found == before
        other.to_the_end(**NONE)
        before = Counter(streams.committed)
        streams.work()
        one.to_the_end(upsert=True, **NONE)
        open_table(one.declaration(upsert=True, **NONE)).compact()
        assert streams.judge(streams.batch(tier="cold")) == before
    other.to_the_end(**NONE)
    assert streams.judge(streams.batch(tier="cold")) == streams.committed == streams.judge(streams.batch())


@pytest.mark.long
def test_an_upserted_table_is_taken_as_it_was_though_rows_and_markers_are_gone(
    node: NodeProcess, streams: Writers
) -> None:
    one, other = streams.worlds
    Lake(node, other, **{"table.decode": "none"})
    other.to_the_end(**NONE)
    overwritten(Lake(node, one, **UPSERTED), streams)
    assert streams.judge(streams.batch(tier="cold")) == {}
    assert streams.judge(streams.batch()) == +streams.committed
    other.to_the_end(**NONE)
    assert streams.judge(streams.batch(tier="cold")) == +streams.committed


@pytest.mark.long
def test_a_batch_waits_until_others_have_what_an_upserted_table_has_for_long(
    node: NodeProcess, streams: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = streams.worlds
    Lake(node, other, **{"table.decode": "none"})
    other.to_the_end(**NONE)
    overwritten(Lake(node, one, **UPSERTED), streams)
    monkeypatch.setattr(coldtables, "_BACK_MS", -1)
    with pytest.raises(
        TableAhead, match=f"the table of {one.stream} has transactions that are not wholly in the other"
    ):
        streams.batch(tier="cold", **{"kafka.request.timeout.ms": "200"})


@pytest.mark.long
def test_an_upserted_table_that_does_not_say_what_it_had_is_read_as_it_is(
    node: NodeProcess, streams: Writers, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = streams.worlds[0]
    with monkeypatch.context() as earlier:
        earlier.setattr("duramen.spark.translation.plan.newest_sequence", lambda *_: -1)
        overwritten(Lake(node, one, **UPSERTED), streams)
    assert open_table(one.declaration(upsert=True, **NONE)).state().newest == -1
    assert Counter(row.value for row in streams.batch()) == +streams.committed
    found = Counter(row.value for rows in streams.query(startingOffsets="earliest").run(2) for row in rows)
    assert found == +streams.committed


@pytest.mark.long
def test_a_table_of_an_earlier_version_ends_where_it_was_whole(node: NodeProcess, streams: Writers) -> None:
    one = streams.worlds[0]
    lake = Lake(node, one, **{"table.decode": "none"})
    streams.plain(4)
    earlier_version(one)
    streams.work()
    one.to_the_end(**NONE)
    expected = [row[:3] for row in streams.batch(tier="hot", startingOffsets="earliest")]
    lake.delete_before(6)
    found = [row[:3] for rows_ in streams.query(startingOffsets="earliest").run(3) for row in rows_]
    assert sorted(found) == expected == [row[:3] for row in streams.batch()]


def test_micro_batches_on_spark_have_whole_transactions_over_streams(
    spark: SparkSession, node: NodeProcess, streams: Writers, tmp_path: Path
) -> None:
    lake = Lake(node, streams.worlds[0], **{"table.decode": "none"})
    for _ in range(3):
        streams.work()
        streams.worlds[0].to_the_end(**NONE)
    lake.delete_before(12)
    batches: list[list[Row]] = []

    def take(batch: DataFrame, _: int) -> None:
        found = batch.selectExpr("topic", "partition", "offset", "CAST(value AS STRING) AS value").collect()
        batches.append([Row(*row) for row in found])

    given = options(*streams.worlds, startingOffsets="earliest", maxOffsetsPerTrigger="12")
    frame = spark.readStream.format("duramen").options(**given).load()
    writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    assert len(batches) > 3
    seen = Counter[str]()
    for found in batches:
        seen += streams.judge(found)
    assert seen == streams.committed
