"""Reassignments (KIP-455): new replicas are added, old ones removed once the new are in sync; or cancelled. Pure."""

from collections.abc import Sequence

import msgspec

from duramen.base.errors import ReassignmentNotFound, ReplicaAssignmentInvalid
from duramen.metadata.elections import existing
from duramen.metadata.events import PartitionChanged
from duramen.metadata.leader_election import change
from duramen.metadata.partitions import PartitionId, PartitionState, without
from duramen.metadata.placement import check_replicas
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import rules_of

__all__ = ["can_cancel", "cancel", "reassign"]


def reassign(state: ControllerState, place: PartitionId, replicas: Sequence[int]) -> list[PartitionChanged]:
    """Reassign a partition to these replicas, in this order.

    It completes at once if nothing has to be copied. Raises PartitionsInvalid, ReplicaAssignmentInvalid.
    """
    partition = existing(state, place)
    check_replicas(state, place.partition, replicas)
    target = tuple(replicas)
    held = without(partition.replicas, partition.adding)
    _check_holders(partition, (*target, *held))
    wanted = msgspec.structs.replace(
        partition,
        replicas=(*target, *without(held, target)),
        adding=without(target, held),
        removing=without(held, target),
    )
    return _changed(state, place, partition, wanted)


def cancel(state: ControllerState, place: PartitionId) -> list[PartitionChanged]:
    """Cancel a reassignment: the partition keeps its earlier replicas.

    Raises PartitionsInvalid, ReassignmentNotFound, or ReplicaAssignmentInvalid if none of those has all records any
    more.
    """
    partition = existing(state, place)
    if not partition.is_moving:
        raise ReassignmentNotFound(f"no reassignment of partition {place.partition} is under way")
    held = without(partition.replicas, partition.adding)
    _check_holders(partition, held)
    wanted = msgspec.structs.replace(partition, replicas=held, adding=(), removing=())
    return _changed(state, place, partition, wanted)


def can_cancel(partition: PartitionState) -> bool:
    """Whether one of the replicas before the reassignment has all records."""
    return _hold(partition, without(partition.replicas, partition.adding))


def _hold(partition: PartitionState, replicas: tuple[int, ...]) -> bool:
    holders = (*partition.isr, *partition.elr)
    return not holders or any(member in replicas for member in holders)


def _check_holders(partition: PartitionState, replicas: tuple[int, ...]) -> None:
    """Check that a replica with every acknowledged record stays."""
    if not _hold(partition, replicas):
        holders = ", ".join(f"node {member}" for member in (*partition.isr, *partition.elr))
        raise ReplicaAssignmentInvalid(f"only {holders} has all the records: wait for another one")


def _changed(
    state: ControllerState, place: PartitionId, before: PartitionState, wanted: PartitionState
) -> list[PartitionChanged]:
    return change(place, before, wanted, state.registrations, rules_of(state, place.stream_id))
