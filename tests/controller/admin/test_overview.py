"""What nodes have, at a glance."""

from tests.controller.active.scripted import STREAM, state_of

from duramen.controller.admin.overview import nodes
from duramen.metadata.events import StreamConfigured
from duramen.metadata.partitions import PartitionState


def test_read_replicas_are_counted_beside_the_replicas() -> None:
    state = state_of(PartitionState((1, 2), (1, 2), 1), PartitionState((2, 3), (2, 3), 2))
    state.apply(StreamConfigured(str(STREAM), {"read.replicas": "all"}))
    found = {load.node.id: (load.leaders, load.replicas, load.read_replicas) for load in nodes(state)}
    assert found == {1: (1, 1, 1), 2: (1, 2, 0), 3: (0, 1, 1), 4: (0, 0, 2)}
