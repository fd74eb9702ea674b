"""Events as text, for transcripts: `s-0 leader 2 in epoch 1, isr {2 3}`."""

from collections.abc import Iterable
from uuid import UUID

from msgspec import UNSET

from duramen.metadata.events import (
    Event,
    FeatureLevelChanged,
    NodeDraining,
    NodeFenced,
    NodeRegistered,
    NodeUnfenced,
    NodeUnregistered,
    PartitionChanged,
    StreamConfigured,
    StreamCreated,
)
from duramen.metadata.partitions import PartitionState
from duramen.metadata.state import ControllerState

_SETS = ("replicas", "isr", "elr", "last_known_elr", "adding", "removing")


def members_text(members: Iterable[int]) -> str:
    """A set of nodes."""
    return "{" + " ".join(map(str, members)) + "}"


def event_text(event: Event, state: ControllerState) -> str:
    """What an event says."""
    match event:
        case NodeRegistered():
            return f"node {event.node_id}/{event.directory_id} registered in epoch {event.epoch}, fenced"
        case NodeFenced():
            return f"node {event.node_id} fenced"
        case NodeUnfenced():
            return f"node {event.node_id} unfenced"
        case NodeDraining():
            return f"node {event.node_id} draining"
        case NodeUnregistered():
            return f"node {event.node_id} unregistered"
        case PartitionChanged():
            return _change_text(event, state)
        case StreamCreated():
            return f"stream {event.name} created"
        case StreamConfigured():
            return f"stream configured: {' '.join(f'{name}={value}' for name, value in event.config.items())}"
        case FeatureLevelChanged():
            return f"feature level {event.level}"
        case _:
            return type(event).__name__


def _change_text(event: PartitionChanged, state: ControllerState) -> str:
    stream = state.stream_by_id(UUID(event.id))
    name = event.id if stream is None else stream.name
    parts = []
    if event.leader is not UNSET:
        leader = "no leader" if event.leader is None else f"leader {event.leader}"
        parts.append(f"{leader} in epoch {event.leader_epoch}")
    elif event.leader_epoch is not UNSET:
        parts.append(f"led in epoch {event.leader_epoch}")
    parts += [
        f"{field.replace('_', ' ')} {members_text(value)}"
        for field in _SETS
        if (value := getattr(event, field)) is not UNSET and (value or event.partition_epoch)
    ]
    if event.unclean:
        parts.append("UNCLEAN: acknowledged records may be lost")
    return f"{name}-{event.partition} " + ", ".join(parts)


def partition_text(name: str, partition: PartitionState) -> str:
    """All of a partition."""
    leader = "no leader" if partition.leader is None else f"leader {partition.leader}"
    parts = [f"{leader} in epoch {partition.leader_epoch}"]
    parts += [
        f"{field.replace('_', ' ')} {members_text(value)}" for field in _SETS if (value := getattr(partition, field))
    ]
    return f"{name} " + ", ".join(parts)
