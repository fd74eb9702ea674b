"""A stream bound to subjects, as the NATS door needs it: effective settings, known ids, batches in flight."""

from typing import NamedTuple

from duramen.base.errors import DuramenError
from duramen.base.metrics import Metrics
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import HEADER_BYTES
from duramen.codec.builder import BatchBuilder
from duramen.codec.jetstream import AckEncoder
from duramen.doors.nats.duplicates import Allowance, DuplicateTable

__all__ = ["BoundStream", "MessageBatch", "StoredMessageId"]


class StoredMessageId(NamedTuple):
    """A record with a Nats-Msg-Id that is in the log of its leader, and was refused because it is not acknowledged."""

    partition: Partition
    offset: int
    received_ms: int

    @property
    def committed(self) -> bool:
        """Whether it is acknowledged by now."""
        return self.offset < self.partition.log.high_watermark


class BoundStream:
    """Plain attributes, so that a message costs little."""

    __slots__ = (
        "_metrics",
        "ack_encoders",
        "acked",
        "acks",
        "appended",
        "compacted",
        "duplicates",
        "messages",
        "name",
        "pending",
        "room",
        "seen",
        "stream",
        "subjects",
        "window_ms",
    )

    def __init__(self, stream: Stream, allowance: Allowance, metrics: Metrics) -> None:
        self._metrics = metrics
        self.stream = stream
        self.name = stream.name
        self.subjects = tuple(subject.encode() for subject in stream.subjects)
        self.seen = DuplicateTable(allowance)
        self.pending: dict[int, tuple[MessageBatch, int]] = {}  # ids that are not synced yet: whose batch, which record
        self.appended: dict[
            int, StoredMessageId
        ] = {}  # ids whose records may be committed yet; room is reserved for each
        self.messages = metrics.counter("duramen_nats_messages_total", stream.name)
        self.duplicates = metrics.counter("duramen_nats_duplicates_total", stream.name)
        self.acked = metrics.counter("duramen_nats_acks_total", stream.name)
        # There from the beginning, at 0: an alert on their increase would miss a first gap that brings its series.
        for name in ("duramen_nats_gaps_total", "duramen_nats_gap_seconds_total"):
            metrics.counter(name, stream.name)
        self.ack_encoders: list[AckEncoder] = []
        self.update()

    def update(self) -> None:
        """Take over the stream's settings and its partitions."""
        stream = self.stream
        self.acks = stream.config.text("nats.ack") == "publish"
        self.window_ms = stream.config.integer("duplicate.window.ms")
        self.room = stream.max_message_bytes - HEADER_BYTES
        self.compacted = stream.compacted
        for index in range(len(self.ack_encoders), len(stream.partitions)):
            self.ack_encoders.append(AckEncoder(stream.name, index))

    def settle(self, print_: int) -> None:
        """Move an id to the table if its record is committed."""
        known = self.appended.get(print_)
        if known is not None and known.committed:
            del self.appended[print_]
            self.seen.add(print_, known.partition.index, known.offset, known.received_ms)

    def release(self, partition: Partition | None = None) -> None:
        """Forget appended ids, of one partition or of all."""
        for print_ in [print_ for print_, one in self.appended.items() if partition in (None, one.partition)]:
            del self.appended[print_]
            self.seen.give_back()

    def purge(self, since_ms: int, share: int) -> None:
        """Forget ids that are older, in a `share`-th of the table."""
        for print_, known in list(self.appended.items()):
            self.settle(print_)
            if print_ in self.appended and known.received_ms < since_ms:
                del self.appended[print_]
                self.seen.give_back()
        if len(self.seen):
            self.seen.purge(since_ms, share)

    def count_refused(self, error: DuramenError, messages: int = 1) -> None:
        """Count messages that were not stored."""
        self._metrics.counter("duramen_nats_refused_total", self.name, error.id).value += messages


class MessageBatch:
    """Messages of one chunk for one partition: a batch being built, then under way to the disk.

    `replies` has a reply subject or None for each record; `ids` the records with a Nats-Msg-Id and its
    fingerprint; `repeated` the reply subjects of messages that repeat a record of this batch.
    """

    __slots__ = ("bound", "builder", "ids", "partition", "received_ms", "repeated", "replies", "size")

    def __init__(self, bound: BoundStream, partition: Partition, received_ms: int) -> None:
        self.bound = bound
        self.partition = partition
        self.received_ms = received_ms
        self.builder = BatchBuilder()
        self.replies: list[bytes | None] = []
        self.ids: list[tuple[int, int]] = []
        self.repeated: list[tuple[int, bytes]] = []
        self.size = 0  # bytes in memory, once it is under way

    def reply_bytes(self) -> int:
        """The bytes of all reply subjects."""
        return sum([len(reply) for reply in self.replies if reply]) + sum([len(reply) for _, reply in self.repeated])

    def answers(self, base_offset: int) -> list[bytes]:
        """The acknowledgements, as commands to the server, now that the first record is synced at `base_offset`."""
        encoder = self.bound.ack_encoders[self.partition.index]
        answers: list[bytes] = []
        offset = base_offset
        for reply in self.replies:
            if reply is not None:
                ack = encoder.encode(offset)
                answers.append(b"PUB %b %d\r\n%b\r\n" % (reply, len(ack), ack))
            offset += 1
        for index, reply in self.repeated:
            ack = encoder.encode_duplicate(base_offset + index)
            answers.append(b"PUB %b %d\r\n%b\r\n" % (reply, len(ack), ack))
        return answers
