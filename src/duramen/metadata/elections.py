"""Requested elections (KIP-460), and elections that return leadership to preferred replicas. Pure."""

from collections.abc import Callable, Iterable

import msgspec

from duramen.base.errors import ElectionNotNeeded, LeaderUnavailable, PartitionsInvalid
from duramen.base.ids import StreamId
from duramen.metadata.events import PartitionChanged
from duramen.metadata.leader_election import change, settle
from duramen.metadata.nodes import Nodes
from duramen.metadata.partitions import PartitionId, PartitionState, difference, without
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import ReplicationRules, RulesOf, rules_of

__all__ = ["elect_preferred", "elect_unclean", "existing", "move_leader", "rebalance_leaders", "refresh"]


def existing(state: ControllerState, place: PartitionId) -> PartitionState:
    """The partition. Raises PartitionsInvalid if there is none with replicas."""
    partition = state.partitions.get(place)
    if partition is None:
        stream = state.stream_by_id(place.stream_id)
        name = place.stream_id if stream is None else stream.name
        raise PartitionsInvalid(f"there is no partition {place.partition} of {name} that has replicas")
    return partition


def elect_preferred(state: ControllerState, place: PartitionId) -> list[PartitionChanged]:
    """Elect the first replica. Raises PartitionsInvalid, ElectionNotNeeded, LeaderUnavailable."""
    partition = existing(state, place)
    preferred = partition.target[0]
    if partition.leader == preferred:
        raise ElectionNotNeeded(f"node {preferred}, the preferred leader, leads")
    return move_leader(state, place, preferred)


def move_leader(
    state: ControllerState, place: PartitionId, node_id: int, *, slow: int | None = None
) -> list[PartitionChanged]:
    """Make a node the leader. `slow` is a former leader with a slow disk, which leaves the in-sync set if enough stay.

    Raises PartitionsInvalid, or LeaderUnavailable unless the node is in sync, accepts writes and is not draining.
    """
    partition = existing(state, place)
    if not _may_lead(partition, node_id, state.registrations):
        raise LeaderUnavailable(f"node {node_id} is not in sync, takes no writes, or is about to stop: it cannot lead")
    rules, isr = rules_of(state, place.stream_id), partition.isr
    if slow == partition.leader and len(isr) > rules.least_in_sync(partition):
        isr = without(isr, (slow,))
    wanted = msgspec.structs.replace(partition, leader=node_id, isr=isr)
    return change(place, partition, wanted, state.registrations, rules)


def elect_unclean(
    state: ControllerState, place: PartitionId, most_complete: int | None = None
) -> list[PartitionChanged]:
    """Elect a leader that may lack acknowledged records, which are then lost, for a partition without a leader.

    An eligible replica is preferred if one is live by now, else that of the node `most_complete`. Raises
    PartitionsInvalid, ElectionNotNeeded, or LeaderUnavailable if no replica is live, or that node is not.
    """
    partition = existing(state, place)
    if partition.leader is not None:
        raise ElectionNotNeeded(f"node {partition.leader} leads")
    rules: ReplicationRules = rules_of(state, place.stream_id)._replace(unclean=True)
    before = partition
    if most_complete is not None:
        if not _can_lead(partition, most_complete, state.registrations):
            raise LeaderUnavailable(f"node {most_complete} is not live, takes no writes, or is about to stop")
        before = msgspec.structs.replace(partition, last_known_elr=(most_complete,))  # comes before all others
    after, unclean = settle(before, before, state.registrations, rules)
    if after is before:
        raise LeaderUnavailable("no replica is live")
    return [difference(place, partition, after, unclean=unclean)]


def rebalance_leaders(state: ControllerState, most: int) -> list[PartitionChanged]:
    """Move leadership to preferred replicas that can lead and do not, `most` of them at once."""
    events: list[PartitionChanged] = []
    rules = RulesOf(state)
    for place, partition in state.partitions:
        if len(events) >= most:
            break
        preferred = partition.target[0]
        if partition.leader != preferred and _may_lead(partition, preferred, state.registrations):
            wanted = msgspec.structs.replace(partition, leader=preferred)
            events += change(place, partition, wanted, state.registrations, rules[place.stream_id])
    return events


def refresh(
    state: ControllerState, places: Iterable[PartitionId], rules_of_stream: Callable[[StreamId], ReplicationRules]
) -> list[PartitionChanged]:
    """The changes of partitions under new rules, above all of their eligible replicas.

    With a smaller `min.insync.replicas` the high watermark may rise without replicas that were eligible until then:
    these events must be committed with the change or before it, never after.
    """
    events: list[PartitionChanged] = []
    for place in places:
        partition = state.partitions.get(place)
        if partition is not None:
            events += change(place, partition, partition, state.registrations, rules_of_stream(place.stream_id))
    return events


def _can_lead(partition: PartitionState, node_id: int, nodes: Nodes) -> bool:
    return node_id in partition.replicas and node_id in nodes.live and node_id not in nodes.draining


def _may_lead(partition: PartitionState, node_id: int, nodes: Nodes) -> bool:
    return node_id in partition.isr and _can_lead(partition, node_id, nodes)
