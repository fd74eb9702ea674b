"""A cluster and a stream for each test."""

from collections.abc import Iterator

import pytest

from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess


@pytest.fixture
def cluster(node: NodeProcess) -> Iterator[BrokerCluster]:
    with BrokerCluster(node.kafka, timeout_s=60) as cluster:
        yield cluster


@pytest.fixture
def stream(cluster: BrokerCluster, stream_name: str) -> str:
    """A stream of three partitions."""
    StreamAdmin(cluster).create_stream(stream_name, 3)
    return stream_name
