"""A node whose write-ahead log was damaged while it was down gets its records back from the other replicas."""

import contextlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Consumer, ElectionType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import until

from duramen.host.files import HostFileSystem
from duramen.node.processes import NodeProcesses
from duramen.storage.directory import read_directory_id
from duramen.storage.recovery.recovery import wal_salt
from duramen.storage.recovery.wal_files import scan_wal, wal_slots
from duramen.storage.wal.frames import FRAME_HEADER_BYTES, Frame, FrameType, scan
from duramen.storage.wal.wal import wal_path

_TOPIC: Final = "damaged"
_RECORDS: Final = 20
_WAIT_S: Final = 60.0
_QUIET: Final = {"log_level": 0}


def _damage(data_dir: Path, mark: bytes, which: slice, count: int = _RECORDS) -> None:
    """Change a byte in some of the `count` batches of the write-ahead log that contain `mark`."""
    files = HostFileSystem(str(data_dir))
    salt = wal_salt(read_directory_id(files, str(data_dir)))
    found = [
        (wal_path(wal.slot), frame.place + FRAME_HEADER_BYTES + len(frame.payload) // 2)
        for wal in scan_wal(wal_slots(files), 0, salt)
        for frame in scan(wal.file, wal.generation, salt)
        if isinstance(frame, Frame) and frame.type is FrameType.APPEND and mark in bytes(frame.payload)
    ]
    assert len(found) == count
    for path, place in found[which]:
        with (data_dir / path).open("r+b") as file:
            file.seek(place)
            before = file.read(1)[0]
            file.seek(place)
            file.write(bytes([before ^ 1]))


class _Stream:
    """Two partitions on three nodes: node 1 leads the first, and follows node 2 in the second."""

    def __init__(self, nodes: NodeProcesses) -> None:
        self._servers = nodes.bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": self._servers, **_QUIET})
        topic = NewTopic(_TOPIC, 2, replica_assignment=[[1, 2, 3], [2, 1, 3]])
        self._admin.create_topics([topic])[_TOPIC].result(_WAIT_S)

    def layout(self) -> list[tuple[int, int]]:
        """Leader and number of replicas in sync of each partition."""
        found = self._admin.list_topics(_TOPIC, timeout=_WAIT_S).topics[_TOPIC].partitions
        return [(found[number].leader, len(found[number].isrs)) for number in sorted(found)]

    def produce(self) -> None:
        """Have records acknowledged, each in a batch of its own."""
        failed: list[object] = []
        producer = Producer({"bootstrap.servers": self._servers, "acks": "all", "linger.ms": 0, **_QUIET})
        for number in range(_RECORDS):
            for partition in (0, 1):
                producer.produce(
                    _TOPIC, b"%d of partition %d" % (number, partition), partition=partition,
                    on_delivery=lambda error, _: failed.append(error) if error else None,
                )  # fmt: skip
                assert producer.flush(_WAIT_S) == 0
        assert failed == []

    def lead_preferred(self) -> None:
        """Have the preferred replicas lead; where one leads already, or is gone, nothing changes."""
        places = [TopicPartition(_TOPIC, partition) for partition in (0, 1)]
        self._admin.elect_leaders(ElectionType.PREFERRED, places).result(_WAIT_S)

    def read(self, partition: int) -> list[bytes]:
        """All that consumers see of a partition."""
        with contextlib.closing(
            Consumer({"bootstrap.servers": self._servers, "group.id": "r", "enable.partition.eof": True, **_QUIET})
        ) as consumer:
            consumer.assign([TopicPartition(_TOPIC, partition, 0)])
            values: list[bytes] = []
            while True:
                message = consumer.poll(_WAIT_S)
                assert message is not None
                if message.error():
                    return values
                values.append(message.value() or b"")


def _let_lead_all(stream: _Stream, nodes: NodeProcesses) -> None:
    """Kill node 2, so that node 1 leads both; again where node 1 was not in sync just then, and node 3 leads."""
    while True:
        until(lambda: all(in_sync == 3 for _, in_sync in stream.layout()), _WAIT_S)
        stream.lead_preferred()
        nodes.kill(2)
        until(lambda: {leader for leader, _ in stream.layout()} <= {1, 3}, _WAIT_S)
        if [leader for leader, _ in stream.layout()] == [1, 1]:
            return
        nodes.start([2])


@pytest.mark.long
def test_a_damaged_node_takes_its_records_from_the_other_replicas(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path) as nodes:
        stream = _Stream(nodes)
        until(lambda: stream.layout() == [(1, 3), (2, 3)], _WAIT_S)
        stream.produce()
        nodes.kill(1)
        # The last batch of all stays: it vouches for those before it.
        _damage(nodes.nodes[1].data_dir, b"of partition 0", slice(-5, None))
        _damage(nodes.nodes[1].data_dir, b"of partition 1", slice(-6, -1))
        nodes.start([1])
        until(lambda: "the log is truncated there, and fetched again from its leader" in nodes.logs()[1], _WAIT_S)
        assert "damage in the write-ahead log" in nodes.logs()[1]
        _let_lead_all(stream, nodes)
        for partition in (0, 1):
            assert stream.read(partition) == [b"%d of partition %d" % (number, partition) for number in range(_RECORDS)]
        for number, log in nodes.logs().items():
            assert "Traceback" not in log, f"node {number}: {log}"


@pytest.mark.long
def test_a_voter_with_a_damaged_metadata_log_votes_once_it_has_all_entries_again(tmp_path: Path) -> None:
    with NodeProcesses(tmp_path) as nodes, ThreadPoolExecutor() as threads:
        admin = AdminClient({"bootstrap.servers": nodes.bootstrap_servers, **_QUIET})

        def create(name: str) -> None:
            admin.create_topics([NewTopic(name, 1, 3)])[name].result(_WAIT_S)

        for name in ("first-topic", "second-topic", "third-topic"):
            create(name)
        until(lambda: len(admin.list_topics(timeout=_WAIT_S).topics) == 3, _WAIT_S)
        nodes.kill(1, 2, 3)
        # What follows the second topic's event vouches for it.
        _damage(nodes.nodes[1].data_dir, b"second-topic", slice(None), 1)
        two = threads.submit(nodes.start, [1, 2])
        until(lambda: "it does not vote until it has fetched them again" in nodes.logs()[1], _WAIT_S)
        assert not two.done()  # two of three voters are there, and one of them does not count
        nodes.start([3])
        two.result()
        until(lambda: "the metadata log has all entries again: this node votes" in nodes.logs()[1], _WAIT_S)
        nodes.kill(3)
        create("fourth-topic")
        topics = until(lambda: [one for one in admin.list_topics(timeout=_WAIT_S).topics if "fourth" in one], _WAIT_S)
        assert topics == ["fourth-topic"]
        assert {"first-topic", "second-topic", "third-topic"} < set(admin.list_topics(timeout=_WAIT_S).topics)
