"""ListOffsets and OffsetForLeaderEpoch: where records lie."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError, StreamNotFound, VersionTooOld
from duramen.broker.partition import LATEST, LATEST_TIERED, Partition
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.context import Context
from duramen.doors.kafka.errors import error_code
from duramen.doors.kafka.exchange import Exchange
from duramen.doors.kafka.gathering import answer_partitions

__all__ = ["handle_list_offsets", "handle_offset_for_leader_epoch"]


def _partition(context: Context, topic: str, index: int) -> Partition:
    return context.broker.streams.get(topic).partition(index)


def handle_list_offsets(context: Context, exchange: Exchange) -> None:
    """Offsets by timestamp, or the first and the last."""
    blank = {"timestamp": -1, "offset": -1, "leader_epoch": -1}
    request = exchange.message()
    answer_partitions(exchange, request, blank, partial(_find, context, committed=request["isolation_level"] == 1))


def _find(
    context: Context, topic: str, wanted: Message, answer: Message, finish: Callable[[], None], *, committed: bool
) -> None:
    try:
        partition = _partition(context, topic, wanted["partition_index"])
        partition.check_epoch(wanted["current_leader_epoch"])
        if wanted["timestamp"] < LATEST_TIERED:
            raise VersionTooOld(f"no version has the timestamp {wanted['timestamp']}")
    except DuramenError as error:
        answer["error_code"] = error_code(error)
        finish()
        return
    found = partial(_found, partition, wanted, answer, finish)
    partition.find_offset(wanted["timestamp"], found, committed=committed)


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
    """Where leader epochs end, so that a consumer notices that what it has read was cut (KIP-320)."""
    topics = []
    for topic in exchange.message()["topics"]:
        answers = []
        for wanted in topic["partitions"]:
            answer = {"partition": wanted["partition"], "leader_epoch": -1, "end_offset": -1}
            try:
                partition = _partition(context, topic["topic"], wanted["partition"])
                partition.check_epoch(wanted["current_leader_epoch"])
                answer["leader_epoch"], answer["end_offset"] = partition.end_of_epoch(wanted["leader_epoch"])
            except StreamNotFound:
                answer["error_code"] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            except DuramenError as error:
                answer["error_code"] = error_code(error)
            answers.append(answer)
        topics.append({"topic": topic["topic"], "partitions": answers})
    exchange.reply({"topics": topics})
