"""Nodes that come to a cluster, go and come back: what the simulator's nodes do then is what those of a cluster do."""

from collections.abc import Callable
from itertools import count

import pytest

from duramen.broker.control import requests
from duramen.broker.control.responses import IsrAnswers
from duramen.codec.cluster.channels import PeerChannel
from duramen.controller.active import active
from duramen.controller.active.node_requests import alter_partitions
from duramen.controller.active.pending_changes import PendingChanges
from duramen.metadata.decisions import Definition
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.world import ClusterWorld


def forming() -> ClusterWorld:
    """A cluster that begins with empty disks, of three nodes, nobody being in the way."""
    world = next(
        world for world in map(ClusterWorld, count(1)) if world.forms and not world.changes and len(world.nodes) == 3
    )
    for node in world.nodes.values():
        world.start(node)
    until(world, lambda: all(node.ready for node in world.nodes.values()))
    return world


def until(world: ClusterWorld, condition: Callable[[], bool]) -> None:
    world.go_on(condition, "that does not come to be", 60_000_000)


def pass_by(world: ClusterWorld, for_us: int) -> None:
    end_us = world.true.now_us + for_us
    until(world, lambda: world.true.now_us >= end_us)


def voters(node: SimulatedNode) -> set[str]:
    return set() if node.runner is None else {voter.directory_id for voter in node.runner.voters.ids}


def has_some_of_the_log(node: SimulatedNode) -> bool:
    return node.runner is not None and node.runner.machine.end.offset > 0


def test_the_seeds_form_a_cluster() -> None:
    world = forming()
    directories = {node.directory_id for node in world.nodes.values()}
    assert all(voters(node) == directories for node in world.nodes.values())


def test_a_voter_without_its_disk_votes_again_although_it_ends_before_it_has_caught_up() -> None:
    world = forming()
    node = world.nodes[3]
    world.wipe(node)
    until(world, lambda: has_some_of_the_log(node))
    assert node.directory_id not in voters(world.nodes[1])
    world.end(node, power=False)
    until(world, lambda: node.directory_id in voters(world.nodes[1]) and len(voters(world.nodes[1])) == 3)
    until(world, lambda: node.directory_id in voters(node))


def test_of_three_voters_one_disk_may_be_lost_and_no_other_before_it_is_replaced() -> None:
    world = forming()
    one, two, three = world.nodes.values()
    assert all(world.witness.elects_without(node) for node in (one, two, three))
    world.wipe(three)
    assert not world.witness.elects_without(one)
    assert not world.witness.elects_without(two)
    until(world, lambda: three.directory_id in voters(one) and three.directory_id in voters(two))
    until(world, lambda: world.witness.elects_without(one) and world.witness.elects_without(two))


def test_who_hears_nothing_of_the_vote_of_its_lost_disk_finds_it_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    world = forming()
    node = world.nodes[3]
    with monkeypatch.context() as others:
        others.setattr(
            node, "receive_voters", lambda _: SimulatedNode.receive_voters(node, (1, 2))
        )  # who tell it of an older set
        world.wipe(node)
        until(world, lambda: node.runner is not None)
        assert not node.replaces
    until(world, lambda: node.replaces)
    world.end(node, power=False)
    until(world, lambda: node.directory_id in voters(world.nodes[1]) and len(voters(world.nodes[1])) == 3)
    until(world, lambda: node.directory_id in voters(node) and not node.replaces)


def test_what_a_node_asked_before_it_lost_its_disk_is_of_who_it_was_then() -> None:
    world = forming()
    node = world.nodes[3]
    world.network.slow_us = 1_000_000
    world.wipe(node)
    until(world, lambda: world.network.link(3, 1, PeerChannel.CONTROL) is not None)
    pass_by(world, 250_000)  # it asks, and is not heard yet
    world.wipe(node)
    world.network.slow_us = 800
    until(world, lambda: node.directory_id in voters(node))


def test_who_has_come_later_and_never_voted_does_not() -> None:
    world = forming()
    node = world.nodes[3]
    world.wipe(node)
    until(world, lambda: node.directory_id in voters(node))
    pass_by(world, 1_000_000)  # it keeps that it votes
    # An operator takes its vote: once it is started again it does not ask for it.
    taken: list[object] = []
    broker = world.nodes[1].broker
    assert broker is not None
    broker.membership.cluster_admin.remove_voter(3, taken.append)
    world.end(node, power=False)
    until(world, lambda: taken == [None])
    until(world, lambda: node.ready)
    pass_by(world, 10_000_000)
    assert node.directory_id not in voters(world.nodes[1])


def test_a_disk_that_is_put_back_is_found_out_and_replaced() -> None:
    world = forming()
    node, directory_id = world.nodes[3], world.nodes[3].directory_id
    world.end(node, power=False)
    node.remember()
    until(world, lambda: node.ready)
    world.roll_back(node)
    until(world, lambda: node.ready)
    assert world.counts["older disks found out"] == 1
    assert node.directory_id != directory_id


def test_nobody_asks_for_a_node_that_drains_to_be_in_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    world = forming()
    one = world.nodes[1]
    assert one.broker is not None
    membership, partitions = one.broker.membership, world.witness.council.state.partitions
    membership.ask(requests.CreateStream(Definition("drained", 6), 3), lambda _: None)
    until(world, lambda: partitions.replica_count(3) >= 6 and partitions.leader_count(3) >= 2)
    pass_by(world, 2_000_000)
    membership.cluster_admin.drain(3, lambda _: None)
    until(world, lambda: 3 in world.witness.council.state.registrations.draining)
    until(world, lambda: not any(3 in partition.isr for _, partition in partitions))
    pass_by(world, 500_000)  # leaders that proposed others before they knew
    asked: list[requests.AlterPartitions] = []

    def alter(request: requests.AlterPartitions, draft: PendingChanges) -> IsrAnswers:
        asked.append(request)
        return alter_partitions(request, draft)

    monkeypatch.setattr(active, "alter_partitions", alter)
    pass_by(world, 3_000_000)
    assert asked == []
    assert world.nodes[3].ready
