"""Records that collect in a batch, and sealed batches that wait for acknowledgement. Plain."""

from typing import Final, NamedTuple

from duramen.client.cluster import TopicPartition
from duramen.codec.batch import TRANSACTIONAL, Headers, encode_record, near, seal

__all__ = ["OpenBatch", "SealedBatch", "SequenceRange", "largest_size"]

_RECORD_BYTES: Final = 36  # the most that a record has beside its key, value and headers
_HEADER_BYTES: Final = 10  # the most that a record's header has beside its name and value


class SequenceRange(NamedTuple):
    """A number of records of a partition, and the sequence of the first (modulo 2^31)."""

    at: TopicPartition
    sequence: int
    records: int


class OpenBatch:
    """The batch that a partition's records gather in."""

    __slots__ = ("_base_timestamp", "_max_timestamp", "_parts", "count", "size")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._base_timestamp = self._max_timestamp = -1
        self.size = 0
        self.count = 0

    def takes(self, timestamp: int) -> bool:
        """Whether a record with that timestamp (ms) fits into one batch with the present ones."""
        return self.count == 0 or near(timestamp, self._base_timestamp)

    def add(self, timestamp: int, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Add a record after the last one; `timestamp` in ms."""
        if self.count == 0:
            self._base_timestamp = self._max_timestamp = timestamp
        elif timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
        record = encode_record(timestamp - self._base_timestamp, self.count, key, value, headers)
        self._parts.append(record)
        self.size += len(record)
        self.count += 1

    def seal(
        self, codec: int, *, transactional: bool, producer_id: int, producer_epoch: int, sequence: int
    ) -> bytearray:
        """The batch as it is sent, with this producer and the first record's sequence; -1 for none."""
        return seal(
            b"".join(self._parts), self.count, self._base_timestamp, self._max_timestamp,
            codec=codec, attributes=TRANSACTIONAL if transactional else 0,
            producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence,
        )  # fmt: skip


class SealedBatch:
    """A sealed batch until it is acknowledged."""

    __slots__ = ("at", "count", "data", "sent", "tries")

    def __init__(self, at: TopicPartition, data: bytearray, count: int) -> None:
        self.at = at
        self.data = data
        self.count = count
        self.sent = False  # under way now
        self.tries = 0  # how often it was sent without being told that it is not stored

    @property
    def stretch(self) -> SequenceRange:
        """The sequences of its records."""
        return SequenceRange(self.at, int.from_bytes(self.data[53:57], "big"), self.count)


def largest_size(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    """The most bytes that such a record takes in a batch."""
    size = _RECORD_BYTES + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += _HEADER_BYTES + len(name) + (len(content) if content else 0)
    return size
