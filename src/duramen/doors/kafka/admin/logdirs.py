"""DescribeLogDirs, AlterReplicaLogDirs: the one directory of this node, and the size of its partitions."""

import os.path
import shutil
from collections.abc import Iterable
from pathlib import Path

from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.metadata.partitions import PartitionId
from duramen.service.authorize import CLUSTER_NAME, Access, Operation, ResourceType

__all__ = ["handle_alter_replica_log_dirs", "handle_describe_log_dirs", "moved", "named"]

_UNKNOWN = -1
_ALTER_CLUSTER = Access(Operation.ALTER, ResourceType.CLUSTER)


def named(needs: ApiNeeds) -> Iterable[str]:
    """The topics in the request."""
    return [topic["topic"] for topic in needs.request["topics"] or ()]


def moved(needs: ApiNeeds) -> Iterable[str]:
    """The topics whose replicas are to be moved."""
    return [topic["name"] for wanted in needs.request["dirs"] for topic in wanted["topics"]]


def handle_describe_log_dirs(context: Context, exchange: Exchange) -> None:
    """The requested partitions, or all; as in Apache Kafka, missing ones are omitted."""
    asked = exchange.message()["topics"]
    topics: list[Message] = []
    if asked is None:
        topics = [_topic(stream, stream.partitions) for stream in context.service.resolver.every()]
    else:
        wanted: dict[str, list[int]] = {}
        for topic in asked:
            wanted.setdefault(topic["topic"], []).extend(topic["partitions"])
        for name, partitions in wanted.items():
            stream = exchange.admitted.topics.find(name)
            if stream is not None:
                indexes = (index for index in partitions if 0 <= index < len(stream.partitions))
                topics.append(_topic(stream, [stream.partitions[index] for index in dict.fromkeys(indexes)]))
    directory = _directory(context)
    total_bytes, usable_bytes = _room(directory)
    exchange.reply(
        {
            "results": [
                {
                    "log_dir": str(directory),
                    "topics": [topic for topic in topics if topic["partitions"]],
                    "total_bytes": total_bytes,
                    "usable_bytes": usable_bytes,
                }
            ]
        }
    )


def _directory(context: Context) -> Path:
    return Path(context.broker.settings.text("data.dir")).absolute()


def handle_alter_replica_log_dirs(context: Context, exchange: Exchange) -> None:
    """Move replicas to another directory (KIP-113): there is one, and all are in it already."""
    own = os.path.normpath(_directory(context))
    refusal = exchange.admitted.refusal(_ALTER_CLUSTER, CLUSTER_NAME)
    codes: dict[str, dict[int, ErrorCode]] = {}
    for wanted in exchange.message()["dirs"]:
        is_own = os.path.normpath(wanted["path"]) == own
        for topic in wanted["topics"]:
            for index in topic["partitions"]:
                if refusal is not None:
                    code = error_code(refusal)
                elif is_own:
                    code = _held(context, exchange.admitted.topics.find(topic["name"]), index)
                else:
                    code = ErrorCode.LOG_DIR_NOT_FOUND
                codes.setdefault(topic["name"], {})[index] = code
    results = [
        {
            "topic_name": name,
            "partitions": [{"partition_index": index, "error_code": code} for index, code in found.items()],
        }
        for name, found in codes.items()
    ]
    exchange.reply({"results": results})


def _held(context: Context, stream: Stream | None, index: int) -> ErrorCode:
    """Whether this node has a replica of the partition."""
    broker = context.broker
    if stream is None or not 0 <= index < len(stream.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    holds = broker.node_id in broker.membership.partition(PartitionId(stream.id, index)).replicas
    return ErrorCode.NONE if holds else ErrorCode.REPLICA_NOT_AVAILABLE


def _topic(stream: Stream, partitions: Iterable[Partition]) -> Message:
    return {
        "name": stream.name,
        "partitions": [
            {"partition_index": partition.index, "partition_size": partition.log.size_bytes(), "offset_lag": 0}
            for partition in partitions
        ],
    }


def _room(directory: Path) -> tuple[int, int]:
    try:
        usage = shutil.disk_usage(directory)
    except OSError:
        return _UNKNOWN, _UNKNOWN
    return usage.total, usage.free
