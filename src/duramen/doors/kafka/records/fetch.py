"""Fetch: whole batches go from the log to the socket, never decoded."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.errors import DuramenError, RequestInvalid, StreamNotFound
from duramen.base.ports import Buffer
from duramen.broker.fetch import FetchResult, FetchSource, LiveReader, PartitionFetch
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.fetch import (
    TOPIC_IDS,
    FetchPartition,
    FetchRequest,
    PartitionAnswer,
    ResponseHead,
    TopicAnswer,
    decode_request,
    encode_response,
)
from duramen.codec.kafka.header import has_response_tags
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.request.brokers import SAYS_LEADER, endpoints_of, leader_of
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.fetch_sessions import FINAL_EPOCH, NO_SESSION, Session, SessionFetch
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.service.resolve import ResolvedTopics
from duramen.storage.segment.reader import Slice

__all__ = ["decode", "handle_fetch", "names", "resolved_within_ms"]

_NO_TOPIC: Final = StreamNotFound("no such topic")
_NO_PARTITION: Final = StreamNotFound("no such partition")
_LARGE_REQUEST: Final = 1 << 20
_LARGE_WAIT_MS: Final = 500
_LEAST_RESOLUTION_MS: Final = 1_000
_LARGEST_ANSWER: Final = (1 << 31) - (1 << 20)
_new = tuple.__new__  # of a NamedTuple, without the call that its own takes


class _Begun(NamedTuple):
    """A request, and its meaning in its session."""

    request: FetchRequest
    turn: SessionFetch


def decode(context: Context, exchange: Exchange) -> None:
    """The request is one of a session, or alone. Raises RequestInvalid for a replica."""
    request = decode_request(exchange.version, exchange.frame, exchange.header.end)
    if request.replica_id >= 0:
        raise RequestInvalid(
            f"it fetches as the replica of node {request.replica_id}: nodes fetch from each other through"
            " --cluster-listen, never here"
        )
    turn = _turn(context, exchange, request)
    exchange.decoded(sum(1 + len(partitions) for _, partitions in turn.topics))
    exchange.request = _Begun(request, turn)


def names(needs: ApiNeeds) -> Sequence[str | UUID]:
    """The topics of the session as this request leaves it."""
    begun: _Begun = needs.request
    return [topic for topic, _ in begun.turn.topics]


def resolved_within_ms(needs: ApiNeeds) -> int:
    """The time to wait for names: the client's max_wait_ms, but at least a second."""
    begun: _Begun = needs.request
    return max(begun.request.max_wait_ms, _LEAST_RESOLUTION_MS)


def _missing(topics: ResolvedTopics, topic: str | UUID) -> DuramenError:
    error = topics.error(topic)
    return _NO_TOPIC if isinstance(error, StreamNotFound) else error


def handle_fetch(context: Context, exchange: Exchange) -> None:
    """Respond with the available records, at once or when there are enough."""
    begun: _Begun = exchange.request
    request, turn = begun
    if turn.error:
        _refuse(exchange, turn.error)
        return
    broker = context.broker
    isolation, topics = request.isolation_level, exchange.admitted
    wanted: list[PartitionFetch] = []
    rack_id = request.rack_id
    for topic, partitions in turn.topics:
        stream = topics.find(topic)
        light = None if stream is not None else topics.light(topic)
        known = [] if stream is None else stream.partitions
        count = len(known)
        is_live = stream is not None and stream.live_of is not None
        for index, offset, max_bytes, leader_epoch in partitions:
            if 0 <= index < count and not is_live:  # the usual case
                fetch = (known[index], offset, max_bytes, leader_epoch, None, isolation, rack_id, None)
                wanted.append(_new(PartitionFetch, fetch))
            elif light is not None and not index:
                wanted.append(PartitionFetch(light.source(leader_epoch), offset, max_bytes))
            elif stream is None or not 0 <= index < len(stream.partitions):
                missing = _missing(topics, topic) if stream is None and light is None else _NO_PARTITION
                wanted.append(PartitionFetch(None, offset, max_bytes, error=missing))
            else:
                wanted.append(
                    PartitionFetch(
                        known[index], offset, max_bytes, leader_epoch, isolation=isolation, rack_id=rack_id,
                        live=_live(context, exchange, stream, index, offset),
                    )
                )  # fmt: skip

    def done(fetched: list[FetchResult]) -> None:
        _answer(context, exchange, request, turn, wanted, fetched)

    largest = broker.quotas.largest_answer(exchange.client_id)
    exchange.abandoned = broker.fetches.fetch(
        wanted,
        min_bytes=request.min_bytes if largest is None else min(request.min_bytes, largest),
        max_bytes=min(
            request.max_bytes,
            broker.settings.integer("fetch.max.bytes"),
            _LARGEST_ANSWER if largest is None else largest,
        ),
        max_wait_ms=_wait_ms(exchange, request) if wanted else 0,
        done=done,
    ).cancel


def _live(context: Context, exchange: Exchange, topic: Stream, index: int, offset: int) -> LiveReader | None:
    stream, partition = topic.live_of, topic.partitions[index]
    if stream is None:
        return None
    view = context.broker.views.find(partition, stream)
    return context.broker.live.reader(stream, partition, view, exchange.channel, exchange.client_id, offset)


def _wait_ms(exchange: Exchange, request: FetchRequest) -> int:
    """The time that a request may wait; a large one waits less, because it holds memory of all requests."""
    return request.max_wait_ms if exchange.size < _LARGE_REQUEST else min(request.max_wait_ms, _LARGE_WAIT_MS)


