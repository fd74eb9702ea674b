"""Rounds of upserted tables over keyed streams: what changed between two snapshots, each key once."""

import itertools

import pytest
from tests.clients import until
from tests.spark.translation.world import Killed, Points, World, transactional
from tests.spark.translation.world import write as write_in_transaction

from duramen.base.errors import SnapshotNotReached
from duramen.client import BrokerCluster, StreamAdmin
from duramen.client.http import HttpNode, path_of
from duramen.node.process import NodeProcess
from duramen.spark.tables.registry import open_table
from duramen.spark.translation import task
from duramen.spark.translation.creation import open_tables

KEYS = [b"k%d" % (number % 20) for number in range(400)]


@pytest.fixture
def keyed(world: World, node: NodeProcess, cluster: BrokerCluster) -> World:
    config = {"keyed": "true", "cleanup.policy": "compact"}
    StreamAdmin(cluster).set_stream_configs(world.stream, config)
    world.server = node.http
    return world


def write(world: World, turn: int) -> set[bytes | None]:
    """Each key twenty times, or not at all, some deleted at last; returns which were written."""
    keys = KEYS if turn % 2 == 0 else [key for key in KEYS if key[-1:] in b"2468"]
    world.produce([None if (at + turn) % 7 == 0 else b'{"a": %d}' % (at + turn) for at in range(len(keys))], keys=keys)
    return set(keys)


def newest(world: World) -> dict[bytes | None, bytes]:
    state = {key: value for _, key, value in world.made}
    return {key: value for key, value in state.items() if value is not None}


def rows(world: World) -> dict[bytes | None, bytes]:
    found = [(row["_key"], row["_value"]) for row in world.rows(upsert=True)]
    assert len(found) == len(dict(found)), "a key has two rows"
    return dict(found)


def test_each_round_merges_each_key_that_changed_once(keyed: World) -> None:
    for turn in range(3):
        changed = write(keyed, turn)
        outcome = keyed.round(upsert=True)
        assert (outcome.committed, outcome.behind) == (True, False)
        assert outcome.records <= len(changed)
        assert rows(keyed) == newest(keyed)
    assert not keyed.round(upsert=True).committed
    answer = HttpNode(keyed.server).get(path_of("streams", keyed.stream) + "/snapshot/leases")
    assert answer["leases"] == []


@pytest.mark.long
def test_killed_anywhere_each_key_is_there_once_at_its_newest(keyed: World) -> None:
    for point in itertools.count(1):
        write(keyed, point)
        try:
            keyed.round(Points(point), upsert=True)
        except Killed:
            keyed.to_the_end(upsert=True)
        else:
            break
        assert rows(keyed) == newest(keyed), f"killed at {point}"
    assert point >= 5


@pytest.mark.long
def test_who_was_away_for_longer_than_tombstones_are_kept_gets_the_whole_snapshot(
    keyed: World, cluster: BrokerCluster
) -> None:
    write(keyed, 0)
    keyed.to_the_end(upsert=True)
    config = {"snapshot.retention.ms": "0", "delete.retention.ms": "0"}
    StreamAdmin(cluster).set_stream_configs(keyed.stream, config)
    keyed.produce([None] * 10, keys=KEYS[:10])
    ends = open_table(keyed.declaration(upsert=True)).ends()
    server = HttpNode(keyed.server)

    def is_behind() -> bool:
        parts = server.get(path_of("streams", keyed.stream) + "/snapshot")["partitions"]
        return all(part["horizon"] > ends[part["partition"]] for part in parts)

    until(is_behind)
    files = {file.path for file in open_table(keyed.declaration(upsert=True)).scan()}
    assert keyed.round(upsert=True).committed
    assert rows(keyed) == newest(keyed)
    assert not files & {file.path for file in open_table(keyed.declaration(upsert=True)).scan()}


@pytest.mark.long
def test_once_it_ends_where_the_stream_ended(keyed: World) -> None:
    write(keyed, 0)
    server = HttpNode(keyed.server)
    parts = server.get(path_of("streams", keyed.stream) + "/snapshot")["partitions"]
    upto, state = {part["partition"]: part["at"] for part in parts}, newest(keyed)
    write(keyed, 1)
    round_ = keyed.rounds(open_tables, lambda tasks: [task.run(one) for one in tasks], 2, upsert=True)
    assert round_.run(keyed.cluster, upto).committed
    assert rows(keyed) == state
    assert not round_.run(keyed.cluster, upto).committed
    with pytest.raises(SnapshotNotReached, match="the table should have all up to"):
        round_.run(keyed.cluster, dict.fromkeys(upto, 10**6))


@pytest.mark.long
def test_transactions_come_when_they_are_committed_and_as_a_whole(keyed: World) -> None:
    write(keyed, 0)
    keyed.to_the_end(upsert=True)
    producer = transactional(keyed, "a")
    write_in_transaction(keyed, producer, b"1")
    write(keyed, 1)
    keyed.to_the_end(upsert=True)
    assert rows(keyed) == newest(keyed)
    producer.commit_transaction(30)
    keyed.to_the_end(upsert=True)
    assert rows(keyed) == newest(keyed) | {b"k1": b"1"}
    write(keyed, 0)
    assert keyed.round(upsert=True).records <= 20
    assert rows(keyed) == newest(keyed)
    rest = {row["_key"]: row["_commit_offset"] for row in keyed.rows(upsert=True)}
    assert set(rest.values()) == {None}


@pytest.mark.long
def test_dead_letters_come_once(keyed: World) -> None:
    for turn in range(3):
        keyed.produce([b"not json %d" % turn, b"not json either", b'{"a": 1}'], keys=[b"x", b"x", b"y"])
        outcome = keyed.round(upsert=True)
        assert (outcome.records, outcome.bad) == (2, 1)
    assert [row["_value"] for row in keyed.rows(dead=True, upsert=True)] == [b"not json either"] * 3
    assert rows(keyed) == newest(keyed)
