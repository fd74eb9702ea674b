"""Brokers as clients see them: their addresses, and the leader and replicas of each partition."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.leaders import LeaderHint, NodeEndpoint
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.request.context import Context
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, PartitionState

__all__ = [
    "BrokerAt",
    "broker_at",
    "brokers",
    "coordinator_place",
    "fenced_brokers",
    "live_brokers",
    "partition_answer",
    "partition_at",
    "shown_brokers",
]

SAYS_LEADER: Final = frozenset(
    {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH}
)
"""The errors whose response names the present leader (KIP-951)."""

_DOOR: Final = "kafka"
_NOBODY: Final = -1


class BrokerAt(NamedTuple):
    """A broker and where clients reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None


def brokers(context: Context) -> Sequence[BrokerAt]:
    """The brokers that are live; a node that is alone is where the client has found it."""
    return _where(context, context.broker.membership.nodes)


def shown_brokers(context: Context) -> Sequence[BrokerAt]:
    """Like `brokers`, plus those that were live recently, which clients still look for."""
    return _where(context, context.broker.membership.shown_nodes)


def _where(context: Context, nodes: Sequence[Node]) -> Sequence[BrokerAt]:
    if not nodes:
        return [BrokerAt(context.broker.node_id, context.host, context.port, None)]
    return [found for node in nodes if (found := _reached(node)) is not None]


def fenced_brokers(context: Context) -> Sequence[BrokerAt]:
    """The brokers that are registered and fenced; none of a node that is alone."""
    fenced = [
        node
        for node in context.broker.membership.cluster_admin.state.registrations
        if node.fenced and node.holds_partitions
    ]
    return [found for node in fenced if (found := _reached(node)) is not None]


def live_brokers(context: Context) -> frozenset[int] | None:
    """The ids of the brokers that are live; None where this one is alone."""
    return frozenset(node.id for node in context.broker.membership.nodes) or None


def broker_at(context: Context, node_id: int) -> BrokerAt | None:
    """A broker, if it is live."""
    return next((broker for broker in brokers(context) if broker.node_id == node_id), None)


def _reached(node: Node) -> BrokerAt | None:
    found = next((one for one in node.endpoints if one.name == _DOOR), None)
    return None if found is None else BrokerAt(node.id, found.host, found.port, node.rack)


def leader_of(context: Context, partition: Partition) -> LeaderHint:
    """The leader of a partition, for a client that has asked another node."""
    state = context.broker.membership.partition(partition.place)
    return LeaderHint(_NOBODY if state.leader is None else state.leader, state.leader_epoch)


def endpoints_of(context: Context, leaders: Iterable[LeaderHint | None]) -> list[NodeEndpoint]:
    """The addresses of these leaders, each once."""
    node_ids = {leader.node_id for leader in leaders if leader is not None}
    return [NodeEndpoint(*broker) for broker in brokers(context) if broker.node_id in node_ids] if node_ids else []


def coordinator_place(context: Context, stream: Stream | None, index: int) -> BrokerAt | None:
    """The leader of a partition; None if it has no leader or does not exist yet."""
    if stream is None or not 0 <= index < len(stream.partitions):
        return None
    leader = context.broker.membership.partition(PartitionId(stream.id, index)).leader
    return None if leader is None else broker_at(context, leader)


def partition_answer(context: Context, partition: Partition, live: frozenset[int] | None) -> Message:
    """A partition in Metadata; `live` are the known brokers, None: only this standalone node.

    A live topic has the leaders and replicas of its stream.
    """
    return partition_at(context, partition.place, partition.index, live)


def partition_at(context: Context, place: PartitionId, index: int, live: frozenset[int] | None) -> Message:
    """Like `partition_answer`, for a partition that clients know by the number `index`."""
    state = context.broker.membership.partition(place)
    leader = _leader(state, live)
    return {
        "error_code": ErrorCode.LEADER_NOT_AVAILABLE if leader == _NOBODY else ErrorCode.NONE,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": () if live is None else tuple(one for one in state.replicas if one not in live),
    }


def _leader(state: PartitionState, live: frozenset[int] | None) -> int:
    if state.leader is None or (live is not None and state.leader not in live):
        return _NOBODY
    return state.leader