def _turn(context: Context, exchange: Exchange, request: FetchRequest) -> SessionFetch:
    if request.session_id == NO_SESSION and request.session_epoch == FINAL_EPOCH:
        return SessionFetch(request.topics)
    by_ids = exchange.version >= TOPIC_IDS
    return context.sessions.begin(request, context.broker.monotonic_ms(), by_ids=by_ids)


def _refuse(exchange: Exchange, code: ErrorCode) -> None:
    exchange.failed(code)
    _send(exchange, ResponseHead(code), [], [])


def _answer(
    context: Context,
    exchange: Exchange,
    request: FetchRequest,
    turn: SessionFetch,
    wanted: list[PartitionFetch],
    fetched: list[FetchResult],
) -> None:
    if turn.overtaken:
        _refuse(exchange, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        return
    size = sum([found.size for found in fetched if found.slice is not None or found.made is not None])
    exchange.throttle_ms = context.broker.consumed(exchange.client_id, size) if size else 0
    if exchange.throttle_ms:
        # Nothing for now (KIP-219): the client asks again for the same.
        _send(exchange, ResponseHead(0, turn.session_id, exchange.throttle_ms), [], [])
        return
    exchange.throttle_ms = _throttle_ms(wanted, fetched)
    session = turn.session
    if turn.opens:
        now_ms = context.broker.monotonic_ms()
        session = context.sessions.open(request.topics, now_ms, by_ids=exchange.version >= TOPIC_IDS)
    topics, slices = _topics(context, exchange, request, turn, session, wanted, fetched)
    leaders = [answer.leader for _, answers in topics for answer in answers]
    session_id = NO_SESSION if session is None else session.id
    head = ResponseHead(0, session_id, exchange.throttle_ms, endpoints_of(context, leaders))
    _send(exchange, head, topics, slices)


def _throttle_ms(wanted: list[PartitionFetch], fetched: list[FetchResult]) -> int:
    """The throttle time of a fetch, by the quotas of the client."""
    made = [(one.partition, found.size) for one, found in zip(wanted, fetched, strict=True) if found.made]
    return max([source.given(size) for source, size in made if isinstance(source, FetchSource)], default=0)


def _topics(
    context: Context, exchange: Exchange, request: FetchRequest, turn: SessionFetch, session: Session | None,
    wanted: list[PartitionFetch], fetched: list[FetchResult],
) -> tuple[list[TopicAnswer], list[Buffer | Slice]]:  # fmt: skip
    topics: list[TopicAnswer] = []
    slices: list[Buffer | Slice] = []
    at = 0
    for topic, partitions in turn.topics:
        answers = []
        for partition in partitions:
            found, source = fetched[at], wanted[at].partition
            at += 1
            if (
                turn.session is not None
                and found.slice is None
                and found.made is None
                and found.error is None
                and found.preferred_replica < 0
                and turn.session.knows(topic, partition.partition, found.high_watermark, found.start_offset)
            ):
                continue
            size = found.size
            if found.slice is not None:
                slices.append(found.slice)
                if isinstance(source, Partition):
                    source.served(found.slice, partition.offset)
            elif found.made:
                exchange.weigh(size)
                slices.append(found.made)
                if isinstance(source, Partition):
                    source.stream.bytes_out.value += size
            code = ErrorCode.NONE if found.error is None else _code(topic, found.error)
            answer = _partition_answer(request, partition, code, found, size)
            if code in SAYS_LEADER and isinstance(source, Partition):
                answer = answer._replace(leader=leader_of(context, source))
            if code:
                exchange.failed(code)
            if session is None or session.tell(topic, answer) or turn.opens:
                answers.append(answer)
        if answers or session is None:
            topics.append(TopicAnswer(topic, answers))
    return topics, slices


def _partition_answer(
    request: FetchRequest, wanted: FetchPartition, code: ErrorCode, found: FetchResult, size: int
) -> PartitionAnswer:
    if code:
        # As in Apache Kafka without offsets: clients that need them use ListOffsets.
        return PartitionAnswer(wanted.partition, code, -1, -1, -1, 0, None)
    aborted = found.aborted if request.isolation_level == 1 else None
    return PartitionAnswer(
        wanted.partition, code, found.high_watermark, found.last_stable_offset, found.start_offset, size, aborted,
        found.preferred_replica,
    )  # fmt: skip


def _code(topic: str | UUID, error: DuramenError) -> ErrorCode:
    code = error_code(error)
    if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and isinstance(topic, UUID) and error is not _NO_PARTITION:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return code


def _send(exchange: Exchange, head: ResponseHead, topics: list[TopicAnswer], slices: Sequence[Buffer | Slice]) -> None:
    pieces = encode_response(exchange.version, topics, head)
    header = exchange.header
    tags = b"\0" if has_response_tags(ApiKey.FETCH, header.version) else b""
    size = 4 + len(tags) + sum(map(len, pieces)) + sum(map(len, slices))
    first = size.to_bytes(4, "big") + header.correlation_id.to_bytes(4, "big", signed=True) + tags + pieces[0]
    if not slices:
        exchange.send(first)
        return
    parts: list[Buffer | Slice] = [first]
    for slice_, piece in zip(slices, pieces[1:], strict=True):
        parts += (slice_, piece)
    exchange.reply_streamed(parts)
