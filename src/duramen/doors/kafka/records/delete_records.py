"""DeleteRecords: deletes the oldest records of partitions up to an offset (KIP-107)."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.gather import answer_partitions
from duramen.service.resolve import ResolvedTopics

__all__ = ["handle_delete_records"]


def handle_delete_records(context: Context, exchange: Exchange) -> None:
    """Delete records; answered once all of it is durable."""
    del context
    answer_partitions(exchange, exchange.message(), {"low_watermark": -1}, partial(_delete, exchange.admitted.topics))


def _delete(topics: ResolvedTopics, topic: str, wanted: Message, answer: Message, finish: Callable[[], None]) -> None:
    def deleted(low_watermark: int, error: DuramenError | None) -> None:
        answer["low_watermark"], answer["error_code"] = low_watermark, error_code(error)
        finish()

    try:
        stream = topics.get(topic)
        partition = stream.partition(wanted["partition_index"])
    except DuramenError as error:
        deleted(-1, error)
        return
    if stream.internal:
        answer["error_code"] = ErrorCode.INVALID_TOPIC_EXCEPTION
        finish()
    else:
        partition.delete_before(wanted["offset"], deleted)
