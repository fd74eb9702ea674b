"""Fetch: whole batches go from the log to the socket, never decoded."""

from typing import Final
from uuid import UUID

from duramen.base.errors import StreamNotFound
from duramen.base.ports import Buffer
from duramen.broker.fetching import Fetched, Wanted
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import FetchRequest, PartitionAnswer, TopicAnswer, decode_request, encode_response
from duramen.codec.kafka.header import has_response_tags
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.context import Context
from duramen.doors.kafka.errors import error_code
from duramen.doors.kafka.exchange import Exchange
from duramen.storage.reader import Slice

__all__ = ["handle_fetch"]

_NO_TOPIC: Final = StreamNotFound("no such topic")
_LARGE_REQUEST: Final = 1 << 20
_LARGE_WAIT_MS: Final = 500
_LARGEST_ANSWER: Final = (1 << 31) - (1 << 20)


def handle_fetch(context: Context, exchange: Exchange) -> None:
    """Answer with what there is, at once or as soon as there is enough.

    Sessions (KIP-227) are declined with the session id 0, which every client takes for an answer.
    """
    request = decode_request(exchange.version, exchange.frame, exchange.header.end)
    broker = context.broker
    isolation = request.isolation_level
    exchange.decoded(sum(1 + len(partitions) for _, partitions in request.topics))
    wanted: list[Wanted] = []
    for topic, partitions in request.topics:
        stream = broker.streams.find_id(topic) if isinstance(topic, UUID) else broker.streams.find(topic)
        for index, offset, max_bytes, leader_epoch in partitions:
            if stream is None or not 0 <= index < len(stream.partitions):
                wanted.append(Wanted(None, offset, max_bytes, error=_NO_TOPIC))
            else:
                wanted.append(Wanted(stream.partitions[index], offset, max_bytes, leader_epoch, isolation=isolation))

    def done(fetched: list[Fetched]) -> None:
        _answer(exchange, request, wanted, fetched)

    exchange.abandoned = broker.fetches.fetch(
        wanted,
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, broker.settings.integer("fetch.max.bytes"), _LARGEST_ANSWER),
        max_wait_ms=_wait_ms(exchange, request) if wanted else 0,
        done=done,
    ).cancel


def _wait_ms(exchange: Exchange, request: FetchRequest) -> int:
    """How long the request may wait: one that holds much of the memory for all requests not for long."""
    return request.max_wait_ms if exchange.size < _LARGE_REQUEST else min(request.max_wait_ms, _LARGE_WAIT_MS)


def _answer(exchange: Exchange, request: FetchRequest, wanted: list[Wanted], fetched: list[Fetched]) -> None:
    topics: list[TopicAnswer] = []
    slices: list[Slice] = []
    at = 0
    for topic, partitions in request.topics:
        answers = []
        for partition in partitions:
            found, source = fetched[at], wanted[at].partition
            at += 1
            size = 0
            if found.slice is not None:
                size = len(found.slice)
                slices.append(found.slice)
                if source is not None:
                    source.served(found.slice, partition.offset)
            code = error_code(found.error)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and isinstance(topic, UUID):
                code = ErrorCode.UNKNOWN_TOPIC_ID
            if code:
                exchange.failed(code)
            aborted = found.aborted if request.isolation_level == 1 else None
            answers.append(
                PartitionAnswer(
                    partition.partition, code, found.high_watermark, found.last_stable_offset, found.start_offset,
                    size, aborted,
                )
            )  # fmt: skip
        topics.append(TopicAnswer(topic, answers))
    pieces = encode_response(exchange.version, topics)
    header = exchange.header
    tags = b"\0" if has_response_tags(ApiKey.FETCH, header.version) else b""
    size = 4 + len(tags) + sum(map(len, pieces)) + sum(map(len, slices))
    head = size.to_bytes(4, "big") + header.correlation_id.to_bytes(4, "big", signed=True) + tags
    parts: list[Buffer | Slice] = [head + pieces[0]]
    for slice_, piece in zip(slices, pieces[1:], strict=True):
        parts += (slice_, piece)
    if slices:
        exchange.reply_streamed(parts)
    else:
        exchange.send(head + pieces[0])
