"""DescribeLogDirs: the one directory of this node, what its partitions take there, and how much room there is."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.context import Context
from duramen.doors.kafka.exchange import Exchange

__all__ = ["handle_describe_log_dirs"]

_UNKNOWN = -1


def handle_describe_log_dirs(context: Context, exchange: Exchange) -> None:
    """The partitions asked for, or all; those that do not exist are left out, as in Apache Kafka."""
    asked = exchange.message()["topics"]
    streams = context.broker.streams
    topics: list[Message] = []
    if asked is None:
        topics = [_topic(stream, stream.partitions) for stream in streams]
    else:
        wanted: dict[str, list[int]] = {}
        for topic in asked:
            wanted.setdefault(topic["topic"], []).extend(topic["partitions"])
        for name, partitions in wanted.items():
            stream = streams.find(name)
            if stream is not None:
                indexes = (index for index in partitions if 0 <= index < len(stream.partitions))
                topics.append(_topic(stream, [stream.partitions[index] for index in dict.fromkeys(indexes)]))
    directory = Path(context.broker.settings.text("data.dir")).absolute()
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
