"""Messages on subjects of inventory namespaces become records of their light topics.

The wildcard of the subject stands for the topic's name. Bytes in flight are bounded; messages beyond that are refused.
Above a quota of their rate, acknowledgements are delayed; messages whose delay would be too long are refused.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.catalogue.inventory import PRODUCER_RATE
from duramen.base.errors import (
    BatchTooLarge,
    DuramenError,
    ExpectedStreamDiffers,
    NodeBusy,
    OffsetNotAvailable,
    ProduceRateExceeded,
    StreamNotFound,
    TopicNotFound,
    UnsupportedFeature,
)
from duramen.base.principal import ANONYMOUS
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import HEADER_BYTES
from duramen.codec.builder import RECORD_OVERHEAD_BYTES, BatchBuilder, encode_headers
from duramen.codec.jetstream import AckEncoder
from duramen.codec.nats import Message, encode_pub, parse_header_block
from duramen.codec.partitioner import partition_of
from duramen.coordinators.inventory.shard import INVENTORY_QUEUES, QUEUE_SPACES, queue_spaces
from duramen.coordinators.inventory.topics import BoundNamespace
from duramen.doors.nats.actions import PUBLISH
from duramen.doors.nats.answers import Answers
from duramen.doors.nats.headers import MESSAGE_ID_HEADER, SUBJECT_HEADER, special, text
from duramen.doors.nats.subjects import SubjectTree
from duramen.service.admission import Admitted, Service
from duramen.service.broker import Broker

__all__ = ["NamespaceCapture"]

_MESSAGE_OVERHEAD_BYTES: Final = 200  # the memory of a message under way beside its bytes
_LONGEST_DELAY_MS: Final = 2_000
"""Of an acknowledgement. Clients of JetStream wait for five seconds."""


class _Binding(NamedTuple):
    """A namespace, and how many bytes of a subject come before the name of the topic."""

    namespace: BoundNamespace
    skipped: int

    @property
    def label(self) -> str:
        return f"{self.namespace.tenant}/{self.namespace.name}"


class _TopicBatch:
    """Messages of one chunk for one topic. `topic` is its name for Kafka clients."""

    __slots__ = ("binding", "builder", "path", "replies", "size", "topic")

    def __init__(self, binding: _Binding, name: str) -> None:
        self.binding = binding
        self.topic = f"{binding.namespace.tenant}.{binding.namespace.name}.{name}"
        self.path = f"{binding.label}/{name}"
        self.builder = BatchBuilder()
        self.replies: list[bytes | None] = []
        self.size = 0


class _Space(NamedTuple):
    stream: Stream


class NamespaceCapture:
    """Namespaces with subjects, and the messages accepted for them that are not acknowledged yet."""

    def __init__(
        self, broker: Broker, service: Service, *, limit_bytes: int,
        soon: Callable[[Callable[[], None]], object], send: Callable[[bytes], None],
    ) -> None:  # fmt: skip
        """`send` is handed the answers of one turn in one piece."""
        self._broker = broker
        self._service = service
        self._limit_bytes = limit_bytes
        self._answers = Answers(soon, send)
        self.flush = self._answers.flush
        self._tree: SubjectTree[_Binding] = SubjectTree()
        self._namespaces: Sequence[BoundNamespace] = []
        self._held_bytes = 0
        self._waiting: dict[str, list[_TopicBatch]] = {}
        """Messages for topics that are being looked up, in order."""

        # Shards that this node leads, and whether they are ready. None: a standalone node, which accepts all messages.
        self._led: dict[Partition, bool] | None = None if broker.membership.first_role is None else {}
        self.subjects: tuple[bytes, ...] = ()
        """All that are bound."""
        self.on_idle: Callable[[], None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._held_bytes

    @property
    def largest_message(self) -> int:
        """The most bytes of one message that a topic could take."""
        space = self._broker.streams.find(INVENTORY_QUEUES)
        return 0 if space is None or not self.subjects else min(space.max_message_bytes, self._limit_bytes // 2)

    @property
    def spaces(self) -> list[Stream]:
        """The spaces with the records of topics."""
        return [*queue_spaces(self._broker.streams).values()]

    def bind(self, namespaces: Sequence[BoundNamespace]) -> bool:
        """These are bound from here on, and no others; whether that is something new."""
        if self._namespaces == namespaces:
            return False
        self._namespaces = namespaces
        self._tree, bound = SubjectTree(), list[bytes]()
        for namespace in namespaces:
            for subject in namespace.subjects:
                encoded = subject.encode()
                self._tree.bind(encoded, _Binding(namespace, len(encoded) - 1))
                bound.append(encoded)
        self.subjects = tuple(bound)
        return True

    # -- shards that are led, as of `MessageReceiver` ---------------------------------------------------------

    def streams(self) -> Iterable[_Space]:
        """The spaces with the records of topics."""
        return [_Space(space) for space in self.spaces if self.find(space) is not None]

    def find(self, stream: Stream) -> Stream | None:
        """Such a space, while namespaces are bound."""
        return stream if stream.name in QUEUE_SPACES.values() and self.subjects else None

    def lead(self, partition: Partition, *, ready: bool) -> None:
        """As of `MessageReceiver`."""
        if self._led is not None:
            self._led[partition] = ready

    def lead_no_more(self, partition: Partition) -> None:
        """As of `MessageReceiver`."""
        if self._led is not None:
            self._led.pop(partition, None)

    def _answers_for(self, topic: str) -> bool:
        """Whether this node responds to messages without a topic: one of all receiving nodes does."""
        space = self._broker.streams.find(INVENTORY_QUEUES)
        if self._led is None or space is None:
            return self._led is None
        return space.partition(partition_of(topic.encode(), space.shards)) in self._led

    # -- messages -----------------------------------------------------------------------------------

    def take(self, messages: Sequence[Message]) -> None:
        """Take in those messages of a chunk whose subjects are bound."""
        if not self.subjects:
            return
        room, batches = self.largest_message - HEADER_BYTES, dict[tuple[_Binding, str], _TopicBatch]()
        for subject, reply, block, payload in messages:
            for binding in self._tree.match(subject):
                name = subject[binding.skipped :].decode(errors="replace")
                batch = batches.get((binding, name)) or batches.setdefault((binding, name), _TopicBatch(binding, name))
                try:
                    key, headers = _headers(batch.topic, subject, block)
                    size = len(payload or b"") + len(headers) + len(key or b"") + RECORD_OVERHEAD_BYTES
                    if payload is None or size > room:
                        raise BatchTooLarge(f"a record of {batch.topic} has {room} bytes at most")
                    if self._held_bytes + size > self._limit_bytes:
                        raise NodeBusy(f"messages of {self._held_bytes} bytes are already in progress")
                except DuramenError as error:
                    if self._answers_for(batch.topic):
                        self._refuse(binding, [reply], batch.topic, error)
                    continue
                if batch.builder.count and batch.builder.size + size > room:
                    self._append(batch)
                    batch = batches[binding, name] = _TopicBatch(binding, name)
                batch.builder.add(key, payload, headers)
                batch.replies.append(reply)
                batch.size += size + _MESSAGE_OVERHEAD_BYTES
                self._held_bytes += size + _MESSAGE_OVERHEAD_BYTES
        for batch in batches.values():
            if batch.builder.count:
                self._append(batch)

    def _append(self, batch: _TopicBatch) -> None:
        waiting = self._waiting.get(batch.topic)
        if waiting is not None:
            waiting.append(batch)
        else:
            self._waiting[batch.topic] = []
            self._look_for(batch.topic, [batch])

    def _look_for(self, topic: str, batches: Sequence[_TopicBatch]) -> None:
        """Look for a topic, then take batches for it; those that come meanwhile are next."""

        def admitted(verdict: Admitted | DuramenError) -> None:
            for batch in batches:
                self._admitted(batch, verdict)
            following, self._waiting[topic] = self._waiting[topic], []
            if following:
                self._look_for(topic, following)
            else:
                del self._waiting[topic]

        self._service.admit(ANONYMOUS, PUBLISH, [topic], admitted)

    def _admitted(self, batch: _TopicBatch, verdict: Admitted | DuramenError) -> None:
        topic = None if isinstance(verdict, DuramenError) else verdict.topics.light(batch.topic)
        ready = True if self._led is None or topic is None else self._led.get(topic.partition)
        if ready is None or (topic is None and not self._answers_for(batch.topic)):
            self._release(batch)  # another node takes it, or answers
            return
        self._broker.metrics.counter("duramen_nats_messages_total", batch.binding.label).value += batch.builder.count
        if topic is None:
            error = verdict if isinstance(verdict, DuramenError) else verdict.topics.error(batch.topic)
            missing = isinstance(error, StreamNotFound)
            self._stored(batch, -1, TopicNotFound(f"there is no topic {batch.path}") if missing else error)
        elif topic.produce_wait_ms() > _LONGEST_DELAY_MS:
            quota = f"more is sent to {batch.path} than its quota allows ({PRODUCER_RATE})"
            self._stored(batch, -1, ProduceRateExceeded(quota))
        elif not ready:
            self._stored(batch, -1, OffsetNotAvailable("this node has just become leader of the topic: send it again"))
        else:
            sealed = batch.builder.seal(self._broker.now_ms())
            until_ms = self._broker.monotonic_ms() + min(topic.produced(len(sealed)), _LONGEST_DELAY_MS)
            topic.append(memoryview(sealed), partial(self._taken, batch, until_ms), all_replicas=True)

    def _taken(self, batch: _TopicBatch, until_ms: int, base_offset: int, error: DuramenError | None) -> None:
        """A batch is stored or has failed: respond to its publishers, not before a given time if it is stored."""
        delay_ms = until_ms - self._broker.monotonic_ms()
        if error is not None or delay_ms <= 0:
            self._stored(batch, base_offset, error)
        else:
            size = _MESSAGE_OVERHEAD_BYTES * len(batch.replies)
            self._held_bytes -= batch.size - size
            batch.size = size
            self._broker.later(delay_ms, partial(self._stored, batch, base_offset, None))

    def _release(self, batch: _TopicBatch) -> None:
        self._held_bytes -= batch.size
        if self.on_idle is not None and self.idle:
            self.on_idle()

    def _stored(self, batch: _TopicBatch, base_offset: int, error: DuramenError | None) -> None:
        if error is not None:
            self._refuse(batch.binding, batch.replies, batch.topic, error)
        else:
            encoder, count = AckEncoder(batch.topic, 0), 0
            for at, reply in enumerate(batch.replies):
                if reply is not None:
                    count += 1
                    self._answers.add(encode_pub(reply, encoder.encode(base_offset + at)))
            self._broker.metrics.counter("duramen_nats_acks_total", batch.binding.label).value += count
        self._release(batch)

    def _refuse(self, binding: _Binding, replies: Sequence[bytes | None], topic: str, error: DuramenError) -> None:
        self._broker.metrics.counter("duramen_nats_refused_total", binding.label, error.id).value += len(replies)
        self._answers.refuse(topic, replies, error)


def _headers(topic: str, subject: bytes, block: bytes | None) -> tuple[bytes | None, bytes]:
    """The key and the encoded headers of a record. Raises UnsupportedFeature, ExpectedStreamDiffers."""
    if block is None:
        return None, encode_headers([(SUBJECT_HEADER, subject)])
    headers = parse_header_block(block)
    key, message_id, expected, not_done = special(headers)
    if message_id:
        not_done = MESSAGE_ID_HEADER
    if not_done is not None:
        name = not_done.decode(errors="replace")
        raise UnsupportedFeature(f"the header {name} is not supported on topics of the inventory")
    if expected is not None and expected != topic.encode():
        raise ExpectedStreamDiffers(f"the subject leads to {topic}")
    return key, encode_headers([*((text(name), value) for name, value in headers), (SUBJECT_HEADER, subject)])
