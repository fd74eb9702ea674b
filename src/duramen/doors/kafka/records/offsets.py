"""ListOffsets and OffsetForLeaderEpoch: lookups of offsets."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final

from duramen.base.errors import DuramenError, StreamNotFound
from duramen.broker.offset_search import OffsetFound
from duramen.broker.partition import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP, Partition
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.gather import answer_partitions
from duramen.service.resolve import ResolvedTopics

__all__ = ["handle_list_offsets", "handle_offset_for_leader_epoch"]


_NEVER: Final = 1 << 15
# The first version that has each special timestamp.
_SINCE: Final[Mapping[int, int]] = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}


def handle_list_offsets(context: Context, exchange: Exchange) -> None:
    """Offsets by timestamp, or the first and the last."""
    del context
    blank = {"timestamp": -1, "offset": -1, "leader_epoch": -1}
    request = exchange.message()
    request["topics"], repeated = _distinct(request["topics"])
    begin = partial(
        _find, exchange.admitted.topics, exchange.version, repeated, committed=request["isolation_level"] == 1
    )
    answer_partitions(exchange, request, blank, begin)


def _distinct(topics: Sequence[Message]) -> tuple[list[Message], set[tuple[str, int]]]:
    """One entry per partition, and the repeated ones: as in Apache Kafka these get one response."""
    counts = Counter((topic["name"], one["partition_index"]) for topic in topics for one in topic["partitions"])
    repeated = {key for key, count in counts.items() if count > 1}
    if not repeated:
        return list(topics), repeated
    seen: set[tuple[str, int]] = set()
    distinct = []
    for topic in topics:
        kept = []
        for one in topic["partitions"]:
            key = topic["name"], one["partition_index"]
            if key not in seen:
                kept.append(one)
            seen.add(key)
        distinct.append({**topic, "partitions": kept})
    return distinct, repeated


def _find(
    topics: ResolvedTopics,
    version: int,
    repeated: Collection[tuple[str, int]],
    topic: str,
    wanted: Message,
    answer: Message,
    finish: Callable[[], None],
    *,
    committed: bool,
) -> None:
    timestamp = wanted["timestamp"]
    refused = ErrorCode.NONE
    if (topic, wanted["partition_index"]) in repeated:
        refused = ErrorCode.INVALID_REQUEST
    elif timestamp < 0 and version < _SINCE.get(timestamp, _NEVER):
        refused = ErrorCode.UNSUPPORTED_VERSION
    if refused:
        answer["error_code"] = refused
        finish()
        return
    light = topics.light(topic)
    try:
        partition = _partition(topics, topic, wanted["partition_index"])
        partition.check_leads()
        partition.check_epoch(wanted["current_leader_epoch"])
    except DuramenError as error:
        answer["error_code"] = error_code(error)
        finish()
        return
    if light is not None:
        light.find_offset(timestamp, partial(_found, partition, wanted, answer, finish))
        return
    if wanted["says_origin"]:  # only our own client requests that
        answer["created_ms"] = topics.get(topic).state.created_at_ms
        answer["start_moved_ms"] = partition.log.start_moved_ms
        answer["late_records"], answer["late_newest_ms"] = partition.log.late
    found = partial(_found, partition, wanted, answer, finish)
    if wanted["last_records"] < 0:
        partition.find_offset(timestamp, found, committed=committed)
    else:  # as above
        partition.find_last(wanted["last_records"], partial(_found_last, answer, found))


def _partition(topics: ResolvedTopics, topic: str, index: int) -> Partition:
    """The partition, of a light topic that in which it is kept. Raises StreamNotFound …"""
    light = topics.light(topic)
    if light is None:
        return topics.get(topic).partition(index)
    if index:
        raise StreamNotFound(f"{topic} has one partition, and no partition {index}")
    return light.partition


def _found_last(
    answer: Message,
    found: OffsetFound,
    offset: int,
    timestamp: int,
    error: DuramenError | OSError | None,
) -> None:
    answer["last_offset"] = offset
    found(offset, timestamp, error)


def _found(
    partition: Partition,
    wanted: Message,
    answer: Message,
    finish: Callable[[], None],
    offset: int,
    timestamp: int,
    error: DuramenError | OSError | None,
) -> None:
    answer["error_code"] = ErrorCode.KAFKA_STORAGE_ERROR if isinstance(error, OSError) else error_code(error)
    if error is None:
        answer["offset"] = offset
        answer["timestamp"] = timestamp
        if wanted["timestamp"] == LATEST:
            answer["leader_epoch"] = partition.leader_epoch
        elif offset >= 0:
            answer["leader_epoch"] = partition.log.takeovers.epoch_at(offset)
    finish()


def handle_offset_for_leader_epoch(context: Context, exchange: Exchange) -> None:
    """The ends of leader epochs, so that a consumer notices truncated records (KIP-320)."""
    del context
    topics = []
    named = exchange.admitted.topics
    for topic in exchange.message()["topics"]:
        answers = []
        for wanted in topic["partitions"]:
            answer = {"partition": wanted["partition"], "leader_epoch": -1, "end_offset": -1}
            try:
                partition = _partition(named, topic["topic"], wanted["partition"])
                partition.check_leads()
                partition.check_epoch(wanted["current_leader_epoch"])
                answer["leader_epoch"], answer["end_offset"] = partition.end_of_epoch(wanted["leader_epoch"])
            except StreamNotFound:
                answer["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            except DuramenError as error:
                answer["error_code"] = error_code(error)
            answers.append(answer)
        topics.append({"topic": topic["topic"], "partitions": answers})
    exchange.reply({"topics": topics})
