"""Keyed streams on a cluster: snapshots on each replica are states that existed, whoever leads and whatever ends."""

import pytest
from tests.broker.views.replicated import NODES, KeyedReplicas
from tests.examples import examples

from duramen.base.errors import SnapshotTooOld
from duramen.metadata.partitions import PartitionState


@pytest.mark.parametrize("seed", range(examples(2)))
def test_snapshots_of_all_replicas_are_states(seed: int) -> None:
    KeyedReplicas(seed, least=1 + seed % 2).run(60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 160))
def test_snapshots_of_all_replicas_are_states_in_long_lives(seed: int) -> None:
    KeyedReplicas(seed, least=1 + seed % 2).run(200)


def place_on(world: KeyedReplicas, *replicas: int) -> None:
    """The controller gives the partition these replicas; who is new is not in sync yet."""
    before = world.several.partitions[world.place]
    in_sync = tuple(one for one in before.isr if one in replicas)
    world.several.partitions[world.place] = PartitionState(
        replicas, in_sync, before.leader, before.leader_epoch, before.partition_epoch + 1
    )
    world.several.publish(world.place)
    world.several.settle()


def test_a_replica_that_comes_back_has_another_log_and_so_another_view() -> None:
    world = KeyedReplicas(0)
    for number in range(50):
        world.produce((b"k%d" % (number % 5), b"%d" % number * 20))
    world.several.restart(3)  # the view of node 3 is on its disk
    world.advance(6000)
    place_on(world, 1, 2)
    assert world.view(3) is None
    world.produce((b"k1", b"last"))
    world.advance(12_000)
    oldest = world.view(world.leader or 1)
    assert oldest is not None
    assert oldest.log.superseded_offset > 0, "nothing was compacted"
    place_on(world, 1, 2, 3)
    view = world.view(3)
    assert view is None or view.facts.position <= world.partition(3).log.end_offset
    world.advance(6000)
    assert set(world.several.partitions[world.place].isr) == set(NODES)
    for node_id in NODES:
        world.check(node_id, world.known)
    with pytest.raises(SnapshotTooOld):  # what it was copied from had been compacted
        world.shown(3, 10)


def test_a_lease_refused_by_a_leader_is_closed_again() -> None:
    world = KeyedReplicas(0)
    world.produce(*((b"k%d" % (number % 5), b"%d" % number) for number in range(50)))
    world.advance(8000)
    leader = world.leader
    assert leader is not None
    view = world.view(leader)
    assert view is not None
    assert view.bounds.s0 > 20
    name = world.open(2, 20)
    world.advance(1000)
    assert isinstance(world.leases[name].error, SnapshotTooOld)
    world.produce((b"k1", b"last"))
    world.advance(8000)
    assert view.bounds.s0 == world.known, "a lease that was refused holds S0 back"
