"""The origin of a partition: when its stream was created, and when and why its log start moved.

A Duramen extension of ListOffsets, in tagged fields that are present only on request. Other brokers respond without
them.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

from duramen.client.answers import failure
from duramen.client.cluster import BrokerCluster, TopicPartition
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.versions import ApiKey

__all__ = ["Origin", "origin_of", "origins_of"]

_EARLIEST = -2


class Origin(NamedTuple):
    """Times are ms since 1970, -1 if unknown; all but the stream's belong to the present run of its node.

    `late_records` is the number of records that retention deleted although they were older than `retention.ms` when
    written, and `late_newest_ms` the newest of their timestamps.
    """

    start_offset: int
    created_ms: int
    start_moved_ms: int
    late_records: int = 0
    late_newest_ms: int = -1


def origin_of(cluster: BrokerCluster, at: TopicPartition) -> Origin:
    """Asks once. Raises StreamNotFound, ServerUnreachable or the broker's error."""
    return origins_of(cluster, [at])[at]


def origins_of(cluster: BrokerCluster, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, Origin]:
    """The origins of several partitions, with one request to each leader. Raises as `origin_of`."""
    found: dict[TopicPartition, Origin] = {}
    for node_id, ats in cluster.by_leader(wanted).items():
        topics: dict[str, list[dict[str, Any]]] = {}
        for at in ats:
            one = {"partition_index": at.partition, "timestamp": _EARLIEST, "says_origin": True}
            topics.setdefault(at.topic, []).append(one)
        asked: dict[str, Any] = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()],
            "timeout_ms": int(1000 * cluster.timeout_s),
        }
        for topic in cluster.node(node_id).request(ApiKey.LIST_OFFSETS, asked)["topics"]:
            for said in topic["partitions"]:
                at = TopicPartition(topic["name"], said["partition_index"])
                if said["error_code"] != ErrorCode.NONE:
                    raise failure(said["error_code"], f"the offsets of {at}")
                found[at] = Origin(
                    said["offset"], said["created_ms"], said["start_moved_ms"], said["late_records"],
                    said["late_newest_ms"],
                )  # fmt: skip
    return found
