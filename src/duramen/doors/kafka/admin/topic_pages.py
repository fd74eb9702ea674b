"""DescribeTopicPartitions: topics in the order of their names, a bounded number of partitions at once (KIP-966)."""

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Final

from duramen.broker.streams import Stream
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.admin.metadata import TOPIC_OPERATIONS, absence, absent
from duramen.doors.kafka.request.brokers import live_brokers, partition_answer
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.resolve import ResolvedTopics

__all__ = ["handle_describe_topic_partitions", "listed", "names"]

_DESCRIBE: Final = Access(Operation.DESCRIBE, ResourceType.TOPIC)


def names(needs: ApiNeeds) -> Sequence[str]:
    """The topics in the request."""
    return [topic["name"] for topic in needs.request["topics"]]


def listed(needs: ApiNeeds) -> Sequence[str]:
    """All topics, where none is named."""
    return () if needs.request["topics"] else [topic.name for topic in _from(needs.context, "")]


def _from(context: Context, first: str) -> Iterator[Stream]:
    live = [topic for topic in context.broker.streams.live_topics if topic.name >= first]
    return merge(context.service.resolver.from_name(first), live, key=lambda topic: topic.name)


def handle_describe_topic_partitions(context: Context, exchange: Exchange) -> None:
    """The requested topics, or all, from the cursor on; the response's cursor is the start of the next page."""
    request = exchange.message()
    broker, cursor = context.broker, request["cursor"]
    left = max(1, min(request["response_partition_limit"], broker.settings.integer("max.request.partition.size.limit")))
    topics = exchange.admitted.topics
    if request["topics"]:
        names = sorted({topic["name"] for topic in request["topics"]})
    else:
        later = _from(context, "" if cursor is None else cursor["topic_name"])
        allowed = (topic for topic in later if exchange.admitted.refusal(_DESCRIBE, topic.name) is None)
        page_of = {topic.name: topic for topic in islice(allowed, left + 1)}  # each has a partition at least
        topics, names = ResolvedTopics({topic.name: topic for topic in page_of.values()}, {}), list(page_of)
    first = 0
    if cursor is not None:
        names = [name for name in names if name >= cursor["topic_name"]]
        first = cursor["partition_index"]
        known = not request["topics"] or (bool(names) and names[0] == cursor["topic_name"])
        if first < 0 or not known:
            refused = [{"error_code": ErrorCode.INVALID_REQUEST, "name": topic["name"]} for topic in request["topics"]]
            exchange.reply({"topics": refused})
            return
        if names and names[0] != cursor["topic_name"]:
            first = 0  # the topic that the page before ended in is gone
    page, following = _page(context, topics, names, first, left)
    exchange.reply({"topics": page, "next_cursor": following})


def _page(
    context: Context, named: ResolvedTopics, names: Sequence[str], first: int, left: int
) -> tuple[list[Message], Message | None]:
    topics: list[Message] = []
    for name in names:
        if not left:
            return topics, {"topic_name": name, "partition_index": 0}
        stream = named.find(name)
        if stream is None:
            code = absence(named, name, absent(name))
            topics.append({"error_code": code, "name": name, "topic_authorized_operations": TOPIC_OPERATIONS})
            first = 0
            continue
        shown = list(_partitions(context, stream, first, left))
        topics.append(
            {
                "name": name,
                "topic_id": stream.id,
                "is_internal": stream.internal,
                "partitions": shown,
                "topic_authorized_operations": TOPIC_OPERATIONS,
            }
        )
        left -= len(shown)
        if first + len(shown) < len(stream.partitions):
            return topics, {"topic_name": name, "partition_index": first + len(shown)}
        first = 0
    return topics, None


def _partitions(context: Context, stream: Stream, first: int, count: int) -> Iterator[Message]:
    live = live_brokers(context)
    for partition in stream.partitions[first : first + count]:
        state = context.broker.membership.partition(partition.place)
        yield {
            **partition_answer(context, partition, live),
            "eligible_leader_replicas": state.elr,
            "last_known_elr": state.last_known_elr,
        }
