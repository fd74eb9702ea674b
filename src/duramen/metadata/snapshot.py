"""The controller's state as a snapshot (KIP-630): events that produce it. Pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from duramen.base.errors import BatchCorrupt
from duramen.metadata.events import (
    ClusterFormed,
    Event,
    FeatureLevelChanged,
    GroupConfigured,
    NatsGapsSummed,
    NodeConfigured,
    NodeDraining,
    NodeFenced,
    NodeRegistered,
    NodeUnfenced,
    NodeUnregistered,
    PartitionChanged,
    ProducerIdsAllocated,
    QuotasChanged,
    StreamCreated,
    TenantNameReserved,
)
from duramen.metadata.partitions import PartitionId, difference
from duramen.metadata.state import ControllerState, StreamGaps

__all__ = ["decode_snapshot", "encode_snapshot", "standalone_events"]

_OF_CLUSTERS: Final = (
    ClusterFormed, FeatureLevelChanged, NodeDraining, NodeFenced, NodeRegistered, NodeUnfenced, NodeUnregistered,
    PartitionChanged, TenantNameReserved,
)  # fmt: skip

_decoder = msgspec.json.Decoder(list[Event])


def encode_snapshot(state: ControllerState) -> bytes:
    """The encoded state: equal histories give equal bytes."""
    return msgspec.json.encode(list(_events(state)))


def decode_snapshot(data: bytes) -> ControllerState:
    """The state of an encoded snapshot. Raises BatchCorrupt."""
    state = ControllerState()
    try:
        for event in _decoder.decode(data):
            state.apply(event)
    except (msgspec.MsgspecError, ValueError) as error:
        raise BatchCorrupt(f"a snapshot of the controller's state is damaged: {error}") from None
    return state


def standalone_events(state: ControllerState) -> Iterator[Event]:
    """The state without its cluster: no id, feature level, nodes or replicas, which a standalone node does not have."""
    return (event for event in _events(state) if not isinstance(event, _OF_CLUSTERS))


def _events(state: ControllerState) -> Iterator[Event]:
    yield ProducerIdsAllocated(state.next_producer_id, 0, *state.deleted_names)
    if state.cluster_id:
        yield ClusterFormed(state.cluster_id)
    if state.feature_level:
        yield FeatureLevelChanged(state.feature_level)
    for node in state.registrations:
        yield from node.events
    for configured, config in state.node_configs.items():
        yield NodeConfigured(configured, dict(config))
    for group, config in state.groups.items():
        yield GroupConfigured(group, dict(config))
    for entity, values in state.quotas.items():
        yield QuotasChanged(entity, dict(values))
    for (account, tenant), number in state.tenant_names.items():
        yield TenantNameReserved(account, tenant, number)
    if state.next_reservation > 1:
        yield TenantNameReserved("", "", state.next_reservation - 1, reserved=False)
    for stream in state.streams.values():
        yield StreamCreated(
            stream.name,
            str(stream.id),
            stream.partitions,
            dict(stream.config),
            stream.subjects,
            stream.internal,
            stream.created_at_ms,
            stream.forgotten_producer_id,
            stream.number or msgspec.UNSET,
            stream.secret.hex() or msgspec.UNSET,
        )
        gaps = state.gaps(stream.id)
        if gaps != StreamGaps():
            recent = tuple((gap.start_ms, gap.end_ms, gap.cause) for gap in gaps.recent)
            yield NatsGapsSummed(str(stream.id), gaps.gaps, gaps.total_ms, recent)
        for number, partition in sorted(state.partitions.of_stream(stream.id).items()):
            yield difference(PartitionId(stream.id, number), None, partition)
