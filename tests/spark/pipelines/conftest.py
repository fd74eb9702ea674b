"""A node of the pipelines' own, whose streams have the names that the examples give them."""

from collections.abc import Iterator

import pytest

from duramen.client import BrokerCluster
from duramen.node.process import NodeProcess


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with (
        NodeProcess(tmp_path_factory.mktemp("broker") / "data", {}) as process,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("BROKERS", process.kafka)
        yield process


@pytest.fixture
def streams(broker: NodeProcess) -> Iterator[BrokerCluster]:
    with BrokerCluster(broker.kafka) as cluster:
        yield cluster
