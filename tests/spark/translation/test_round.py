"""Rounds of a table: each offset is in it exactly once, whoever is killed and whoever else writes."""

import itertools

import pytest
from tests.spark.translation.world import Killed, Points, World, transactional, write

from duramen.base.errors import RecordsLost, StreamNotFound, TableForeign
from duramen.client import BrokerCluster, StreamAdmin
from duramen.client.http import HttpNode, path_of
from duramen.node.process import NodeProcess
from duramen.spark.translation.log import SourceLog, record_bytes
from duramen.spark.translation.round import RoundOutcome

GOOD = [b'{"a": %d}' % number for number in range(40)]
MIXED = [b'{"a": %d}' % number if number % 5 else b"not json %d" % number for number in range(40)]


def test_everything_is_in_the_table_once_with_its_columns(world: World) -> None:
    world.produce(GOOD)
    outcome = world.round()
    assert (outcome.committed, outcome.behind, outcome.records, outcome.bad) == (True, False, 40, 0)
    rows = world.rows()
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in rows] == world.expected()
    assert sorted(row["a"] for row in rows) == list(range(40))
    assert world.round() == outcome._replace(committed=False, records=0, read_bytes=0)
    world.produce(GOOD)
    world.to_the_end()
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()] == world.expected()


def test_the_first_round_knows_how_large_records_are(world: World) -> None:
    log = SourceLog(world.kafka, world.stream, world.stream_id)
    assert record_bytes(world.cluster, log, {0: 0, 1: 0}) is None
    world.produce([b"x" * 3000] * 40)
    found = record_bytes(world.cluster, log, {0: 0, 1: 0})
    assert found is not None
    assert 3000 < found < 3200
    assert record_bytes(world.cluster, log, {0: 20, 1: 20}) is None


def test_bad_records_are_in_the_table_and_among_the_dead_letters(world: World) -> None:
    world.produce(MIXED)
    assert world.round().bad == 8
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()] == world.expected()
    dead = world.rows(dead=True)
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in dead] == [
        one for one in world.expected() if (one[2] or b"").startswith(b"not")
    ]
    assert {row["_topic"] for row in dead} == {world.stream}
    assert all(row["_reason"] for row in dead)


def test_killed_anywhere_each_offset_is_there_once(world: World) -> None:
    points = 0
    for point in itertools.count(1):
        world.produce(MIXED[:10])
        try:
            world.round(Points(point))
        except Killed:
            points = point
        else:
            break
        world.to_the_end()
        rows = [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()]
        assert rows == world.expected(), f"killed at {point}"
        dead = [(row["_stream_partition"], row["_offset"]) for row in world.rows(dead=True)]
        assert dead == [one[:2] for one in world.expected() if (one[2] or b"").startswith(b"not")], f"killed at {point}"
    assert points >= 6


@pytest.mark.long
def test_killed_while_the_columns_change_each_offset_is_there_once(world: World) -> None:
    for point in itertools.count(1):
        world.produce([b'{"a": 1, "new%d": %d}' % (point, number) for number in range(4)])
        try:
            world.round(Points(point))
        except Killed:
            world.to_the_end()
            rows = [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()]
            assert rows == world.expected(), f"killed at {point}"
        else:
            break
    assert [row[f"new{point}"] for row in world.rows() if row[f"new{point}"] is not None] == [0, 2, 1, 3]


def test_of_two_jobs_one_is_first_and_the_other_goes_on_behind_it(world: World) -> None:
    world.produce(GOOD)
    rounds: list[RoundOutcome] = []

    def other() -> None:
        if len(rounds) < 2:
            rounds.append(world.round())

    outcome = world.round(between=other)
    assert rounds[0].records == 40
    assert not outcome.committed
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()] == world.expected()


@pytest.mark.long
def test_two_jobs_that_race_all_the_time_leave_each_offset_once(world: World) -> None:
    for turn in range(4):
        world.produce(MIXED[: 10 + turn])
        more = iter([lambda: world.produce(MIXED[:6]), lambda: None])

        def other(more: "itertools._Iterator" = more) -> None:  # type: ignore[name-defined]
            step = next(more, None)
            if step is not None:
                step()
                world.round()

        world.round(between=other)
    world.to_the_end()
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()] == world.expected()
    dead = [(row["_stream_partition"], row["_offset"]) for row in world.rows(dead=True)]
    assert dead == [one[:2] for one in world.expected() if (one[2] or b"").startswith(b"not")]


@pytest.mark.long
def test_upserted_each_key_is_there_once_at_its_newest(world: World) -> None:
    keys = [b"k%d" % (number % 7) for number in range(40)]
    for point in itertools.count(1):
        values: list[bytes | None] = [
            None if (number + point) % 11 == 0 else b'{"a": %d}' % (100 * point + number) for number in range(40)
        ]
        world.produce(values, keys=keys)
        try:
            world.round(Points(point), upsert=True)
        except Killed:
            world.to_the_end(upsert=True)
        newest = {key: value for _, key, value in world.made}
        found = [(row["_key"], row["_value"]) for row in world.rows(upsert=True)]
        assert sorted(found) == sorted((key, value) for key, value in newest.items() if value is not None)
        if point > 20 or world.round(Points(10**9), upsert=True).committed:
            break


def test_records_of_transactions_come_once_they_are_committed_and_aborted_ones_never(world: World) -> None:
    first, second = (transactional(world, name) for name in ("a", "b"))
    write(world, first, b"1")
    write(world, second, b"2")
    first.commit_transaction(30)
    world.to_the_end()
    assert [row["_value"] for row in world.rows()] == [b"1"]
    second.abort_transaction(30)
    write(world, first, b"3", begun=False)
    world.to_the_end()
    assert [row["_value"] for row in world.rows()] == [b"1"]
    first.commit_transaction(30)
    world.to_the_end()
    assert [row["_value"] for row in world.rows()] == [b"1", b"3"]


def test_what_retention_took_stops_the_table_or_is_skipped(node: NodeProcess, world: World) -> None:
    world.produce(GOOD)
    world.to_the_end()
    world.produce(GOOD)
    server = HttpNode(node.http)
    server.post(f"{path_of('streams', world.stream)}/records/delete", {"before": 30, "partition": 0})
    with pytest.raises(RecordsLost, match="partition 0: the records 20 to 29 are gone from the log"):
        world.round()
    assert world.round(skip_lost=True).lost == 10
    world.to_the_end()
    assert [(row["_stream_partition"], row["_offset"], row["_value"]) for row in world.rows()] == [
        one for one in world.expected() if not (one[0] == 0 and 20 <= one[1] < 30)
    ]


def test_a_stream_made_anew_is_not_taken_for_the_old_one(cluster: BrokerCluster, world: World) -> None:
    world.produce(GOOD)
    world.to_the_end()
    StreamAdmin(cluster).delete_stream(world.stream)
    StreamAdmin(cluster).create_stream(world.stream, 2)
    with pytest.raises(StreamNotFound, match="was deleted and created again"):
        world.round()
    world.stream_id = str(cluster.topic(world.stream, fresh=True).id)
    with pytest.raises(TableForeign):
        world.round()
