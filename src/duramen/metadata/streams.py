"""Streams of a cluster: created, extended and configured together with the replicas of their partitions. Pure.

These functions return one proposal, for two reasons. A stream without replicas would be one of a standalone node, and a
replica that is eligible under an old config must not be under a new one.
"""

from collections.abc import Mapping, Sequence

from duramen.base.errors import ReplicaAssignmentInvalid
from duramen.base.ids import StreamId
from duramen.metadata.decisions import Definition, add_partitions, configure_node, configure_stream, create_stream
from duramen.metadata.elections import refresh
from duramen.metadata.events import Event
from duramen.metadata.partitions import PartitionId
from duramen.metadata.placement import check_assignment, new_partitions, place
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import rules_from

__all__ = ["configure_cluster", "configure_replicated", "create_replicated", "grow_replicated"]

Assignment = Sequence[Sequence[int]]


def create_replicated(
    state: ControllerState,
    definition: Definition,
    *,
    stream_id: StreamId,
    now_ms: int,
    secret: bytes = b"",
    replication_factor: int = 1,
    assignment: Assignment | None = None,
    idempotent: bool = False,
    largest_size: int | None = None,
) -> list[Event]:
    """Create a stream whose partitions have that many replicas, or those of `assignment`, by partition.

    Raises like `create_stream`, ReplicationFactorInvalid, ReplicaAssignmentInvalid.
    """
    created = create_stream(
        state, definition, stream_id=stream_id, now_ms=now_ms, secret=secret, idempotent=idempotent,
        largest_size=largest_size,
    )  # fmt: skip
    if not created:
        return []
    replicas = _placed(state, definition.partitions, replication_factor, assignment)
    return [*created, *new_partitions(stream_id, replicas, state.registrations)]


def grow_replicated(
    state: ControllerState,
    name: str,
    partitions: int,
    *,
    assignment: Assignment | None = None,
    largest_size: int | None = None,
) -> list[Event]:
    """Increase a stream's partitions to `partitions`; the new ones have as many replicas as its first.

    `assignment` is for the new ones. Raises like `add_partitions`, ReplicationFactorInvalid, ReplicaAssignmentInvalid.
    """
    added = add_partitions(state, name, partitions, largest_size=largest_size)
    stream = state.streams[name]
    first = state.partitions.get(PartitionId(stream.id, 0))
    factor = 1 if first is None else len(first.target)
    replicas = _placed(state, partitions - stream.partitions, factor, assignment)
    if len(replicas[0]) != factor:
        raise ReplicaAssignmentInvalid(f"partitions of {name} have {factor} replicas, not {len(replicas[0])}")
    return [*added, *new_partitions(stream.id, replicas, state.registrations, first=stream.partitions)]


def configure_replicated(
    state: ControllerState, name: str, changes: Mapping[str, str | None], *, whole: bool = False
) -> list[Event]:
    """Change a stream's config, preceded by the resulting changes of its replicas. Raises like `configure_stream`."""
    configured = configure_stream(state, name, changes, whole=whole)
    stream = state.streams[name]
    events: list[Event] = []
    for event in configured:
        rules = rules_from(event.config, state.node_configs.get(None, {}), state.feature_level)
        places = (PartitionId(stream.id, number) for number in range(stream.partitions))
        events += refresh(state, places, {stream.id: rules}.__getitem__)
    return [*events, *configured]


def configure_cluster(state: ControllerState, changes: Mapping[str, str | None], *, whole: bool = False) -> list[Event]:
    """Change settings of every node, with checked values, preceded by the resulting changes of replicas."""
    configured = configure_node(state, None, changes, whole=whole)
    events: list[Event] = []
    for event in configured:
        level = state.feature_level
        rules = {stream.id: rules_from(stream.config, event.config, level) for stream in state.streams.values()}
        events += refresh(state, (found for found, _ in state.partitions), rules.__getitem__)
    return [*events, *configured]


def _placed(
    state: ControllerState, partitions: int, replication_factor: int, assignment: Assignment | None
) -> Assignment:
    if assignment is None:
        return place(state, partitions, replication_factor)
    if len(assignment) != partitions:
        raise ReplicaAssignmentInvalid(f"{len(assignment)} partitions are assigned, but the stream has {partitions}")
    check_assignment(state, assignment)
    return assignment
