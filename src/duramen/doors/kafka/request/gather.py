"""Responses to requests with many parts: each part has its place, and the response is sent once all are there."""

from collections.abc import Callable, Mapping

from duramen.base.countdown import Countdown
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.request.exchange import Exchange

__all__ = ["Begin", "answer_partitions", "gather"]

Begin = Callable[[str, Message, Message, Callable[[], None]], None]
"""Gets a topic, the request for a partition, its response to be filled in, and a callback for its end."""


def answer_partitions(exchange: Exchange, request: Message, blank: Mapping[str, object], begin: Begin) -> None:
    """Answer a request for partitions of topics: a `blank` result for each, which `begin` fills in."""
    topics = [
        {
            "name": topic["name"],
            "partitions": [
                {"partition_index": partition["partition_index"], **blank} for partition in topic["partitions"]
            ],
        }
        for topic in request["topics"]
    ]
    parts = Countdown(lambda: exchange.reply({"topics": topics}))
    for topic, answers in zip(request["topics"], topics, strict=True):
        for wanted, answer in zip(topic["partitions"], answers["partitions"], strict=True):
            parts.add()
            begin(topic["name"], wanted, answer, parts.count_down)
    parts.count_down()


def gather(count: int, reply: Callable[[list[Message]], None]) -> Callable[[int, Message], None]:
    """Collects `count` results by place, then replies with them."""
    results: dict[int, Message] = {}
    if not count:
        reply([])

    def put(at: int, result: Message) -> None:
        results[at] = result
        if len(results) == count:
            reply([results[index] for index in range(count)])

    return put
