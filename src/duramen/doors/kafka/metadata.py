"""Metadata, ApiVersions, DescribeCluster: what there is and where."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

from duramen.base.errors import DuramenError, StreamExists
from duramen.broker.streams import Stream
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import APIS, FEATURES
from duramen.controller.decisions import Definition
from duramen.doors.kafka.context import Context
from duramen.doors.kafka.errors import error_code
from duramen.doors.kafka.exchange import Exchange

__all__ = ["api_versions", "handle_api_versions", "handle_describe_cluster", "handle_metadata", "nodes"]

_NO_OPERATIONS: Final = -2147483648
_NULL_ID: Final = UUID(int=0)
_FEATURES_EPOCH: Final = 1  # what is finalized never changes while the node runs


def api_versions(error: ErrorCode) -> Message:
    """The list of what is implemented."""
    return {
        "error_code": error,
        "api_keys": [{"api_key": api.key, "min_version": api.low, "max_version": api.high} for api in APIS.values()],
        "supported_features": [
            {"name": feature.name, "min_version": feature.low, "max_version": feature.high} for feature in FEATURES
        ],
        "finalized_features_epoch": _FEATURES_EPOCH,
        "finalized_features": [
            {"name": feature.name, "min_version_level": feature.finalized, "max_version_level": feature.finalized}
            for feature in FEATURES
        ],
    }


def handle_api_versions(_: Context, exchange: Exchange) -> None:
    """Which versions a client may use."""
    exchange.message()
    exchange.reply(api_versions(ErrorCode.NONE))


def handle_describe_cluster(context: Context, exchange: Exchange) -> None:
    """The nodes of the cluster: this one."""
    exchange.message()
    node_id = context.broker.node_id
    exchange.reply(
        {
            "cluster_id": context.cluster_id,
            "controller_id": node_id,
            "brokers": [{"broker_id": node_id, "host": context.host, "port": context.port, "rack": None}],
        }
    )


def handle_metadata(context: Context, exchange: Exchange) -> None:
    """The topics asked for, or all; those that do not exist are created where that is allowed."""
    request = exchange.message()
    wanted: Sequence[Message] | None = request["topics"]
    if wanted is None or (exchange.version == 0 and not wanted):
        _reply(context, exchange, [_topic(context, stream) for stream in context.broker.streams])
        return
    broker = context.broker
    may_create = request["allow_auto_topic_creation"] is not False and broker.settings.flag("auto.create.topics.enable")
    found: dict[int, Message] = {}

    def put(at: int, topic: Message) -> None:
        found[at] = topic
        if len(found) == len(wanted):
            _reply(context, exchange, [found[index] for index in range(len(wanted))])

    if not wanted:
        _reply(context, exchange, [])
    for at, topic in enumerate(wanted):
        name, topic_id = topic["name"], topic["topic_id"]
        if name is None or topic_id != _NULL_ID:
            stream = broker.streams.find_id(topic_id)
            missing = ErrorCode.UNKNOWN_TOPIC_ID
        else:
            stream = broker.streams.find(name)
            missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if stream is not None:
            put(at, _topic(context, stream))
        elif name is not None and topic_id == _NULL_ID and may_create:
            _create(context, name, partial(put, at))
        else:
            put(at, _missing(name, topic_id, missing))


def _create(context: Context, name: str, put: Callable[[Message], None]) -> None:
    broker = context.broker

    def created(error: DuramenError | None) -> None:
        stream = broker.streams.find(name)
        if stream is not None:
            put(_topic(context, stream))
        elif isinstance(error, StreamExists):
            # Somebody else is making it, and it is not durable yet: the client asks again.
            put(_missing(name, _NULL_ID, ErrorCode.LEADER_NOT_AVAILABLE))
        else:
            put(_missing(name, _NULL_ID, error_code(error)))

    broker.create_stream(Definition(name, broker.settings.integer("num.partitions")), created, idempotent=True)


def _missing(name: str | None, topic_id: UUID, error: ErrorCode) -> Message:
    return {"error_code": error, "name": name, "topic_id": topic_id, "topic_authorized_operations": _NO_OPERATIONS}


def _topic(context: Context, stream: Stream) -> Message:
    node_id = context.broker.node_id
    replicas = [node_id]
    partitions: list[dict[str, Any]] = [
        {
            "error_code": ErrorCode.NONE,
            "partition_index": partition.index,
            "leader_id": node_id,
            "leader_epoch": partition.leader_epoch,
            "replica_nodes": replicas,
            "isr_nodes": replicas,
        }
        for partition in stream.partitions
    ]
    return {
        "error_code": ErrorCode.NONE,
        "name": stream.name,
        "topic_id": stream.id,
        "is_internal": stream.internal,
        "partitions": partitions,
        "topic_authorized_operations": _NO_OPERATIONS,
    }


def _reply(context: Context, exchange: Exchange, topics: list[Message]) -> None:
    exchange.reply({**nodes(context), "topics": topics})


def nodes(context: Context) -> Message:
    """What Metadata says of the cluster: this node."""
    node_id = context.broker.node_id
    return {
        "brokers": [{"node_id": node_id, "host": context.host, "port": context.port, "rack": None}],
        "cluster_id": context.cluster_id,
        "controller_id": node_id,
    }
