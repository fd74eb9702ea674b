"""Reading a stream with transactions that is a table: no batch and no micro-batch has a part of one, from any tier."""

import json
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction
from tests.spark.translation.test_union import Lake
from tests.spark.translation.transacting import Writers, batch, query_of
from tests.spark.translation.world import World, transactional, write

from duramen.base.errors import OptionInvalid, RecordsLost
from duramen.client import Producer
from duramen.node.process import NodeProcess
from duramen.spark.tables.columns import COMMIT, RAW_FIELDS
from duramen.spark.tables.delta.table import DeltaFormat
from duramen.spark.tables.files import FileLayout, write_rows
from duramen.spark.tables.registry import open_table


@pytest.fixture
def lake(node: NodeProcess, world: World) -> Lake:
    return Lake(node, world)


@pytest.mark.long
def test_micro_batches_out_of_a_table_have_whole_transactions(lake: Lake, world: World) -> None:
    writers = Writers(world)
    for _ in range(3):
        writers.work()
        world.round()
    lake.delete_before(20)
    writers.write(2, 0, 1)
    writers.work()
    world.round()
    query = query_of(world, startingOffsets="earliest")
    seen: Counter[str] = Counter()
    for found in query.run(5):
        seen += writers.judge(found)
    assert len(query.batches) > 4, "the limit is kept as far as the table remembers its ends"
    writers.write(2, 0)
    writers.end(2)
    writers.work()
    for found in query.run(5):
        seen += writers.judge(found)
    assert seen == writers.committed
    query.replay()
    world.to_the_end()
    lake.delete_before(40)
    query.replay()
    writers.work()
    for found in query.run():
        seen += writers.judge(found)
    assert seen == writers.committed


@pytest.mark.usefixtures("lake")
def test_batches_have_whole_transactions_from_any_tier(world: World) -> None:
    writers = Writers(world)
    for turn in range(3):
        writers.write(2, 0, 1)
        writers.work()
        assert writers.judge(batch(world)) == writers.committed
        world.round()
        cold = batch(world, tier="cold")
        writers.judge(cold)
        assert Counter(row.value for row in cold) == writers.committed
        if turn == 1:
            writers.end(2)
            assert writers.judge(batch(world)) == writers.committed
    writers.end(2)
    assert batch(world) == batch(world, tier="hot")
    world.to_the_end()
    assert batch(world) == batch(world, tier="hot") == batch(world, tier="cold")
    assert Counter(row.value for row in batch(world)) == writers.committed


@pytest.mark.long
@pytest.mark.usefixtures("lake")
def test_named_offsets_are_taken_as_they_are_in_the_table_too(world: World) -> None:
    writers = Writers(world)
    writers.write(2, 0, 1)
    writers.work()
    writers.end(2)
    writers.plain(2)
    for first in (1, 4, 9):
        named = json.dumps({world.stream: {"0": first, "1": 2}})
        hot = batch(world, tier="hot", startingOffsets=named)
        assert min(row.offset for row in hot if row.partition == 0) >= first
        world.to_the_end()
        assert batch(world, startingOffsets=named) == batch(world, tier="cold", startingOffsets=named) == hot
        query = query_of(world, startingOffsets=named, tier="cold")
        assert sorted(row for found in query.run() for row in found) == hot


