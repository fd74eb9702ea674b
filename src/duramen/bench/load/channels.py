"""The protocol side of a load generator's connection: a frame ready to send, and acknowledgements.

The frame is made once and sent repeatedly, so that the broker is measured and not the encoder; for an idempotent
producer, the sequence is changed each time. Kafka's responses to the
same frame look alike: the first is decoded in full, in the others only the fields that can differ. Bytes in, counts
out; nothing here touches a socket.
"""

import os
import time
from collections.abc import Iterable, Sequence
from itertools import cycle, islice
from typing import Any, Final, Protocol
from uuid import UUID

from duramen.base.errors import RequestInvalid
from duramen.codec.batch import BatchInput, encode, set_producer
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.header import encode_request, response_body_start
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.produce import (
    PartitionData,
    ProduceRequest,
    TopicData,
    decode_response,
)
from duramen.codec.kafka.produce import encode_request as encode_produce
from duramen.codec.kafka.versions import ApiKey
from duramen.codec.nats import Parser, ServerError, Signal, encode_pub
from duramen.codec.varint import encode_uvarint

__all__ = ["IdempotentChannel", "KafkaChannel", "LoadChannel", "MetadataChannel", "NatsChannel"]

_CLIENT_ID: Final = "duramen-bench"
_ALL: Final = -1
_TIMEOUT_MS: Final = 30_000
_PARTITION_BYTES: Final = 33  # of an answer without an error: numbers (30), no record errors, no message, no tags
_LARGEST_SEQUENCE: Final = 0x7FFFFFFF
_PONG: Final = b"PONG\r\n"
_NULL_ID: Final = UUID(int=0)
_CHECKED_EVERY: Final = 50


class LoadChannel(Protocol):
    """One side of a connection: what to send for a message, and what answers mean."""

    reply: bytes
    """What has to be sent back besides (a PONG); whoever sends it sets it to nothing again."""

    def frames(self, count: int) -> bytes:
        """What to send for so many messages; all of it is sent, once."""
        ...

    def take(self, data: bytes) -> int:
        """How many messages these bytes acknowledge. Raises RequestInvalid where one was refused."""
        ...


class KafkaChannel:
    """Produce requests with one record for each of some partitions of a topic, acks=all."""

    def __init__(self, version: int, topic: str, value_bytes: int, partitions: Sequence[int] = (0,)) -> None:
        record = BatchInput(int(1000 * time.time()), None, os.urandom(value_bytes))
        batch = memoryview(encode([record]))
        data = [PartitionData(index, batch) for index in partitions]
        request = ProduceRequest(None, _ALL, _TIMEOUT_MS, [TopicData(topic, data)])
        body = b"".join(encode_produce(version, request))
        self.frame = encode_request(ApiKey.PRODUCE, version, 1, _CLIENT_ID, body)
        self.reply = b""
        self._version = version
        self._batch_start = self.frame.index(batch)
        self._batch_bytes = len(batch)
        self._held = b""
        self._answer_bytes = 0
        self._partitions = len(partitions)
        # In an answer: size, correlation id, tags, one topic with its name, a count; then index and error of each.
        name_bytes = len(topic.encode())
        before = (
            4 + 4 + 1 + 1 + len(encode_uvarint(name_bytes + 1)) + name_bytes + len(encode_uvarint(len(partitions) + 1))
        )
        self._errors = [before + _PARTITION_BYTES * index + 4 for index in range(len(partitions))]

    def frames(self, count: int) -> bytes:
        return self.frame * count

    def take(self, data: bytes) -> int:
        if self._held:
            data = self._held + data
        size = self._answer_bytes or self._learn(data)
        position, end, count = 0, len(data), 0
        while size and position + size <= end:
            for error in self._errors:
                if data[position + error] or data[position + error + 1]:
                    self._check(data[position:])
            position += size
            count += 1
        self._held = data[position:]
        return count

    def _learn(self, data: bytes) -> int:
        """The size of an answer with its size field, once the first is here and without an error; else 0."""
        if len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4], "big"):
            return 0
        self._check(data)
        self._answer_bytes = 4 + int.from_bytes(data[:4], "big")
        return self._answer_bytes

    def _check(self, data: bytes) -> None:
        frame = memoryview(data)[4 : 4 + int.from_bytes(data[:4], "big")]
        for topic in decode_response(self._version, frame, response_body_start(ApiKey.PRODUCE, self._version, frame)):
            for answer in topic.partitions:
                if answer.error_code:
                    raise RequestInvalid(
                        f"a record was refused: {_error_name(answer.error_code)} {answer.message or ''}"
                    )
            if len(topic.partitions) != self._partitions:
                raise RequestInvalid(f"{self._partitions} partitions were written, {len(topic.partitions)} answered")


