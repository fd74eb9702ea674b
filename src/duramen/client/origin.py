"""Since when a partition is what it is: when its stream was created, and when its log's start last moved.

An answer of our own to ListOffsets, in tagged fields that are there only where they were asked for. Other brokers
answer without them.
"""

from typing import Any, NamedTuple

from duramen.client.answers import failure
from duramen.client.cluster import Cluster, TopicPartition
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey

__all__ = ["Origin", "origin_of"]

_EARLIEST = -2


class Origin(NamedTuple):
    """Times are ms since 1970, -1 where they are not known; the start's is of this start of its node only."""

    start_offset: int
    created_ms: int
    start_moved_ms: int


def origin_of(cluster: Cluster, at: TopicPartition) -> Origin:
    """Asks once. Raises StreamNotFound, ServerUnreachable or what the broker says."""
    wanted = {"partition_index": at.partition, "timestamp": _EARLIEST, "says_origin": True}
    asked: dict[str, Any] = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": at.topic, "partitions": [wanted]}],
        "timeout_ms": int(1000 * cluster.timeout_s),
    }
    answer = cluster.node(cluster.leader(at)).request(ApiKey.LIST_OFFSETS, asked)
    found = answer["topics"][0]["partitions"][0]
    if found["error_code"] != ErrorCode.NONE:
        raise failure(found["error_code"], f"the offsets of {at}")
    return Origin(found["offset"], found["created_ms"], found["start_moved_ms"])
