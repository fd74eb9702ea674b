"""Decides AlterPartition: a leader proposes a new in-sync set (KIP-497, KIP-841, KIP-903). Pure."""

from enum import Enum
from typing import NamedTuple

import msgspec

from duramen.metadata.events import PartitionChanged
from duramen.metadata.leader_election import change
from duramen.metadata.nodes import Nodes
from duramen.metadata.partitions import PartitionId, PartitionState, difference
from duramen.metadata.state import ControllerState
from duramen.metadata.stream_rules import rules_of

__all__ = ["AlterPartitionRefusal", "Altered", "InSyncMember", "InSyncProposal", "alter_partition"]


class InSyncMember(NamedTuple):
    """A node with the epoch of the registration in which it fetched."""

    node_id: int
    epoch: int


class InSyncProposal(NamedTuple):
    """A leader's proposed in-sync set, itself included, in the epochs that it knows."""

    place: PartitionId
    leader: InSyncMember
    leader_epoch: int
    partition_epoch: int
    isr: tuple[InSyncMember, ...]


class AlterPartitionRefusal(Enum):
    """The reasons of refused proposals, with the names of Kafka's errors."""

    UNKNOWN_TOPIC_ID = "there is no such stream"
    UNKNOWN_TOPIC_OR_PARTITION = "the stream has no such partition"
    STALE_BROKER_EPOCH = "the leader has registered again since, or was unregistered"
    NOT_CONTROLLER = "the leader knows a newer epoch than this controller: another one has taken over"
    FENCED_LEADER_EPOCH = "there was an election since"
    INVALID_REQUEST = "it is not from the leader, leaves the leader out, or names who has no replica"
    INVALID_UPDATE_VERSION = "the partition has changed since"
    INELIGIBLE_REPLICA = "a proposed replica is fenced, about to stop, or has registered again since"


class Altered(NamedTuple):
    """The event of an accepted proposal.

    `new_leader`: the change has made another node the leader (NEW_LEADER_ELECTED).
    """

    events: list[PartitionChanged]
    new_leader: bool = False


def alter_partition(state: ControllerState, proposal: InSyncProposal) -> Altered | AlterPartitionRefusal:
    """Accept a leader's proposal, or return the refusal."""
    place = proposal.place
    partition = state.partitions.get(place)
    if partition is None:
        known = state.stream_by_id(place.stream_id) is not None
        return AlterPartitionRefusal.UNKNOWN_TOPIC_OR_PARTITION if known else AlterPartitionRefusal.UNKNOWN_TOPIC_ID
    refusal = _refusal(partition, proposal, state.registrations)
    if refusal is not None:
        return refusal
    proposed = tuple(member.node_id for member in proposal.isr)
    wanted = msgspec.structs.replace(partition, isr=proposed)
    events = change(place, partition, wanted, state.registrations, rules_of(state, place.stream_id))
    if not events:
        # A new partition epoch nevertheless: it tells the leader that none of its earlier proposals can be accepted any
        # more.
        confirmed = msgspec.structs.replace(partition, partition_epoch=partition.partition_epoch + 1)
        events = [difference(place, partition, confirmed)]
    return Altered(events, any(isinstance(event.leader_epoch, int) for event in events))


def _refusal(partition: PartitionState, proposal: InSyncProposal, nodes: Nodes) -> AlterPartitionRefusal | None:
    leader = nodes.get(proposal.leader.node_id)
    if leader is None or leader.epoch != proposal.leader.epoch:
        return AlterPartitionRefusal.STALE_BROKER_EPOCH
    if proposal.leader_epoch > partition.leader_epoch or proposal.partition_epoch > partition.partition_epoch:
        return AlterPartitionRefusal.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return AlterPartitionRefusal.FENCED_LEADER_EPOCH
    proposed = [member.node_id for member in proposal.isr]
    sound = len(set(proposed)) == len(proposed) and set(proposed) <= set(partition.replicas)
    if leader.id != partition.leader or leader.id not in proposed or not sound:
        return AlterPartitionRefusal.INVALID_REQUEST
    if proposal.partition_epoch < partition.partition_epoch:
        return AlterPartitionRefusal.INVALID_UPDATE_VERSION
    if not all(_is_eligible(member, leader.id, nodes) for member in proposal.isr):
        return AlterPartitionRefusal.INELIGIBLE_REPLICA
    return None


def _is_eligible(member: InSyncMember, leader_id: int, nodes: Nodes) -> bool:
    """A leader that is about to stop stays in the set as long as no other node can take over."""
    node = nodes.get(member.node_id)
    stops = node is not None and node.draining and node.id != leader_id
    return node is not None and node.epoch == member.epoch and not node.fenced and not stops