class IdempotentChannel(KafkaChannel):
    """Such requests of an idempotent producer, to one partition."""

    def __init__(self, version: int, topic: str, value_bytes: int, producer_id: int, partition: int = 0) -> None:
        super().__init__(version, topic, value_bytes, (partition,))
        self._next = bytearray(self.frame)
        self._batch = memoryview(self._next)[self._batch_start : self._batch_start + self._batch_bytes]
        self._producer_id = producer_id
        self._sequence = 0

    def frames(self, count: int) -> bytes:
        found = []
        for _ in range(count):
            set_producer(self._batch, self._producer_id, 0, self._sequence, transactional=False)
            self._sequence = self._sequence + 1 & _LARGEST_SEQUENCE
            found.append(bytes(self._next))
        return b"".join(found)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


class MetadataChannel:
    """Metadata requests, each for the next names of `requests`, which start again after the last."""

    def __init__(self, version: int, requests: Iterable[Sequence[str]]) -> None:
        schema, options = REQUESTS[ApiKey.METADATA], {"allow_auto_topic_creation": False}
        bodies = [
            schema.encode(version, {**options, "topics": [{"name": name, "topic_id": _NULL_ID} for name in names]})
            for names in requests
        ]
        self._frames = cycle([encode_request(ApiKey.METADATA, version, 1, _CLIENT_ID, body) for body in bodies])
        self.reply = b""
        self._version = version
        self._held = bytearray()
        self._taken = 0
        self._kept = list[bytes]()

    def frames(self, count: int) -> bytes:
        return b"".join(islice(self._frames, count))

    def take(self, data: bytes) -> int:
        held, count = self._held, 0
        held += data
        while len(held) >= 4 and len(held) >= (end := 4 + int.from_bytes(held[:4], "big")):
            if not self._taken % _CHECKED_EVERY:
                self._kept.append(bytes(held[4:end]))
            self._taken += 1
            count += 1
            del held[:end]
        return count

    def check(self) -> None:
        """Look at some of the answers, after the measurement. Raises RequestInvalid where a topic was not found."""
        for frame in self._kept:
            start = response_body_start(ApiKey.METADATA, self._version, frame)
            answer: dict[str, Any] = RESPONSES[ApiKey.METADATA].decode(self._version, frame, start)
            for topic in answer["topics"]:
                if topic["error_code"]:
                    raise RequestInvalid(f"{topic['name']} was not found: {_error_name(topic['error_code'])}")


class NatsChannel:
    """Publishes to a subject that are answered on a reply subject, as a stream of Duramen or JetStream does."""

    def __init__(self, subject: str, inbox: str, value_bytes: int) -> None:
        """`inbox` is subscribed already."""
        self.frame = encode_pub(subject.encode(), os.urandom(value_bytes), inbox.encode())
        self.reply = b""
        self._parser = Parser()

    def frames(self, count: int) -> bytes:
        return self.frame * count

    def take(self, data: bytes) -> int:
        count = 0
        for event in self._parser.feed(data):
            if isinstance(event, list):
                for _, _, head, payload in event:
                    if head is not None or payload is None or b'"error"' in payload:
                        why = bytes(payload or head or b"no payload").decode(errors="replace").strip()
                        raise RequestInvalid(f"a message was refused: {why}")
                count += len(event)
            elif event is Signal.PING:
                self.reply = _PONG
            elif isinstance(event, ServerError):
                raise RequestInvalid(f"the NATS server says: {event.text}")
        return count
