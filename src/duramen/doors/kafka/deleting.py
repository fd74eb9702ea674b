"""DeleteRecords: the oldest records of partitions go, up to an offset (KIP-107)."""

from collections.abc import Callable

from duramen.base.errors import DuramenError
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.context import Context
from duramen.doors.kafka.errors import error_code
from duramen.doors.kafka.exchange import Exchange

__all__ = ["handle_delete_records"]


def handle_delete_records(context: Context, exchange: Exchange) -> None:
    """Delete records; answered once all of it is durable."""
    request = exchange.message()
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                {"partition_index": partition["partition_index"], "low_watermark": -1}
                for partition in topic["partitions"]
            ],
        }
        for topic in request["topics"]
    ]
    left = 1

    def finish() -> None:
        nonlocal left
        left -= 1
        if not left:
            exchange.reply({"topics": topics})

    for topic, answers in zip(request["topics"], topics, strict=True):
        for wanted, answer in zip(topic["partitions"], answers["partitions"], strict=True):
            left += 1
            _delete(context, topic["name"], wanted, answer, finish)
    finish()


def _delete(context: Context, topic: str, wanted: Message, answer: Message, finish: Callable[[], None]) -> None:
    def deleted(low_watermark: int, error: DuramenError | None) -> None:
        answer["low_watermark"], answer["error_code"] = low_watermark, error_code(error)
        finish()

    try:
        stream = context.broker.streams.get(topic)
        partition = stream.partition(wanted["partition_index"])
    except DuramenError as error:
        deleted(-1, error)
        return
    if stream.internal:
        answer["error_code"] = ErrorCode.INVALID_TOPIC_EXCEPTION
        finish()
    else:
        partition.delete_before(wanted["offset"], deleted)
