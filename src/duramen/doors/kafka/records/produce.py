"""Produce."""

from collections.abc import Sequence
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadline
from duramen.base.errors import (
    BatchInvalid,
    ConcurrentTransactions,
    DuramenError,
    StreamNotFound,
    TimestampInvalid,
    TransactionAbortable,
)
from duramen.broker.partition import Admission, Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import CODEC_MASK, HEADER_BYTES, header
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.leaders import LeaderHint
from duramen.codec.kafka.produce import (
    PartitionData,
    PartitionResponse,
    ProduceRequest,
    TopicResponse,
    decode_request,
)
from duramen.codec.kafka.produce import encode_response as encode_body
from duramen.doors.kafka.request.brokers import SAYS_LEADER, endpoints_of, leader_of
from duramen.doors.kafka.request.context import Context
from duramen.doors.kafka.request.errors import error_code
from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.refused_batches import SENT_AGAIN, note_refused, out_of_order
from duramen.doors.kafka.request.rules import ApiNeeds
from duramen.service.light_topics import LightTopic
from duramen.service.resolve import ResolvedTopics

__all__ = ["PendingProduce", "decode", "handle_produce", "names", "transactional_ids"]

_ALL_REPLICAS: Final = -1
_ACKS: Final = (0, 1, _ALL_REPLICAS)
_FIRST_OF_THIS_FORMAT: Final = 3
_FIRST_WITH_ZSTD: Final = 7
_ZSTD: Final = 4
_MAGIC_AT: Final = 16
_MAGIC: Final = 2
_ATTRIBUTES_END: Final = 23
_KNOWS_ABORTABLE: Final = 11
_JOINS: Final = 12  # from here on partitions join a transaction by being written to (KIP-890)
_NO_ANSWER: Final = PartitionResponse(-1, ErrorCode.UNKNOWN_SERVER_ERROR, -1)
_TIMED_OUT: Final = PartitionResponse(-1, ErrorCode.REQUEST_TIMED_OUT, -1, message="not all replicas answered in time")
_NO_RECORDS: Final = (ErrorCode.INVALID_RECORD, "there is no record batch")


class PendingProduce:
    """A produce request whose batches are not all acknowledged yet."""

    __slots__ = (
        "_acks", "_context", "_deadline", "_exchange", "_leaders", "_left", "_places", "_topics", "throttle_ms",
    )  # fmt: skip

    def __init__(self, context: Context, exchange: Exchange, acks: int) -> None:
        self._context = context
        self._leaders: list[LeaderHint | None] = []  # those that the client does not know yet
        self._exchange = exchange
        self._acks = acks
        self._deadline: Deadline | None = None
        self._left = 1  # for the request itself, until all of it has been handed over
        self._places: list[list[PartitionResponse]] = []
        self._topics: list[TopicResponse] = []
        self.throttle_ms = 0
        """The throttle time of a produce request, by the quotas of the client."""

    def topic(self, name: str, partitions: int) -> list[PartitionResponse]:
        """The place for the results of this topic's `partitions` batches."""
        self._left += partitions
        places = [_NO_ANSWER] * partitions
        self._places.append(places)
        self._topics.append(TopicResponse(name, places))
        return places

    def done(
        self,
        places: list[PartitionResponse],
        place: int,
        partition: Partition,
        batch: memoryview,
        base_offset: int,
        error: DuramenError | None,
    ) -> None:
        """One partition's batch is acknowledged or refused."""
        if error is not None:
            wrong = error.records if isinstance(error, BatchInvalid | TimestampInvalid) else ()
            code = _code(self._exchange.version, error)
            if code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                note_refused(self._context, partition.stream.name, partition.index, partition, batch)
            leader = leader_of(self._context, partition) if code in SAYS_LEADER else None
            self._leaders.append(leader)
            why = PartitionResponse(partition.index, code, -1, -1, -1, str(error), wrong, leader)
            self.refuse(places, place, why)
            return
        # The broker has written its time into the batch where it is the one that counts.
        append_ms = header(batch).max_timestamp if partition.stream.append_time else -1
        places[place] = PartitionResponse(partition.index, 0, base_offset, append_ms, partition.log.start_offset)
        self.finish()

    def light_done(
        self, places: list[PartitionResponse], place: int, topic: LightTopic, base_offset: int,
        error: DuramenError | None,
    ) -> None:  # fmt: skip
        """Like `done`, for a light topic."""
        if error is None:
            append_ms = self._context.broker.now_ms() if topic.append_time else -1
            places[place] = PartitionResponse(0, 0, base_offset, append_ms, 0)
            self.finish()
            return
        wrong = error.records if isinstance(error, BatchInvalid | TimestampInvalid) else ()
        why = PartitionResponse(0, _code(self._exchange.version, error), -1, -1, -1, str(error), wrong)
        self.refuse(places, place, why)

    def refuse(self, places: list[PartitionResponse], place: int, why: PartitionResponse) -> None:
        """One partition's batch was not taken."""
        places[place] = why
        self._exchange.failed(why.error_code)
        self.finish()

    def give_up_in_time(self, request: ProduceRequest) -> None:
        """Batches that are not acknowledged within the request's timeout get an error; they may be stored later."""
        if self._left > 1:
            give_up = partial(self._give_up, request)
            self._deadline = self._context.broker.later(max(0, request.timeout_ms), give_up)

    def _give_up(self, request: ProduceRequest) -> None:
        for places, (_, partitions) in zip(self._places, request.topics, strict=True):
            for place, (index, _) in enumerate(partitions):
                if places[place] is _NO_ANSWER:
                    places[place] = _TIMED_OUT._replace(partition=index)
        self._exchange.failed(ErrorCode.REQUEST_TIMED_OUT)
        self._left = 1
        self.finish()

    def finish(self) -> None:
        """One thing less to wait for; answer after the last, once."""
        self._left -= 1
        if self._left:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        exchange = self._exchange
        throttle_ms = self._context.broker.produced(exchange.client_id, exchange.size)
        exchange.throttle_ms = max(throttle_ms, self.throttle_ms)
        if self._acks == 0:
            exchange.send(None)
            return
        endpoints = endpoints_of(self._context, self._leaders) if self._leaders else ()
        exchange.reply_body(encode_body(exchange.version, self._topics, exchange.throttle_ms, endpoints))


