"""An idempotent producer: each batch is stored once and in order, however often it is sent.

Records collect in one open batch per partition. Full batches leave in requests with at most one batch per partition,
with a few requests in flight. The first batch of a partition is acknowledged before others follow, because a broker
that does not know a producer may accept any sequence. After a retriable failure the producer awaits the other
responses, and resends everything unacknowledged with the same sequences: the broker recognises batches that it has
stored. That holds for the life of one Producer; a new one has another id, so records that its user repeats after a
crash are stored again.
"""

import contextlib
import random
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Literal, NamedTuple, Self

from duramen.base.errors import DuramenError, RequestTimedOut, ServerUnreachable, StreamNotFound
from duramen.client.answers import PASSING, failure
from duramen.client.cluster import BrokerCluster, RetryPatience, TopicPartition
from duramen.client.connection import BrokerConnection
from duramen.client.pending_batches import OpenBatch, SealedBatch, SequenceRange, largest_size
from duramen.codec.batch import Headers, set_producer
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.produce import PartitionData, ProduceRequest, TopicData, decode_response, encode_request
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.codec.partitioner import partition_of
from duramen.codec.sequences import SEQUENCES

__all__ = ["OpenTransaction", "Producer"]

_REQUESTS_AHEAD: Final = 5  # the broker remembers the last five batches of a producer and partition
_MAYBE_STORED: Final = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
_BATCH_BYTES: Final = 512 * 1024


class OpenTransaction(NamedTuple):
    """The transaction of a producer: transactional id, producer id and epoch. Another component ends it."""

    id: str
    producer_id: int
    producer_epoch: int


class _Request:
    """A request whose answer is awaited."""

    __slots__ = ("batches", "connection", "sent")

    def __init__(self, connection: BrokerConnection, sent: int, batches: list[SealedBatch]) -> None:
        self.connection = connection
        self.sent = sent
        self.batches = batches


