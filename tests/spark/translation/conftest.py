"""A stream with a table, and a node that has it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.spark.translation.world import World

from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess


@pytest.fixture
def cluster(node: NodeProcess) -> Iterator[BrokerCluster]:
    with BrokerCluster(node.kafka) as cluster:
        yield cluster


@pytest.fixture
def world(node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path) -> World:
    """A stream of two partitions."""
    StreamAdmin(cluster).create_stream(stream_name, 2)
    return World(node.kafka, cluster, stream_name, tmp_path / "table")
