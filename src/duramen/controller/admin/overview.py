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
    """A node, how many partitions it leads, how many replicas it has, and how many read replicas beside them."""

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
    """Of `partitions` in all: those without a leader, with fewer in sync than hold them, and those that move."""

    partitions: int
    leaderless: Sequence[PartitionId]
    under_replicated: Sequence[PartitionId]
    moving: Sequence[PartitionId]


def nodes(state: ControllerState) -> Iterator[NodeLoad]:
    """The nodes that are registered, by id. What a node that is alone has is all its own."""
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
    """The partitions whose reassignment is under way."""
    return ((place, partition) for place, partition in state.partitions if partition.is_moving)


def faults(state: ControllerState) -> PartitionFaults:
    """What an operator has to look at."""
    leaderless, under_replicated = [], []
    for place, partition in state.partitions:
        if partition.leader is None:
            leaderless.append(place)
        if without(without(partition.replicas, partition.adding), partition.isr):
            under_replicated.append(place)
    total = sum(stream.partitions for stream in state.streams.values())
    return PartitionFaults(total, leaderless, under_replicated, [place for place, _ in moving(state)])