class Producer:
    """Writes to any partitions of a cluster. `flush` (or leaving the `with` block) waits until all is acknowledged."""

    def __init__(
        self,
        cluster: BrokerCluster,
        *,
        codec: int = 0,
        batch_bytes: int = _BATCH_BYTES,
        acks: Literal[-1, 0, 1] = -1,
        on_stored: Callable[[SequenceRange, int], None] | None = None,
        transaction: OpenTransaction | None = None,
    ) -> None:
        """`codec` is a compression codec's number; a batch is sent when it has `batch_bytes` before compression.

        `acks` is Kafka's, -1 for all. With 0 nothing is retried, and `sent` counts records sent to a broker that still
        responded afterwards. `on_stored` is called with acknowledged records and the offset of the first, -1 if
        unknown. In a `transaction` nothing is visible before the commit.
        """
        self._cluster = cluster
        self._acks = acks
        self._codec = codec
        self._batch_bytes = batch_bytes
        self._on_stored = on_stored
        self._transaction = transaction
        self._producer_id = -1 if transaction is None else transaction.producer_id
        self._producer_epoch = -1 if transaction is None else transaction.producer_epoch
        self._open: dict[TopicPartition, OpenBatch] = {}
        self._sequences: dict[TopicPartition, int] = {}
        self._batches: dict[TopicPartition, deque[SealedBatch]] = {}  # sealed and not acknowledged, in order
        self._begun: set[TopicPartition] = set()  # those of which a batch is acknowledged
        self._requests: deque[_Request] = deque()
        self._failed: DuramenError | None = None
        self._unsettled: dict[BrokerConnection, int] = {}
        self._sticky: dict[str, int] = {}
        self.acknowledged = 0
        """The number of stored records."""
        self.sent = 0
        """With acks=0: the number of sent records."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()

    @property
    def unacknowledged(self) -> int:
        """The number of records without an acknowledgement."""
        return sum(batch.count for batch in self._open.values()) + sum(
            batch.count for waiting in self._batches.values() for batch in waiting
        )

    @property
    def in_doubt(self) -> int:
        """The number of those that were sent, and may be stored."""
        return sum(stretch.records for stretch in self.uncertain())

    # -- records ------------------------------------------------------------------------------------

    def partition(self, topic: str, key: bytes | None) -> int:
        """The partition of a key, as every Kafka client has it; without a key, one that changes batch by batch.

        Raises StreamNotFound or ServerUnreachable.
        """
        count = len(self._cluster.topic(topic).leaders)
        if key is not None:
            return partition_of(key, count)
        chosen = self._sticky.get(topic)
        if chosen is None or chosen >= count:
            chosen = self._sticky[topic] = random.randrange(count)
        return chosen

    def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Add a record. It may be sent now or later; errors of earlier ones are raised here or by `flush`.

        Raises StreamNotFound, ServerUnreachable, RequestTimedOut, BatchTooLarge …
        """
        at = TopicPartition(topic, self.partition(topic, key) if partition is None else partition)
        batch = self._open.get(at)
        timestamp = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
        if batch is not None and (
            batch.size + largest_size(key, value, headers) > self._batch_bytes or not batch.takes(timestamp)
        ):
            self._close_batch(at)
            batch = None
        if batch is None:
            batch = self._open_batch(at)
        batch.add(timestamp, key, value, headers)
        if batch.size >= self._batch_bytes:
            self._close_batch(at)

    def put(self, at: TopicPartition, data: bytearray, count: int) -> None:
        """Add an encoded batch of `count` records after the present ones of its partition.

        The producer owns the batch from then on. Raises as `produce`; acks must not be 0.
        """
        if at in self._open:
            self._seal(at)
        elif self._producer_id < 0:
            self._init_producer_id()
        self._check(at)
        set_producer(
            data, self._producer_id, self._producer_epoch, self._next(at, count),
            transactional=self._transaction is not None,
        )  # fmt: skip
        self._batches.setdefault(at, deque()).append(SealedBatch(at, data, count))
        self._send_ready()

    def _next(self, at: TopicPartition, count: int) -> int:
        """The sequence of the next `count` records."""
        sequence = self._sequences.get(at, 0)
        self._sequences[at] = (sequence + count) % SEQUENCES
        return sequence

    def _close_batch(self, at: TopicPartition) -> None:
        self._seal(at)
        self._send_ready()

    def _open_batch(self, at: TopicPartition) -> OpenBatch:
        self._check(at)
        batch = self._open[at] = OpenBatch()
        return batch

    def _check(self, at: TopicPartition) -> None:
        if at.partition not in self._cluster.topic(at.topic).leaders:
            raise StreamNotFound(f"stream {at.topic} has no partition {at.partition}")

    def _seal(self, at: TopicPartition) -> None:
        if self._open[at].count and self._producer_id < 0 and self._acks:
            self._init_producer_id()  # may raise: the records are still there for the next attempt
        gathered = self._open.pop(at)
        if self._sticky.get(at.topic) == at.partition:
            del self._sticky[at.topic]
        if not gathered.count:
            return
        sequence = self._next(at, gathered.count) if self._acks else -1
        data = gathered.seal(
            self._codec, transactional=self._transaction is not None, producer_id=self._producer_id,
            producer_epoch=self._producer_epoch, sequence=sequence,
        )  # fmt: skip
        self._batches.setdefault(at, deque()).append(SealedBatch(at, data, gathered.count))

    def _init_producer_id(self) -> None:
        patience = RetryPatience(self._cluster.timeout_s)
        asked: Message = {"transactional_id": None, "transaction_timeout_ms": 60_000}
        while True:
            answer = self._cluster.ask(ApiKey.INIT_PRODUCER_ID, asked)
            code = answer["error_code"]
            if code == ErrorCode.NONE:
                self._producer_id, self._producer_epoch = answer["producer_id"], answer["producer_epoch"]
                return
            error = failure(code, "a producer id")
            if code not in PASSING:
                raise error
            patience.pause(error)

    # -- outcomes -----------------------------------------------------------------------------------

    def next_sequence(self, at: TopicPartition) -> int:
        """The sequence of the next record of a partition, once everything is flushed."""
        return self._sequences.get(at, 0)

    def uncertain(self) -> list[SequenceRange]:
        """After an error: records that were sent and neither acknowledged nor refused. They may be stored."""
        return [batch.stretch for waiting in self._batches.values() for batch in waiting if batch.tries]

    # -- sending ------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Send everything and wait until it is acknowledged. Raises as `produce`."""
        for at in list(self._open):
            self._seal(at)
        while self._batches:
            self._send_ready()
            self._receive()
        self._settle()

    def _settle(self) -> None:
        """With acks=0: wait until the brokers have read everything, which their response to another request shows."""
        unsettled, self._unsettled = self._unsettled, {}
        for connection, count in unsettled.items():
            try:
                connection.request(ApiKey.METADATA, {"topics": [], "allow_auto_topic_creation": False})
            except ServerUnreachable as error:
                raise self._fail(error) from None
            self.sent += count

    def _send_ready(self) -> None:
        """Send sealed batches, waiting if enough are in flight. Raises as `produce`."""
        if self._failed is not None:
            raise self._failed
        while (ready := self._ready()) or self._awaits_a_first():
            if not ready or len(self._requests) >= _REQUESTS_AHEAD:
                self._receive()
                continue
            try:
                for node_id, ats in self._cluster.by_leader(ready).items():
                    self._send(self._cluster.node(node_id), [ready[at] for at in ats])
            except ServerUnreachable as error:
                self._recover(error)

    def _ready(self) -> dict[TopicPartition, SealedBatch]:
        """The first batch of each partition that is not under way; none behind its very first."""
        ready = {}
        for at, waiting in self._batches.items():
            if at not in self._begun and waiting[0].sent:
                continue
            for batch in waiting:
                if not batch.sent:
                    ready[at] = batch
                    break
        return ready

    def _awaits_a_first(self) -> bool:
        """Whether something waits for the very first batch of its partition to be acknowledged."""
        return bool(self._requests) and any(
            len(waiting) > 1 and at not in self._begun and waiting[0].sent for at, waiting in self._batches.items()
        )

    def _send(self, connection: BrokerConnection, batches: list[SealedBatch]) -> None:
        topics: dict[str, list[PartitionData]] = {}
        for batch in batches:
            topics.setdefault(batch.at.topic, []).append(PartitionData(batch.at.partition, memoryview(batch.data)))
        request = ProduceRequest(
            None if self._transaction is None else self._transaction.id,
            self._acks,
            int(1000 * self._cluster.timeout_s),
            [TopicData(name, data) for name, data in topics.items()],
        )
        for batch in batches:
            batch.sent = True
            batch.tries += 1
        body = encode_request(connection.version(ApiKey.PRODUCE), request)
        if not self._acks:
            connection.send(ApiKey.PRODUCE, body, answered=False)
            for batch in batches:
                self._unsettled[connection] = self._unsettled.get(connection, 0) + batch.count
                self._remove(batch)
            return
        self._requests.append(_Request(connection, connection.send(ApiKey.PRODUCE, body), batches))

    def _receive(self) -> None:
        """Take the answer of the oldest request. Raises as `produce`."""
        if not self._requests:
            return
        error = self._take(self._requests.popleft())
        if error is not None:
            self._recover(error)

    def _take(self, request: _Request) -> DuramenError | None:
        """Process acknowledgements; returns the reason to resend the rest. Raises permanent errors."""
        try:
            version, frame, start = request.connection.receive(request.sent, wait_s=self._cluster.timeout_s)
        except ServerUnreachable as error:
            return error
        by_place = {batch.at: batch for batch in request.batches}
        passing: DuramenError | None = None
        failed: DuramenError | None = None
        for topic in decode_response(version, frame, start):
            for answer in topic.partitions:
                batch = by_place[TopicPartition(topic.name, answer.partition)]
                code = answer.error_code
                if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                    self._acknowledge(batch, answer.base_offset)
                    continue
                refused = failure(code, f"writing to {batch.at}", answer.message)
                # After a batch that failed for the moment, those behind it are out of order: not their fault.
                follows = code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._batches[batch.at][0] is not batch
                batch.tries -= code not in _MAYBE_STORED
                if code not in PASSING and not follows:
                    failed = failed or refused
                passing = refused
        if failed is not None:
            raise self._fail(failed)
        return passing

    def _acknowledge(self, batch: SealedBatch, base_offset: int) -> None:
        self._remove(batch)
        self._begun.add(batch.at)
        self.acknowledged += batch.count
        if self._on_stored is not None:
            self._on_stored(batch.stretch, base_offset)

    def _remove(self, batch: SealedBatch) -> None:
        waiting = self._batches[batch.at]
        waiting.remove(batch)
        if not waiting:
            del self._batches[batch.at]

    def _fail(self, error: DuramenError) -> DuramenError:
        if self._failed is None:
            self._failed = error
        while self._requests:
            # What became of the others decides what the user is told; a further error says nothing new.
            with contextlib.suppress(DuramenError):
                self._take(self._requests.popleft())
        return error

    def _recover(self, error: DuramenError) -> None:
        """Resend unacknowledged batches with the same sequences until nothing fails. Raises as `produce`."""
        if not self._acks:
            raise self._fail(error)
        patience = RetryPatience(2 * self._cluster.timeout_s)
        why: DuramenError | None = error
        while why is not None:
            self._await_answers()
            if patience.left_s <= 0:
                raise self._fail(self._gave_up(why))
            patience.pause()
            self._cluster.forget({at.topic for at in self._batches})
            why = self._send_again()

    def _send_again(self) -> DuramenError | None:
        """Send the first batch of each partition and take the answers; returns why that has to be done once more."""
        first = {at: waiting[0] for at, waiting in self._batches.items()}
        try:
            for node_id, ats in self._cluster.by_leader(first).items():
                self._send(self._cluster.node(node_id), [first[at] for at in ats])
        except ServerUnreachable as error:
            return error
        return self._await_answers()

    def _await_answers(self) -> DuramenError | None:
        """Take every answer that is still to come; returns why something has to be sent again."""
        error: DuramenError | None = None
        while self._requests:
            error = self._take(self._requests.popleft()) or error
        for waiting in self._batches.values():
            for batch in waiting:
                batch.sent = False
        return error

    def _gave_up(self, error: DuramenError) -> DuramenError:
        left = sum(batch.count for waiting in self._batches.values() for batch in waiting)
        return RequestTimedOut(f"{left} records are not acknowledged: {error}")
