"""Clusters of three real processes whose disks fail, fill up or are slow, while unmodified clients are at work.

What is wrong with the disk of one node is that node's own matter: it says so, others lead, and nothing is lost.
"""

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import ElectionType, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.clients import until
from tests.cluster.clients import Watching
from tests.cluster.faulty_disk import BROKEN, FULL, NO_DESCRIPTORS
from tests.cluster.judged import PARTITIONS, Run, World, running, world
from tests.consistency.clients import TOPIC, Assigned, PlainSender
from tests.leaks import close_leaked_sockets

_CLIENTS: Final = (PlainSender, PlainSender, Assigned, Watching)
_LONG_S: Final = 120.0

Fault = Callable[[World, Run], None]


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    close_leaked_sockets()


def _leaves(cluster: World, run: Run, node: int, fault: str, reason: str) -> None:
    """The disk of the node fails: others go on without it, it says why, and nobody can make it lead."""
    cluster.set_fault(node, fault)
    cluster.wait_without(node)
    run.go_on()
    assert reason in until(lambda: cluster.readiness(node))
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
    assert "syncing the write-ahead log failed" in cluster.readiness(node)  # what a failed sync lost is not known
    cluster.nodes.kill(node)
    cluster.nodes.start([node])
    cluster.wait_whole()
    assert not cluster.readiness(node)


def _passes(cluster: World, run: Run, node: int, fault: str, reason: str) -> None:
    """The node takes part again by itself once there is room."""
    _leaves(cluster, run, node, fault, reason)
    cluster.set_fault(node, "")
    cluster.wait_whole()
    until(lambda: not cluster.readiness(node))
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


_FAULTS: Final[Mapping[str, Fault]] = {
    "a leader's disk fails": _broken_leader, "the controller's disk fails": _broken_controller,
    "a leader's disk is full": _full_leader, "the controller's disk is full": _full_controller,
    "no file can be opened": _no_descriptors,
}  # fmt: skip


def test_a_leader_whose_disk_fails_hands_over(tmp_path: Path) -> None:
    with world(tmp_path) as cluster, running(cluster, _CLIENTS) as run:
        _broken_leader(cluster, run)


@pytest.mark.long
@pytest.mark.parametrize("name", _FAULTS)
def test_a_fault_of_a_disk_again_and_again(tmp_path: Path, name: str) -> None:
    seed = int(os.environ.get("CLUSTER_SEED", "1"))
    chance = random.Random(f"{seed}/{name}")
    end_s = time.monotonic() + _LONG_S
    with world(tmp_path) as cluster, running(cluster, _CLIENTS, seed) as run:
        while time.monotonic() < end_s:
            _FAULTS[name](cluster, run)
            run.go_on(chance.randrange(1, 50))
