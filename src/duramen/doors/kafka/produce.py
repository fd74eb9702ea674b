"""Produce."""

from functools import partial
from typing import Final

from duramen.base.errors import ConcurrentTransactions, DuramenError, TransactionAbortable
from duramen.broker.broker import Broker
from duramen.broker.partition import Admission, Partition
from duramen.codec.batch import CODEC_MASK, header
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.produce import (
    PartitionResponse,
    TopicResponse,
    decode_request,
)
from duramen.codec.kafka.produce import encode_response as encode_body
from duramen.doors.kafka.context import Context
from duramen.doors.kafka.errors import error_code
from duramen.doors.kafka.exchange import Exchange

__all__ = ["handle_produce"]

_ALL: Final = -1
_ACKS: Final = (0, 1, _ALL)
_FIRST_OF_THIS_FORMAT: Final = 3
_FIRST_WITH_ZSTD: Final = 7
_ZSTD: Final = 4
_ATTRIBUTES_END: Final = 23
_KNOWS_ABORTABLE: Final = 11
_JOINS: Final = 12  # from here on partitions join a transaction by being written to (KIP-890)
_NO_ANSWER: Final = PartitionResponse(-1, ErrorCode.UNKNOWN_SERVER_ERROR, -1)
_NO_BATCH: Final = memoryview(b"")


class _Pending:
    """A produce request whose batches are not all acknowledged yet."""

    __slots__ = ("_acks", "_broker", "_exchange", "_left", "_topics")

    def __init__(self, broker: Broker, exchange: Exchange, acks: int) -> None:
        self._broker = broker
        self._exchange = exchange
        self._acks = acks
        self._left = 1  # for the request itself, until all of it has been handed over
        self._topics: list[TopicResponse] = []

    def topic(self, name: str, partitions: int) -> list[PartitionResponse]:
        """Where the answers of this topic's `partitions` batches belong."""
        self._left += partitions
        places = [_NO_ANSWER] * partitions
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
            self.refuse(places, place, partition.index, _code(self._exchange.version, error), str(error))
            return
        # The broker has written its time into the batch where it is the one that counts.
        append_ms = header(batch).max_timestamp if partition.stream.append_time else -1
        places[place] = PartitionResponse(partition.index, 0, base_offset, append_ms, partition.log.start_offset)
        self.finish()

    def refuse(self, places: list[PartitionResponse], place: int, index: int, code: ErrorCode, message: str) -> None:
        """One partition's batch was not taken."""
        places[place] = PartitionResponse(index, code, -1, message=message)
        self._exchange.failed(code)
        self.finish()

    def finish(self) -> None:
        """One thing less to wait for; answer after the last."""
        self._left -= 1
        if self._left:
            return
        exchange = self._exchange
        exchange.throttle_ms = self._broker.produced(exchange.client_id, exchange.size)
        if self._acks == 0:
            exchange.send(None)
            return
        exchange.reply_body(encode_body(exchange.version, self._topics, exchange.throttle_ms))


def _code(version: int, error: DuramenError) -> ErrorCode:
    """The number for an error as the version has it."""
    if version < _JOINS and isinstance(error, ConcurrentTransactions):
        return ErrorCode.NOT_ENOUGH_REPLICAS  # which older clients take for a reason to send again
    if version < _KNOWS_ABORTABLE and isinstance(error, TransactionAbortable):
        return ErrorCode.INVALID_TXN_STATE
    return error_code(error)


def _codec(records: memoryview) -> int:
    """The compression of a batch that is not checked yet; none where it is too short to say."""
    return records[_ATTRIBUTES_END - 1] & CODEC_MASK if len(records) >= _ATTRIBUTES_END else 0


def handle_produce(context: Context, exchange: Exchange) -> None:
    """Append batches; answered once all of them are acknowledged as their streams' durability says."""
    request = decode_request(exchange.version, exchange.frame, exchange.header.end)
    exchange.decoded(sum(1 + len(partitions) for _, partitions in request.topics))
    pending = _Pending(context.broker, exchange, request.acks)
    find = context.broker.streams.find
    admit: Admission | None = None
    if request.transactional_id is not None:
        admit = context.broker.transactions.admission(request.transactional_id, joins=exchange.version >= _JOINS)
    for name, partitions in request.topics:
        places = pending.topic(name, len(partitions))
        stream = find(name)
        for place, (index, records) in enumerate(partitions):
            if stream is None or not 0 <= index < len(stream.partitions):
                code, why = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {index} of {name}"
            elif exchange.version < _FIRST_OF_THIS_FORMAT:
                code, why = ErrorCode.UNSUPPORTED_VERSION, "record batches v2 come with Produce 3 and newer"
            elif request.acks not in _ACKS:
                code, why = ErrorCode.INVALID_REQUIRED_ACKS, f"acks is 0, 1 or -1, not {request.acks}"
            elif request.acks == _ALL and stream.min_replicas > 1:
                code, why = ErrorCode.NOT_ENOUGH_REPLICAS, f"{name} wants {stream.min_replicas} replicas; there is one"
            elif exchange.version < _FIRST_WITH_ZSTD and records is not None and _codec(records) == _ZSTD:
                code, why = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd comes with Produce 7 and newer"
            elif stream.internal:
                code, why = ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is the broker's own"
            else:
                partition = stream.partitions[index]
                batch = records if records is not None else _NO_BATCH
                partition.append(batch, partial(pending.done, places, place, partition, batch), admit)
                continue
            pending.refuse(places, place, index, code, why)
    pending.finish()