def _code(version: int, error: DuramenError) -> ErrorCode:
    """The number for an error as the version has it."""
    if version < _JOINS and isinstance(error, ConcurrentTransactions):
        return ErrorCode.NOT_ENOUGH_REPLICAS  # which older clients take for a reason to send again
    if version < _KNOWS_ABORTABLE and isinstance(error, TransactionAbortable):
        return ErrorCode.INVALID_TXN_STATE
    return error_code(error)


def _refusal(
    version: int, request: ProduceRequest, stream: Stream, index: int, records: memoryview | None
) -> tuple[ErrorCode, str] | None:
    """The error for any batch, whatever its content."""
    if not 0 <= index < len(stream.partitions):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {stream.name}"
    if stream.internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{stream.name} is the broker's own"
    return _bad_batch(version, request, records)


def _bad_batch(version: int, request: ProduceRequest, records: memoryview | None) -> tuple[ErrorCode, str] | None:
    """Why a batch is not taken, wherever it goes."""
    if version < _FIRST_OF_THIS_FORMAT:
        return ErrorCode.UNSUPPORTED_VERSION, "record batches v2 come with Produce 3 and newer"
    if request.acks not in _ACKS:
        return ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1, not {request.acks}"
    if records is None or len(records) < HEADER_BYTES:
        return _NO_RECORDS
    zstd = records[_MAGIC_AT] == _MAGIC and records[_ATTRIBUTES_END - 1] & CODEC_MASK == _ZSTD
    if zstd and version < _FIRST_WITH_ZSTD:
        return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd comes with Produce 7 and newer"
    return None


def _absence(topics: ResolvedTopics, name: str, index: int) -> tuple[ErrorCode, str]:
    """Why no batch for a topic is taken."""
    error = topics.error(name)
    if isinstance(error, StreamNotFound):
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {name}"
    return error_code(error), str(error)


def decode(context: Context, exchange: Exchange) -> None:
    """The request is a ProduceRequest."""
    del context
    request = decode_request(exchange.version, exchange.frame, exchange.header.end)
    exchange.decoded(sum([1 + len(partitions) for _, partitions in request.topics]))
    exchange.request = request


def names(needs: ApiNeeds) -> Sequence[str]:
    """The topics that are written to."""
    return [name for name, _ in needs.request.topics]


def transactional_ids(needs: ApiNeeds) -> Sequence[str]:
    """The transactional id in the request, if any."""
    id_ = needs.request.transactional_id
    return () if id_ is None else (id_,)


def _produce_light(
    context: Context, pending: PendingProduce, exchange: Exchange, topic: LightTopic,
    places: list[PartitionResponse], partitions: Sequence[PartitionData],
) -> None:  # fmt: skip
    request: ProduceRequest = exchange.request
    for place, (index, records) in enumerate(partitions):
        if index:
            refusal: tuple[ErrorCode, str] | None = (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {topic.name}"
            )  # fmt: skip
        else:
            refusal = _bad_batch(exchange.version, request, records)
        if records is None or refusal is not None:
            code, why = refusal or _NO_RECORDS
            pending.refuse(places, place, PartitionResponse(index, code, -1, message=why))
            continue
        pending.throttle_ms = max(pending.throttle_ms, topic.produced(len(records)))
        done = partial(pending.light_done, places, place, topic)
        gap = out_of_order(context, topic.name, index, records)
        if gap is not None:
            done(-1, gap)
            continue
        topic.append(records, done, all_replicas=request.acks == _ALL_REPLICAS)


def handle_produce(context: Context, exchange: Exchange) -> None:
    """Append batches; the response follows once all of them are acknowledged at their streams' durability."""
    request: ProduceRequest = exchange.request
    pending = PendingProduce(context, exchange, request.acks)
    topics = exchange.admitted
    admit: Admission | None = None
    if request.transactional_id is not None:
        admit = context.broker.transactions.admission(request.transactional_id, joins=exchange.version >= _JOINS)
    all_replicas = request.acks == _ALL_REPLICAS
    for name, partitions in request.topics:
        places = pending.topic(name, len(partitions))
        stream = topics.find(name)
        light = None if stream is not None else topics.light(name)
        if light is not None:
            _produce_light(context, pending, exchange, light, places, partitions)
            continue
        for place, (index, records) in enumerate(partitions):
            if stream is None:
                refusal: tuple[ErrorCode, str] | None = _absence(topics, name, index)
            else:
                refusal = _refusal(exchange.version, request, stream, index, records)
            if stream is None or records is None or refusal is not None:
                code, why = refusal or _NO_RECORDS
                if code in SENT_AGAIN:
                    there = (
                        None if stream is None or not 0 <= index < len(stream.partitions) else stream.partitions[index]
                    )
                    note_refused(context, name, index, there, records)
                pending.refuse(places, place, PartitionResponse(index, code, -1, message=why))
                continue
            partition = stream.partitions[index]
            done = partial(pending.done, places, place, partition, records)
            gap = out_of_order(context, name, index, records)
            if gap is not None:
                done(-1, gap)
                continue
            partition.append(records, done, admit, all_replicas=all_replicas)
    if all_replicas and context.broker.membership.nodes:
        pending.give_up_in_time(request)
    pending.finish()
