"""DescribeQuorum (KIP-595, KIP-836), AddRaftVoter and RemoveRaftVoter (KIP-853), UnregisterBroker (KIP-500)."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from duramen.base.errors import ClusterDiffers, DuramenError, RequestInvalid
from duramen.base.hosts import host_port
from duramen.broker.control import requests
from duramen.broker.control.responses import Observed
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.controller.admin.cluster import CLUSTER_ENDPOINT
from duramen.doors.kafka.admin.reassignment import within_ms
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.raft.description import ReplicaProgress
from duramen.raft.voters import ReplicaId, Voter

__all__ = [
    "handle_add_raft_voter",
    "handle_describe_quorum",
    "handle_remove_raft_voter",
    "handle_unregister_broker",
]

_METADATA_TOPIC: Final = "__cluster_metadata"
"""Kafka's name of the metadata log."""

_NULL_ID: Final = UUID(int=0)


def _settled(exchange: Exchange, error: DuramenError | None) -> None:
    exchange.reply({"error_code": error_code(error), "error_message": None if error is None else str(error)})


# -- the quorum ---------------------------------------------------------------------------------------


def handle_describe_quorum(context: Context, exchange: Exchange) -> None:
    """The quorum as its leader sees it; of the metadata log, which is all that has one."""
    topics = exchange.message()["topics"]
    named = [(topic["topic_name"], part["partition_index"]) for topic in topics for part in topic["partitions"]]
    if named != [(_METADATA_TOPIC, 0)]:
        exchange.reply({"topics": [_unknown(topic) for topic in topics]})
        return

    def done(observed: Observed | DuramenError) -> None:
        if isinstance(observed, DuramenError):
            exchange.reply({"error_code": error_code(observed), "error_message": str(observed)})
            return
        partition = {
            "partition_index": 0,
            "leader_id": observed.leader_id,
            "leader_epoch": observed.leader_epoch,
            "high_watermark": observed.high_watermark,
            "current_voters": [_replica(seen) for seen in observed.voters],
            "observers": [_replica(seen) for seen in observed.observers],
        }
        topic = {"topic_name": _METADATA_TOPIC, "partitions": [partition]}
        exchange.reply({"topics": [topic], "nodes": _nodes(observed.endpoints)})

    context.broker.membership.cluster_admin.observe(done)


def _unknown(topic: Message) -> Message:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    why = f"a request describes one quorum: {_METADATA_TOPIC}, partition 0"
    partitions = [
        {"partition_index": one["partition_index"], "error_code": code, "error_message": why}
        for one in topic["partitions"]
    ]
    return {"topic_name": topic["topic_name"], "partitions": partitions}


def _replica(seen: ReplicaProgress) -> Message:
    return {
        "replica_id": seen.replica.node_id,
        "replica_directory_id": _uuid(seen.replica.directory_id),
        "log_end_offset": seen.log_end_offset,
        "last_fetch_timestamp": seen.fetched_ms,
        "last_caught_up_timestamp": seen.caught_up_ms,
    }


def _uuid(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError:
        return _NULL_ID


def _nodes(voters: Sequence[Voter]) -> list[Message]:
    return [{"node_id": voter.id.node_id, "listeners": _listeners(voter.endpoint)} for voter in voters]


def _listeners(endpoint: str) -> list[Message]:
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdecimal():
        return []
    return [{"name": CLUSTER_ENDPOINT, "host": host.strip("[]"), "port": int(port)}]


# -- voters and nodes ---------------------------------------------------------------------------------


def handle_add_raft_voter(context: Context, exchange: Exchange) -> None:
    """Let a replica vote that follows the metadata log and has caught up."""
    request = exchange.message()
    try:
        replica = _named_replica(context, request)
        if not request["listeners"]:
            raise RequestInvalid("a voter needs an address at which the others reach it")
    except DuramenError as error:
        _settled(exchange, error)
        return
    listener = request["listeners"][0]
    voter = Voter(replica, host_port(listener["host"], listener["port"]))
    context.broker.membership.cluster_admin.change_voters(
        requests.AddVoter(voter),
        lambda error: _settled(exchange, error),
        within_ms=within_ms(request["timeout_ms"]),
    )


def handle_remove_raft_voter(context: Context, exchange: Exchange) -> None:
    """Let a voter vote no more."""
    request = exchange.message()
    try:
        replica = _named_replica(context, request)
    except DuramenError as error:
        _settled(exchange, error)
        return
    context.broker.membership.cluster_admin.change_voters(
        requests.RemoveVoter(replica), lambda error: _settled(exchange, error)
    )


def _named_replica(context: Context, request: Message) -> ReplicaId:
    if request["cluster_id"] not in (None, context.cluster_id):
        raise ClusterDiffers(f"this is the cluster {context.cluster_id}, not {request['cluster_id']}")
    if request["voter_id"] < 0 or request["voter_directory_id"] == _NULL_ID:
        raise RequestInvalid("a voter is the id of a node and the id of its data directory")
    return ReplicaId(request["voter_id"], str(request["voter_directory_id"]))


def handle_unregister_broker(context: Context, exchange: Exchange) -> None:
    """Remove a stopped node without replicas from the cluster."""
    node_id = exchange.message()["broker_id"]
    context.broker.membership.cluster_admin.unregister(node_id, lambda error: _settled(exchange, error))
