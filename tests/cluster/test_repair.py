"""Real nodes whose disks damage records while they run repair them from each other, without a restart."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import metric, until

from duramen.node.processes import NodeProcesses

_TOPIC: Final = "damaged"
_RECORDS: Final = 20
_BYTES: Final = 100_000
_WAIT_S: Final = 60.0
_QUIET: Final = {"log_level": 0}
_SETTINGS: Final = {
    "scrub.interval.ms": 200, "scrub.bytes.per.second": 1 << 30, "wal.max.bytes": 8 << 20, "wal.file.bytes": 1 << 20,
    "wal.copy.interval.ms": 100, "auto.leader.rebalance.enable": "false",
}  # fmt: skip


class _Cluster:
    """Three nodes with one partition of many segments; every record has a batch of its own."""

    def __init__(self, nodes: NodeProcesses, replicas: list[int]) -> None:
        self.nodes = nodes
        self._servers = nodes.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self._servers, **_QUIET})
        config = {"segment.bytes": str(3 * _BYTES), "min.insync.replicas": "1"}
        topic = NewTopic(_TOPIC, 1, replica_assignment=[replicas], config=config)
        self._admin.create_topics([topic])[_TOPIC].result(_WAIT_S)
        until(lambda: self.in_sync == sorted(replicas), _WAIT_S)

    @property
    def in_sync(self) -> list[int]:
        """The nodes in sync."""
        return sorted(self._admin.list_topics(_TOPIC, timeout=_WAIT_S).topics[_TOPIC].partitions[0].isrs)

    @property
    def leader(self) -> int:
        """The node that leads."""
        return int(self._admin.list_topics(_TOPIC, timeout=_WAIT_S).topics[_TOPIC].partitions[0].leader)

    def produce(self, first: int) -> None:
        """Have as many records acknowledged as there are in `_RECORDS`."""
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self._servers, "acks": "all", "linger.ms": 0, **_QUIET})
        for number in range(first, first + _RECORDS):
            value = (b"<%06d>" % number).ljust(_BYTES, b".")
            producer.produce(_TOPIC, value, on_delivery=lambda error, _: failed.append(error) if error else None)
            assert producer.flush(_WAIT_S) == 0
        assert failed == []

    def read(self) -> list[bytes]:
        """The marks of all records that a consumer sees."""
        with contextlib.closing(
            Consumer({"bootstrap.servers": self._servers, "group.id": "r", "enable.partition.eof": True, **_QUIET})
        ) as consumer:
            consumer.assign([TopicPartition(_TOPIC, 0, 0)])
            values: list[bytes] = []
            while True:
                message = consumer.poll(_WAIT_S)
                assert message is not None
                if message.error():
                    return values
                values.append((message.value() or b"")[:8])

    def flip(self, node: int, number: int) -> tuple[Path, int, int]:
        """Flip a bit of a record in a segment of a node; returns where, and what stood there."""
        mark = b"<%06d>" % number
        logs = self.nodes.nodes[node].data_dir / "logs"
        (path,) = until(lambda: [one for one in logs.glob("*/*.log") if mark in one.read_bytes()], _WAIT_S)
        place = path.read_bytes().index(mark) + _BYTES // 2
        with path.open("r+b") as file:
            file.seek(place)
            before = file.read(1)[0]
            file.seek(place)
            file.write(bytes([before ^ 4]))
        return path, place, before

    def repaired(self, node: int) -> bool:
        """Whether a node has repaired something, and nothing of it is damaged any more."""
        known = self.nodes.nodes[node]
        return metric(known, "duramen_repaired_ranges_total") > 0 and not metric(known, "duramen_quarantined_ranges")


def _flipped_back(flips: list[tuple[Path, int, int]]) -> Iterator[bool]:
    for path, place, before in flips:
        yield path.read_bytes()[place] == before


def test_damage_found_while_running_is_repaired_from_other_nodes(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, settings=_SETTINGS) as nodes:
        cluster = _Cluster(nodes, [1, 2, 3])
        cluster.produce(0)
        flips = [cluster.flip(1, 4), cluster.flip(2, 7)]  # of the leader and of a follower
        until(lambda: all(_flipped_back(flips)) and cluster.repaired(1) and cluster.repaired(2), _WAIT_S)
        until(lambda: cluster.in_sync == [1, 2, 3], _WAIT_S)
        assert cluster.read() == [b"<%06d>" % number for number in range(_RECORDS)]
        for node in (1, 2):
            assert "it is neither leader nor in sync until it is repaired" in nodes.logs()[node]
            assert "is repaired from other replicas" in nodes.logs()[node]
        for number, log in nodes.logs().items():
            assert "Traceback" not in log, f"node {number}: {log}"


@pytest.mark.long
def test_two_copies_that_are_damaged_at_different_places_give_each_other_what_they_lack(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, settings=_SETTINGS) as nodes:
        cluster = _Cluster(nodes, [1, 2])
        cluster.produce(0)
        flips = [cluster.flip(1, 1), cluster.flip(1, 7), cluster.flip(2, 2), cluster.flip(2, 4)]
        until(lambda: all(_flipped_back(flips)) and cluster.repaired(1) and cluster.repaired(2), _WAIT_S)
        until(lambda: cluster.in_sync == [1, 2], _WAIT_S)
        for node in (1, 2):
            nodes.kill(node)
            until(lambda node=node: cluster.leader == 3 - node, _WAIT_S)  # type: ignore[misc]
            assert cluster.read() == [b"<%06d>" % number for number in range(_RECORDS)]
            nodes.start([node])
            until(lambda: cluster.in_sync == [1, 2], _WAIT_S)


@pytest.mark.long
def test_what_no_other_node_has_is_named_and_the_rest_is_served(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path, settings=_SETTINGS) as nodes:
        cluster = _Cluster(nodes, [1, 2])
        cluster.produce(0)
        for node in (1, 2):
            cluster.flip(node, 4)
        until(lambda: all(metric(nodes.nodes[node], "duramen_quarantined_ranges") for node in (1, 2)), _WAIT_S)
        cluster.produce(_RECORDS)
        assert not any(metric(nodes.nodes[node], "duramen_repaired_ranges_total") for node in (1, 2))
