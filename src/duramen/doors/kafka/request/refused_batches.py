"""Batches that the door refuses before a partition has seen them; later batches of their producers are refused too."""

from typing import Final

from duramen.base.errors import DuramenError
from duramen.broker.partition import Partition
from duramen.codec.batch import HEADER_BYTES, header
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.produce import ProduceRequest
from duramen.doors.kafka.request.context import Context
from duramen.service.resolve import Found, stream_in

__all__ = ["SENT_AGAIN", "note_all_refused", "note_refused", "out_of_order"]

SENT_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.CORRUPT_MESSAGE, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.THROTTLING_QUOTA_EXCEEDED, ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)  # fmt: skip
"""Kafka's retriable errors of Produce: its producers send a batch again."""


def note_refused(
    context: Context, name: str, index: int, partition: Partition | None, records: memoryview | None
) -> None:  # fmt: skip
    """A batch was refused that will be sent again. Its partition may not be there yet, or not any more."""
    if records is None or len(records) < HEADER_BYTES:
        return
    if partition is None or partition.stream.deleted:
        context.broker.refused.note((name, index), header(records))
    else:
        partition.note_refused(records)


def note_all_refused(context: Context, request: ProduceRequest) -> None:
    """Like `note_refused`, for every batch of a request."""

    def note(found: Found) -> None:
        for name, partitions in request.topics:
            stream = stream_in(found, name)
            there = [] if stream is None else stream.partitions
            for index, records in partitions:
                note_refused(context, name, index, there[index] if 0 <= index < len(there) else None, records)

    context.service.resolver.resolve([name for name, _ in request.topics], note)


def out_of_order(context: Context, name: str, index: int, records: memoryview) -> DuramenError | None:
    """Why a batch is not taken: one before it was refused when the partition was not there, and has not come again."""
    refused = context.broker.refused
    if not refused:
        return None
    head = header(records)
    try:
        refused.check((name, index), head)
    except DuramenError as error:
        return error
    refused.taken((name, index), head)
    return None
