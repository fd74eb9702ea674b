"""Places the replicas of new partitions: as evenly over racks as possible, then on the nodes with the fewest. Pure.

The same state and request always give the same placement.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from duramen.base.errors import ReplicaAssignmentInvalid, ReplicationFactorInvalid
from duramen.base.ids import StreamId
from duramen.metadata.events import PartitionChanged
from duramen.metadata.leader_election import settle
from duramen.metadata.nodes import Node, Nodes
from duramen.metadata.partitions import PartitionId, PartitionState, difference
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import ReplicationRules

__all__ = ["Load", "check_assignment", "choose_replicas", "new_partitions", "place"]


class Load(NamedTuple):
    """The load of a node: its replicas, and the partitions that have it as preferred leader.

    Present leaders do not count: leadership returns to the preferred ones.
    """

    replicas: int
    leaders: int


def place(state: ControllerState, partitions: int, replication_factor: int) -> list[tuple[int, ...]]:
    """The replicas of that many new partitions; the first of each is its preferred leader.

    Fenced nodes come last, draining ones are left out. Raises ReplicationFactorInvalid.
    """
    nodes = [node for node in state.registrations if node.takes_replicas]
    if replication_factor < 1:
        raise ReplicationFactorInvalid(f"the replication factor is 1 or more, not {replication_factor}")
    if replication_factor > len(nodes):
        raise ReplicationFactorInvalid(
            f"a replication factor of {replication_factor} needs as many nodes: {len(nodes)} can take replicas"
        )
    if all(node.fenced for node in nodes):
        raise ReplicationFactorInvalid("none of the nodes is live: nothing can be placed now")
    loads = {node.id: load_of(state, node.id) for node in nodes}
    placed = []
    for _ in range(partitions):
        replicas = choose_replicas(nodes, loads, replication_factor)
        placed.append(replicas)
        for node_id in replicas:
            more = Load(loads[node_id].replicas + 1, loads[node_id].leaders + (node_id == replicas[0]))
            loads[node_id] = more
    return placed


def load_of(state: ControllerState, node_id: int) -> Load:
    """The present load of a node."""
    return Load(state.partitions.replica_count(node_id), state.partitions.preferred_count(node_id))


def choose_replicas(nodes: Sequence[Node], loads: dict[int, Load], count: int) -> tuple[int, ...]:
    """The replicas of one partition: live nodes first, then racks with the fewest of it, then nodes with the fewest."""
    chosen: list[Node] = []
    racks: dict[str | None, int] = {}
    left = list(nodes)
    for _ in range(count):
        best = min(left, key=lambda node: (racks.get(node.rack, 0), node.fenced, loads[node.id].replicas, node.id))
        left.remove(best)
        chosen.append(best)
        racks[best.rack] = racks.get(best.rack, 0) + 1
    leader = min(chosen, key=lambda node: (node.fenced, loads[node.id].leaders, node.id))
    rest = sorted(node.id for node in chosen if node is not leader)
    # The next leaders alternate too: else one node would take over everything from another.
    turn = loads[leader.id].leaders % len(rest) if rest else 0
    return (leader.id, *rest[turn:], *rest[:turn])


def check_assignment(state: ControllerState, assignment: Sequence[Sequence[int]]) -> None:
    """Raise ReplicaAssignmentInvalid unless partitions can have these replicas, all the same number."""
    for partition, replicas in enumerate(assignment):
        check_replicas(state, partition, replicas)
        if len(replicas) != len(assignment[0]):
            raise ReplicaAssignmentInvalid(
                f"partition {partition} has {len(replicas)} replicas where partition 0 has {len(assignment[0])}:"
                " all partitions have as many"
            )
        if state.registrations.live.isdisjoint(replicas):
            raise ReplicaAssignmentInvalid(f"none of the nodes of partition {partition} is live")


def check_replicas(state: ControllerState, partition: int, replicas: Sequence[int]) -> None:
    """Raise ReplicaAssignmentInvalid unless these are distinct nodes that may hold a partition."""
    if not replicas:
        raise ReplicaAssignmentInvalid(f"partition {partition} has no replicas")
    for at, node_id in enumerate(replicas):
        node = state.registrations.get(node_id)
        if node is None:
            raise ReplicaAssignmentInvalid(f"partition {partition} names node {node_id}, which is not registered")
        if node_id in replicas[:at]:
            raise ReplicaAssignmentInvalid(f"partition {partition} names node {node_id} more than once")
        if not node.holds_partitions:
            raise ReplicaAssignmentInvalid(f"partition {partition} names node {node_id}, which holds no partitions")


def new_partitions(
    stream_id: StreamId,
    assignment: Sequence[Sequence[int]],
    nodes: Nodes,
    *,
    first: int = 0,
    leader_epoch: int = 0,
) -> Iterator[PartitionChanged]:
    """The events that give partitions from `first` on their replicas; the live ones are in sync at once."""
    for partition, replicas in enumerate(assignment, first):
        begun = PartitionState(
            replicas=tuple(replicas), isr=tuple(replicas), leader_epoch=leader_epoch - 1, partition_epoch=-1
        )
        after, _ = settle(begun, begun, nodes, ReplicationRules())
        yield difference(PartitionId(stream_id, partition), None, after)
