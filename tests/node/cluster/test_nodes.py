"""Nodes as processes of their own: they form a cluster, agree, lose each other and come back."""

import os
import signal
from pathlib import Path
from uuid import UUID

import pytest
from tests.node.cluster.processes import PATIENT, Process, place, seeds_of, start_all

from duramen.base.ids import shown_cluster_id


def others_of(nodes: list[Process], node_id: int) -> list[Process]:
    return [node for node in nodes if node.node_id != node_id]


def node_of(nodes: list[Process], node_id: int) -> Process:
    return next(node for node in nodes if node.node_id == node_id)


def applied_by(node: Process, name: str) -> str:
    """The id of a stream, once it is in the state of a node."""
    return node.wait(f"applied {name} (.*) in epoch .*")[1]


def test_what_is_proposed_on_any_node_is_known_to_all_of_one_cluster(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        nodes = here.nodes(1, 2, 3)
        start_all(nodes)
        names = [node.create(f"of-{node.node_id}") for node in nodes]
        for name in names:
            assert len({applied_by(node, name) for node in nodes}) == 1
        leader, epoch = nodes[0].leader()
        described = [node.describe() for node in nodes]
        assert {found["leader"] for found in described} == {leader}
        assert {found["epoch"] for found in described} == {epoch}
        assert described[0]["endpoints"] == {str(node.node_id): node.address for node in nodes}
        assert set(node_of(nodes, leader).describe()["voters"]) == {"1", "2", "3"}
        for node in nodes:
            node.stop()


@pytest.mark.long
def test_a_killed_leader_is_followed_by_another_that_has_what_was_answered(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        nodes = here.nodes(1, 2, 3)
        start_all(nodes)
        leader, epoch = nodes[0].leader()
        rest = others_of(nodes, leader)
        before = rest[0].create("before")
        node_of(nodes, leader).kill()
        after = rest[1].create("after")
        for node in rest:
            node.wait(f"duramen.cluster: the connection to node {leader} ended: .*")
            assert node.leader(epoch)[0] != leader
            applied_by(node, before)
            applied_by(node, after)
        node_of(nodes, leader).start(seeds_of(nodes))
        for name in (before, after):
            applied_by(node_of(nodes, leader), name)


@pytest.mark.long
def test_a_leader_whose_connections_close_is_not_waited_for(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        nodes = here.nodes(1, 2, 3)
        for node in nodes:
            node.timeouts = PATIENT
        start_all(nodes)
        for _ in range(2):
            # Whoever was killed is connected again to all before the next one is.
            leader, epoch = max((node.leader() for node in nodes), key=lambda known: known[1])
            name = nodes[0].create(f"while-{leader}-leads")
            for node in nodes:
                applied_by(node, name)
            killed = node_of(nodes, leader)
            killed.kill()
            for node in others_of(nodes, leader):
                assert node.leader(epoch)[0] != leader
            killed.start(seeds_of(nodes))
            assert killed.leader(epoch)[0] != leader


@pytest.mark.long
def test_all_killed_and_started_again_are_the_same_cluster_with_the_same_state(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        nodes = here.nodes(1, 2, 3)
        cluster_id = start_all(nodes)
        name = nodes[0].create("kept")
        stream_id = applied_by(nodes[0], name)
        for node in nodes:
            node.kill()
        assert start_all(nodes) == cluster_id
        assert [applied_by(node, name) for node in nodes] == [stream_id] * 3
        for node in nodes:
            node.stop()
        assert start_all(nodes) == cluster_id
        assert [applied_by(node, name) for node in nodes] == [stream_id] * 3


@pytest.mark.long
def test_a_fourth_node_comes_by_naming_one_that_does_not_lead(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        nodes = here.nodes(1, 2, 3)
        cluster_id = start_all(nodes)
        leader, _ = nodes[0].leader()
        name = nodes[0].create("early")
        later = here.node(4)
        follower = others_of(nodes, leader)[0]
        later.start(seeds_of([follower]))
        assert later.wait("joined (.*)")[1] == cluster_id
        applied_by(later, name)
        through = later.create("through-the-fourth")
        for node in [*nodes, later]:
            applied_by(node, through)
        assert "4" in node_of(nodes, later.leader()[0]).describe()["observers"]
        # Once it has the log it needs nobody's help to find the voters.
        later.kill()
        follower.kill()
        later.start(seeds_of([follower]))
        applied_by(later, name)
        applied_by(later, later.create("without-its-seed"))


def test_a_node_that_comes_late_gets_a_snapshot(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        node, later = here.nodes(1, 2)
        node.snapshot_bytes = 2000
        start_all([node])
        names = [node.create(f"stream-{number}") for number in range(30)]
        later.start(seeds_of([node]))
        later.wait("restored from a snapshot")
        last = node.create("behind-it")
        applied_by(later, last)
        later.tell("streams")
        assert later.wait("streams (.*)")[1].split() == sorted([*names, last])


@pytest.mark.long
def test_a_node_that_is_killed_while_the_cluster_is_formed_comes_to_it(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        nodes = here.nodes(1, 2, 3)
        for node in nodes:
            node.start(seeds_of(nodes))
        formed = nodes[0].wait("duramen.cluster: this node belongs to cluster (.*); clients see the cluster id (.*)")
        assert shown_cluster_id(UUID(formed[1])) == formed[2]
        for node in nodes:
            node.kill()
        start_all(nodes)
        nodes[1].create("after-all")


@pytest.mark.long
def test_a_leader_that_only_stops_answering_is_replaced_and_follows_when_it_is_back(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        nodes = here.nodes(1, 2, 3)
        start_all(nodes)
        leader, epoch = nodes[0].leader()
        paused = node_of(nodes, leader)
        rest = others_of(nodes, leader)
        os.kill(paused.pid, signal.SIGSTOP)
        try:
            name = rest[0].create("meanwhile")
            assert rest[0].leader(epoch)[0] != leader
        finally:
            os.kill(paused.pid, signal.SIGCONT)
        applied_by(paused, name)
        assert paused.leader(epoch)[0] != leader


@pytest.mark.long
def test_no_cluster_without_all_seeds(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        nodes = here.nodes(1, 2, 3)
        for node in nodes[:2]:
            node.start(seeds_of(nodes))
        for node in nodes[:2]:
            node.wait(
                "duramen.cluster: this node belongs to no cluster yet: a cluster is formed once all seeds are there;"
                f" missing: {nodes[2].address}"
            )
        assert not [line for node in nodes for line in node.lines if line.startswith("joined")]
        nodes[2].start(seeds_of(nodes))
        assert len({node.wait("joined (.*)")[1] for node in nodes}) == 1
        nodes[2].create("together")


def test_a_node_with_another_secret_is_refused(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        wrong = tmp_path / "wrong"
        wrong.write_bytes(b"w" * 32)
        wrong.chmod(0o600)
        one, two = here.node(1), here.node(2, secret=wrong)
        one.start(seeds_of([one, two]))
        two.start(seeds_of([one, two]))
        for node, other in ((one, two), (two, one)):
            node.wait(
                f"duramen.cluster: there is no connection to the node at {other.address}:"
                " the two nodes do not have the same cluster secret"
            )
            node.wait(
                r"duramen.cluster: a connection from 127\.0\.0\.1:\d+ was refused:"
                " the two nodes do not have the same cluster secret"
            )


def test_a_node_of_another_cluster_is_refused(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        one, two, three = here.nodes(1, 2, 3)
        clusters = {node.node_id: start_all([node]) for node in (one, two)}
        three.start(seeds_of([one]))
        three.wait("joined .*")
        for node in (one, two, three):
            node.kill()
        # At the address of node 1 there is node 2 now, which is of another cluster.
        two.address = one.address
        two.start(seeds_of([one]))
        two.wait("joined .*")
        three.start(seeds_of([one]))
        three.wait(
            f"duramen.cluster: there is no connection to the node at {one.address}:"
            f" node 3 is of the cluster {clusters[1]}, node 2 of the cluster {clusters[2]}"
        )


def test_seeds_that_differ_are_named(tmp_path: Path) -> None:
    with place(tmp_path) as here:
        one, two, three = here.nodes(1, 2, 3)
        one.start(seeds_of([one, two]))
        two.start(seeds_of([one, two, three]))
        both, all_three = (", ".join(sorted(seeds_of(nodes))) for nodes in ([one, two], [one, two, three]))
        one.wait(
            f"duramen.cluster: this node belongs to no cluster yet: node 2 at {two.address} has the seeds {all_three},"
            f" and this node {both}: give all the same list"
        )


@pytest.mark.variants(1)
@pytest.mark.parametrize("damage", ["gone", "changed", "short"])
def test_a_directory_that_has_lost_its_cluster_is_refused(tmp_path: Path, damage: str) -> None:
    with place(tmp_path) as here:
        node = here.node(1)
        start_all([node])
        node.stop()
        path = node.directory / "quorum" / "cluster"
        kept = path.read_bytes()
        if damage == "gone":
            path.unlink()
        else:
            path.write_bytes(kept[:5] if damage == "short" else kept[:-1] + bytes([kept[-1] ^ 1]))
        node.start(seeds_of([node]))
        said = node.wait("refused: (.*)")[1]
        assert "quorum/cluster" in said
        assert "start the node with an empty directory" in said
