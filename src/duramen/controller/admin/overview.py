"""A cluster at a glance, from its metadata: nodes with their load, and partitions that need attention. Pure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from duramen.broker.replicas.observers import READ_REPLICAS, observers_of
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, PartitionState, without
from duramen.metadata.state import ControllerState

__all__ = ["NodeLoad", "PartitionFaults", "faults", "moving", "nodes"]


class NodeLoad(NamedTuple):
    """A node, and the numbers of its leaders, of its replicas, and of its read replicas."""

    node: Node
    leaders: int
    replicas: int
    read_replicas: int = 0

    @property
    def state(self) -> str:
        """`live`, `draining`, `unwritable`, or `fenced`."""
        if self.node.fenced:
            return "fenced"
        if self.node.unwritable:
            return "unwritable"
        return "draining" if self.node.draining else "live"


class PartitionFaults(NamedTuple):
    """Out of `partitions`: those without a leader, under-replicated ones, and those being moved."""

    partitions: int
    leaderless: Sequence[PartitionId]
    under_replicated: Sequence[PartitionId]
    moving: Sequence[PartitionId]


def nodes(state: ControllerState) -> Iterator[NodeLoad]:
    """The registered nodes, by id. A standalone node has all partitions."""
    own = 0 if state.cluster_id else sum(stream.partitions for stream in state.streams.values())
    read = _read_replicas(state)
    for node in state.registrations:
        leaders, replicas = state.partitions.leader_count(node.id), state.partitions.replica_count(node.id)
        yield NodeLoad(node, own or leaders, own or replicas, read[node.id])


def _read_replicas(state: ControllerState) -> Counter[int]:
    found: Counter[int] = Counter()
    for stream in state.streams.values():
        if READ_REPLICAS in stream.config:
            for index, partition in state.partitions.of_stream(stream.id).items():
                found.update(observers_of(state, PartitionId(stream.id, index), partition))
    return found


def moving(state: ControllerState) -> Iterator[tuple[PartitionId, PartitionState]]:
    """The partitions with a reassignment in progress."""
    return ((place, partition) for place, partition in state.partitions if partition.is_moving)


def faults(state: ControllerState) -> PartitionFaults:
    """The partitions that need an operator's attention."""
    leaderless, under_replicated = [], []
    for place, partition in state.partitions:
        if partition.leader is None:
            leaderless.append(place)
        if without(without(partition.replicas, partition.adding), partition.isr):
            under_replicated.append(place)
    total = sum(stream.partitions for stream in state.streams.values())
    return PartitionFaults(total, leaderless, under_replicated, [place for place, _ in moving(state)])