@pytest.mark.long
@pytest.mark.usefixtures("lake")
def test_an_end_that_is_named_cuts_what_is_committed_at_that_offset_in_every_tier(world: World) -> None:
    writers = Writers(world)
    writers.write(2, 0, 1)
    writers.work()
    world.round()
    writers.write(2, 0, 1)
    writers.plain(2)
    for turn in range(3):
        if turn == 1:
            writers.end(2)
            writers.write(2, 0)
        elif turn == 2:
            world.to_the_end()
        everything = batch(world)
        ends = {
            partition: 1 + max(row.offset for row in everything if row.partition == partition) for partition in (0, 1)
        }
        assert Counter(row.value for row in everything) == writers.committed
        for end in range(ends[0] + 1):
            named = json.dumps({world.stream: {"0": end, "1": min(end + 2, ends[1])}})
            expected = [row for row in everything if row.offset < (end if row.partition == 0 else end + 2)]
            assert batch(world, endingOffsets=named) == expected
            assert batch(world, tier="hot", endingOffsets=named) == expected
            assert batch(world, tier="hot", endingOffsets=named, maxRecordsPerPartition="3") == expected
            first = json.dumps({world.stream: {"0": end // 2, "1": 1}})
            later = [row for row in expected if row.offset >= (end // 2 if row.partition == 0 else 1)]
            assert batch(world, startingOffsets=first, endingOffsets=named) == later
        if turn == 2:
            assert batch(world, tier="cold", endingOffsets=json.dumps({world.stream: ends})) == everything


@pytest.mark.long
def test_a_query_from_the_latest_offset_shows_no_older_transaction_when_it_is_cold_either(
    lake: Lake, world: World
) -> None:
    writers = Writers(world)
    writers.write(2, 0, 1)
    writers.plain(8)
    query = query_of(world, startingOffsets="latest")
    writers.write(2, 0, 1)
    writers.write(0, 0, 1)
    writers.end(0)
    writers.end(2)
    world.to_the_end()
    lake.delete_before(7)
    assert Counter(row.value for found in query.run() for row in found) == {"a1": 2}


@pytest.mark.long
def test_what_came_late_does_not_go_before_what_an_upserted_table_has(node: NodeProcess, world: World) -> None:
    Lake(node, world, **{"table.upsert.by": "key"})
    late = transactional(world, "late")
    for key in (b"a", b"b", b"c"):
        late.produce(world.stream, b'{"n": 1}', key, 0)
    assert late.flush(30) == 0
    newer: list[tuple[bytes, bytes | None]] = [(b"a", b'{"n": 2}'), (b"b", None)]
    with Producer(world.cluster) as producer:
        for key, value in newer:
            producer.produce(world.stream, value, key=key, partition=0)
    world.to_the_end(upsert=True)
    assert [row["_key"] for row in world.rows(upsert=True)] == [b"a"]
    late.commit_transaction(30)
    expected = [(world.stream, 0, 2, '{"n": 1}'), (world.stream, 0, 3, '{"n": 2}')]
    assert batch(world) == expected, "the log behind the table has what is late"
    world.to_the_end(upsert=True)
    assert batch(world) == batch(world, tier="cold") == expected


@pytest.mark.long
def test_a_transaction_whose_beginning_retention_took_stops_the_table(lake: Lake, world: World) -> None:
    writers = Writers(world)
    writers.write(2, 0)
    writers.plain(8)
    world.to_the_end()
    lake.delete_before(3)
    writers.end(2)
    with pytest.raises(RecordsLost, match="the records 0 to 2 are gone from the log"):
        world.round()
    world.to_the_end(skip_lost=True)
    assert len(world.rows()) == 8


@pytest.mark.usefixtures("lake")
def test_what_is_not_committed_is_in_no_table(world: World) -> None:
    write(world, transactional(world, "a"), b"1")
    uncommitted = {"kafka.isolation.level": "read_uncommitted"}
    assert batch(world, **uncommitted) == [(world.stream, 0, 0, "1")]
    assert batch(world, tier="hot", **uncommitted) == [(world.stream, 0, 0, "1")]
    assert batch(world, tier="cold", **uncommitted) == []


@pytest.mark.long
def test_all_records_are_read_from_the_log_and_from_the_table_what_the_log_has_no_more(
    lake: Lake, world: World
) -> None:
    writers = Writers(world)
    writers.work()
    writers.write(2, 0, 1)
    writers.work()
    world.to_the_end()
    writers.write(2, 0, 1)
    given = {"kafka.isolation.level": "read_uncommitted", "startingOffsets": "earliest"}
    everything, committed = batch(world, tier="hot", **given), batch(world, tier="cold")
    assert batch(world, **given) == everything
    assert len(everything) > len(committed)
    for before in (5, 12):
        lake.delete_before(before)
        expected = sorted(
            [row for row in committed if row.offset < before] + [row for row in everything if row.offset >= before]
        )
        assert batch(world, **given) == expected
        named = json.dumps({world.stream: {"0": 2, "1": 7}})
        later = [row for row in expected if row.offset >= (2 if row.partition == 0 else 7)]
        assert batch(world, **{**given, "startingOffsets": named}) == later
        query = query_of(world, **given)
        assert sorted(row for found in query.run(4) for row in found) == expected
        assert len(query.batches) > 4
    writers.plain(20)
    lake.delete_before(max(open_table(world.declaration()).ends().values()) + 1)
    with pytest.raises(RecordsLost, match="are neither in the table nor in the log"):
        batch(world, **given)


def test_all_records_and_the_newest_of_each_key_do_not_go_together(node: NodeProcess, world: World) -> None:
    Lake(node, world, **{"table.upsert.by": "key"})
    with pytest.raises(OptionInvalid, match="has each key once, at its newest that is committed; leave the option out"):
        batch(world, **{"kafka.isolation.level": "read_uncommitted"})


@pytest.mark.long
def test_a_table_of_an_earlier_version_goes_on_where_it_was(node: NodeProcess, world: World) -> None:
    Lake(node, world, **{"table.decode": "none"})
    writers = Writers(world)
    writers.write(2, 0)
    writers.plain(4)
    writers.write(2, 0)
    earlier_version(world)
    assert [row.offset for row in batch(world, tier="cold")] == [0, 1]
    writers.end(2)
    assert [row[1:3] for row in batch(world)] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1)]
    world.to_the_end(decode="none")
    writers.work()
    world.to_the_end(decode="none")
    found = [(row["_stream_partition"], row["_offset"]) for row in world.rows(decode="none")]
    assert (
        found
        == sorted(set(found))
        == [row[1:3] for row in batch(world)]
        == [row[1:3] for row in batch(world, tier="hot")]
    )
    assert open_table(world.declaration(decode="none")).state().floors == {0: 2}


def earlier_version(world: World) -> None:
    """A table with the first two offsets of a partition, as a version made it that went by offsets."""
    schema = pa.schema(list(RAW_FIELDS))
    table = DeltaFormat(world.declaration(decode="none"))
    table.create(schema)
    values: list[list[Any]] = [[b"k", b"k"], [b"c1", b"p"], [0, 0], [0, 1], [0, 0], [0, 0], [None, None]]
    made = pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(values, RAW_FIELDS, strict=True)], schema=schema
    )
    [file] = write_rows(table.place, FileLayout(), 0, [made])
    id_ = f"duramen:{world.stream_id}"
    moved = [Transaction(f"{id_}:0", 2), Transaction(f"{id_}:begin:0", 0), Transaction(f"{id_}:partitions", 1)]
    delta = DeltaTable(str(world.location))
    delta.create_write_transaction(
        [AddAction(file.path, file.size_bytes, {}, file.modified_ms, True, file.statistics)], "append", delta.schema(),
        commit_properties=CommitProperties(app_transactions=moved),
    )  # fmt: skip
    assert COMMIT not in table.schema().names
