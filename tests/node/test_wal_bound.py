"""`wal.max.bytes` bounds what the write-ahead log takes on disk."""

import os
from collections.abc import Callable
from pathlib import Path

from duramen.base.units import MIB
from duramen.client import BrokerCluster, Consumer, Producer, StreamAdmin, TopicPartition
from duramen.node.process import NodeProcess

BOUND = 8 * MIB


def wal_bytes(data_dir: Path) -> int:
    """What is on disk, allocated or not."""
    return sum(max(file.stat().st_size, file.stat().st_blocks * 512) for file in (data_dir / "wal").iterdir())


def write(node: NodeProcess, stream: str, value: bytes, count: int) -> int:
    """Write records; returns the largest that the write-ahead log was seen to be."""
    largest = 0
    with BrokerCluster(node.kafka) as cluster, Producer(cluster, batch_bytes=256 * 1024) as producer:
        for number in range(count):
            producer.produce(stream, value)
            if number % 50 == 0:
                producer.flush()
                largest = max(largest, wal_bytes(node.data_dir))
    return max(largest, wal_bytes(node.data_dir))


def count(node: NodeProcess, stream: str) -> int:
    with BrokerCluster(node.kafka) as cluster:
        at = TopicPartition(stream, 0)
        return Consumer(cluster).bounds([at])[at][1]


def test_under_load_and_when_the_bound_is_lowered(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node().start()
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream("s", 1)
    write(node, "s", os.urandom(10_000), 100)
    assert wal_bytes(node.data_dir) >= 64 * MIB
    node.stop()
    node = new_node({"wal.max.bytes": BOUND}).start()
    assert wal_bytes(node.data_dir) <= BOUND
    assert write(node, "s", os.urandom(10_000), 4000) <= BOUND
    assert count(node, "s") == 4100
    node.kill()
    node.restart()
    assert wal_bytes(node.data_dir) <= BOUND
    assert count(node, "s") == 4100


def test_batches_as_large_as_they_may_be(new_node: Callable[..., NodeProcess]) -> None:
    """Each in a file of its own, and ordinary ones in between."""
    node = new_node({"wal.max.bytes": BOUND, "message.max.bytes": BOUND}).start()
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream("s", 1)
    for _ in range(5):
        assert write(node, "s", os.urandom(BOUND // 2 - 1000), 1) <= BOUND
        assert write(node, "s", os.urandom(10_000), 100) <= BOUND
    assert count(node, "s") == 505
