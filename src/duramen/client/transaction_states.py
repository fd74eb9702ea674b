"""Asks leaders for ended and open transactions: DescribeProducers with Duramen's tagged fields."""

from collections.abc import Mapping
from itertools import islice
from typing import Final

from duramen.base.cuts import EndedAt, MarkedUpTo
from duramen.base.errors import DuramenError, ServerUnreachable, UnsupportedFeature
from duramen.client.answers import PASSING, failure
from duramen.client.cluster import BrokerCluster, RetryPatience, TopicPartition
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey

__all__ = ["EndedAt", "MarkedUpTo", "find_marked"]

_AT_ONCE: Final = 200  # partitions in a request


def find_marked(cluster: BrokerCluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, MarkedUpTo]:
    """The markers of each partition from an offset on, from its leader.

    Raises UnsupportedFeature if a broker does not support that, StreamNotFound, ServerUnreachable or the broker's
    error, once the timeout is over.
    """
    left, found, markers = dict(wanted), dict[TopicPartition, MarkedUpTo](), dict[TopicPartition, list[EndedAt]]()
    patience = RetryPatience(cluster.timeout_s)
    while left:
        error: DuramenError | None = None
        try:
            for node_id, ats in cluster.by_leader(islice(left, _AT_ONCE)).items():
                answer = cluster.node(node_id).request(ApiKey.DESCRIBE_PRODUCERS, _request(left, ats))
                error = _take(answer, left, markers, found) or error
        except ServerUnreachable as lost:
            error = lost
        if error is not None:
            cluster.forget({at.topic for at in left})
            patience.pause(error)
    return found


def _request(left: Mapping[TopicPartition, int], ats: list[TopicPartition]) -> Message:
    topics: dict[str, list[int]] = {}
    for at in ats:
        topics.setdefault(at.topic, []).append(at.partition)
    return {
        "topics": [
            {
                "name": name,
                "partition_indexes": partitions,
                "marked_from": [left[TopicPartition(name, partition)] for partition in partitions],
            }
            for name, partitions in topics.items()
        ]
    }


def _take(
    answer: Message,
    left: dict[TopicPartition, int],
    markers: dict[TopicPartition, list[EndedAt]],
    found: dict[TopicPartition, MarkedUpTo],
) -> DuramenError | None:
    """Process a response and remove finished partitions from `left`. Returns the error if a retry may help."""
    failed: DuramenError | None = None
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            at = TopicPartition(topic["name"], partition["partition_index"])
            code, marked = partition["error_code"], partition["marked"]
            if code != ErrorCode.NONE:
                failed = failure(code, f"the transactions of {at}", partition["error_message"])
                if code not in PASSING:
                    raise failed
            elif marked is None:
                raise UnsupportedFeature("the brokers do not say which transactions ended where")
            else:
                ended = markers.setdefault(at, [])
                ended += [EndedAt(**one) for one in marked["ended"]]
                left[at] = marked["next_offset"]
                if marked["next_offset"] >= marked["high_watermark"]:
                    unstable = [(one["producer_id"], one["first_offset"]) for one in marked["open"]]
                    found[at] = MarkedUpTo(marked["high_watermark"], unstable, ended)
                    del left[at]
    return failed
