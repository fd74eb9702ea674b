"""Transactions while the nodes that coordinate them, or lead what they write to, end in the middle."""

import random

import pytest
from tests.coordinators.transaction.cluster.reading import committed, ends, undecided
from tests.coordinators.transaction.cluster.world import World
from tests.coordinators.transaction.cluster.writing import Writer

from duramen.coordinators.transaction.log import transaction_partition
from duramen.sim.broker import CallbackResult
from duramen.transactions.values import ProducerIdentity

VERSIONS = pytest.mark.parametrize("version", [0, 2])
PLACES = [("a", 0), ("a", 1), ("a", 2)]


def begun(version: int, seed: int | None = None) -> tuple[World, Writer]:
    """A transaction that has a record in each partition, behind one that was aborted."""
    world = World(seed=seed)
    world.create("a", 3)
    writer = Writer(world, "t", version)
    for place in PLACES:
        writer.write(*place, b"aborted")
    writer.end(commit=False)
    for place in PLACES:
        writer.write(*place, b"one")
    return world, writer


def see(world: World, *expected: bytes) -> None:
    world.advance(5_000)
    for node_id in (1, 2, 3):
        world.start(node_id)
    world.advance(5_000)
    for place in PLACES:
        assert committed(world, *place) == list(expected)
        assert not undecided(world, *place)
    (found,) = {tuple(ends(world, *place)) for place in PLACES}
    sequences = [one.sequence for one in found]
    assert [one.commit for one in found].count(True) == len(expected)
    assert sequences == sorted(set(sequences))
    assert sequences[0] > 0


@VERSIONS
def test_partitions_on_three_nodes_are_ended_together(version: int) -> None:
    world, writer = begun(version)
    assert {world.leader(*place) for place in PLACES} == {1, 2, 3}
    assert [committed(world, *place) for place in PLACES] == [[], [], []]
    writer.end(commit=True)
    see(world, b"one")


def survives(version: int, commit: bool, step: int, seed: int, victim: str) -> None:
    """A node ends at that step behind the wish to end a transaction; without a seed in the order of the steps."""
    world, writer = begun(version, seed or None)
    place = writer.coordinator if victim == "coordinator" else PLACES[step % len(PLACES)]
    power = random.Random(seed) if step % 30 else None

    def kill() -> None:
        leader = world.leader(*place)
        if leader is not None:
            world.kill(leader, power)

    world.at(step, kill)
    writer.end(commit=commit)
    see(world, *[b"one"] * commit)
    for at in PLACES:
        writer.write(*at, b"two")
    writer.end(commit=True)
    see(world, *[b"one"] * commit, b"two")


@VERSIONS
@pytest.mark.parametrize("victim", ["coordinator", "leader"])
@pytest.mark.parametrize("step", range(0, 100, 10))
def test_what_is_decided_is_carried_out_whoever_ends_at_any_step(version: int, victim: str, step: int) -> None:
    survives(version, step % 20 == 0, step, 0, victim)


@pytest.mark.parametrize("step", range(0, 60, 6))
def test_a_node_that_takes_over_several_coordinators_at_once_ends_what_each_has_left(step: int) -> None:
    world = World()
    world.create("a", 3)
    names = {transaction_partition(name, 2): name for name in ("t0", "t1", "t2", "t3")}
    writers = [Writer(world, name, 2) for name in names.values()]
    for writer in writers:
        for place in PLACES:
            writer.write(*place, writer.name.encode())

    def kill() -> None:
        for leader in {world.leader(*writer.coordinator) for writer in writers}:
            if leader is not None:
                world.kill(leader, None)

    for writer in writers:
        leader = world.leader(*writer.coordinator)
        assert leader is not None
        ended: CallbackResult[ProducerIdentity] = CallbackResult()
        transactions = world.node(leader).broker.transactions
        transactions.end(writer.name, writer.identity, commit=True, version=2, done=ended)
    world.at(step, kill)
    world.settle()
    world.advance(5_000)
    world.calm()
    world.advance(5_000)
    for writer in writers:
        writer.end(commit=True)
    world.advance(5_000)
    for place in PLACES:
        found = committed(world, *place)
        assert len(found) == len(names)
        assert set(found) == {name.encode() for name in names.values()}
        assert not undecided(world, *place)
