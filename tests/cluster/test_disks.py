"""Clusters of three real processes whose disks fail, fill up or are slow, while unmodified clients are at work.

What is wrong with the disk of one node is that node's own matter: it says so, others lead, and nothing is lost.
"""

import os
import random
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ElectionType, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import open_logs, until
from tests.cluster.clients import Watching
from tests.cluster.faulty_disk import BROKEN, FULL, NO_DESCRIPTORS
from tests.cluster.judged import PARTITIONS, Run, World, running, world
from tests.consistency.clients import TOPIC, Assigned, PlainSender

_CLIENTS: Final = (PlainSender, PlainSender, Assigned, Watching)
_LONG_S: Final = 120.0
_MANY: Final = 40
_SLOW_S: Final = 2.0
_OWN: Final = 4
"""Files of the metadata log, which may be open by then."""

Fault = Callable[[World, Run], None]


def _leaves(cluster: World, run: Run, node: int, fault: str, reason: str) -> None:
    """The disk of the node fails: others go on without it, it says why, and nobody can make it lead."""
    cluster.set_fault(node, fault)
    cluster.wait_without(node)
    run.go_on()
    assert reason in until(lambda: cluster.unready(node))
    # It knows what was decided since: a client that asks it is not sent to leaders of before.
    cluster.wait_layout(node, lambda one: one.leader not in (-1, node) and node not in one.in_sync)
    admin = AdminClient({"bootstrap.servers": cluster.nodes.nodes[cluster.others(node)[0]].kafka, "log_level": 0})
    places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    elected = admin.elect_leaders(ElectionType.PREFERRED, places).result()
    allowed = {KafkaError.ELECTION_NOT_NEEDED, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE}
    assert {error.code() for error in elected.values() if error is not None} <= allowed
    cluster.wait_without(node)


def _broken(cluster: World, run: Run, node: int) -> None:
    _leaves(cluster, run, node, BROKEN, "syncing the write-ahead log failed")
    cluster.set_fault(node, "")
    run.go_on()
    assert "syncing the write-ahead log failed" in cluster.unready(node)  # what a failed sync lost is not known
    cluster.nodes.kill(node)
    cluster.nodes.start([node])
    cluster.wait_whole()
    assert not cluster.unready(node)


def _passes(cluster: World, run: Run, node: int, fault: str, reason: str) -> None:
    """The node takes part again by itself once there is room."""
    _leaves(cluster, run, node, fault, reason)
    cluster.set_fault(node, "")
    cluster.wait_whole()
    until(lambda: not cluster.unready(node))
    run.go_on()


def _broken_leader(cluster: World, run: Run) -> None:
    _broken(cluster, run, cluster.leader())


def _broken_controller(cluster: World, run: Run) -> None:
    _broken(cluster, run, cluster.controller())


def _full_leader(cluster: World, run: Run) -> None:
    _passes(cluster, run, cluster.leader(), FULL, "the disk is full")


def _full_controller(cluster: World, run: Run) -> None:
    _passes(cluster, run, cluster.controller(), FULL, "the disk is full")


def _no_descriptors(cluster: World, run: Run) -> None:
    _passes(cluster, run, cluster.leader(), NO_DESCRIPTORS, "Too many open files")


def _slow_leader(cluster: World, run: Run) -> None:
    """Its syncs take far longer than those of the others, who lead until it is quick again."""
    leader = cluster.leader()
    cluster.set_slow(leader, _SLOW_S)
    cluster.wait_without(leader)
    run.go_on()
    cluster.set_slow(leader, 0)


_FAULTS: Final[Mapping[str, Fault]] = {
    "a leader's disk fails": _broken_leader, "the controller's disk fails": _broken_controller,
    "a leader's disk is full": _full_leader, "the controller's disk is full": _full_controller,
    "no file can be opened": _no_descriptors, "a leader is slow": _slow_leader,
}  # fmt: skip


@pytest.mark.long
def test_a_leader_whose_disk_fails_hands_over(tmp_path: Path) -> None:
    with world(tmp_path) as cluster, running(cluster, _CLIENTS) as run:
        _broken_leader(cluster, run)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc names")
def test_the_files_of_deleted_replicas_are_closed_at_once(tmp_path: Path) -> None:
    with world(tmp_path) as cluster:
        nodes = list(cluster.nodes.nodes.values())
        servers, before = cluster.nodes.bootstrap_servers, [open_logs(node) for node in nodes]
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
        admin.create_topics([NewTopic("many", _MANY, 3)])["many"].result(60)
        producer = Producer({"bootstrap.servers": servers, "log_level": 0})
        for partition in range(_MANY):
            producer.produce("many", b"x" * 1000, partition=partition)
        assert producer.flush(60) == 0
        until(lambda: all(open_logs(node) >= 2 * _MANY for node in nodes))
        admin.delete_topics(["many"])["many"].result(60)
        until(lambda: all(open_logs(node) <= one + _OWN for node, one in zip(nodes, before, strict=True)))


@pytest.mark.long
@pytest.mark.parametrize("name", _FAULTS)
def test_a_fault_of_a_disk_again_and_again(tmp_path: Path, name: str) -> None:
    seed = int(os.environ.get("CLUSTER_SEED", "1"))
    chance = random.Random(f"{seed}/{name}")
    end_s = time.monotonic() + _LONG_S
    with world(tmp_path) as cluster, running(cluster, _CLIENTS, seed) as run:
        while time.monotonic() < end_s:
            _FAULTS[name](cluster, run)
            cluster.wait_whole()
            run.go_on(chance.randrange(1, 50))
