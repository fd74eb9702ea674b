"""Records as Python programs write and read them, and their places."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias, overload

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.client.api.arguments import INT32_MAX, INT64_MAX, refused, whole
from duramen.client.cluster import TopicPartition
from duramen.codec.batch import CONTROL, batches
from duramen.codec.batch import Headers as EncodedHeaders
from duramen.codec.batch import records as decode

__all__ = ["Batch", "Headers", "NewRecord", "Place", "Record", "Writable", "encodable"]

Headers: TypeAlias = Sequence[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None]
"""Names and values in their order, where a name may come more than once; or a mapping, where none does."""


class NewRecord(msgspec.Struct, frozen=True):
    """A record to write. Text is written as UTF-8; a value of None deletes the key in a compacted stream.

    Without a partition the key selects it, as in every Kafka client, and without a key it is random; the timestamp (in
    ms since 1970) defaults to the time of writing.

    >>> client.streams.create("tickets")
    StreamInfo(...)
    >>> client.produce("tickets", [NewRecord("open", key="42", headers=[("by", "ann")])])
    [Place(partition=0, offset=0)]
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Record(msgspec.Struct, frozen=True, gc=False):
    """A record as it was read. It can be written again, to its partition number and with its timestamp.

    >>> client.streams.create("letters")
    StreamInfo(...)
    >>> client.produce("letters", ["a"])
    [Place(partition=0, offset=0)]
    >>> [record] = [record for batch in client.consume("letters") for record in batch]
    >>> record.topic, record.partition, record.offset, record.key, record.value, record.text, record.headers
    ('letters', 0, 0, None, b'a', 'a', ())
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def text(self) -> str:
        """The value as UTF-8, empty if there is none. Raises UnicodeDecodeError for other bytes."""
        return "" if self.value is None else self.value.decode()


Writable: TypeAlias = bytes | str | NewRecord | Record
"""Input of `produce`: values, or whole records."""


class Place(NamedTuple):
    """The place of a record. Offset -1: it is stored, but the broker no longer knows where.

    >>> Place(0, 17).offset
    17
    """

    partition: int
    offset: int


class Batch(Sequence[Record]):
    """Records of one partition in order, decoded on first use. There is at least one.

    Reading continues at `next_offset`.

    >>> client.streams.create("words")
    StreamInfo(...)
    >>> places = client.produce("words", ["to", "be", "or"])
    >>> [batch] = client.consume("words")
    >>> batch.topic, batch.partition, len(batch), batch.next_offset, [record.text for record in batch]
    ('words', 0, 3, 3, ['to', 'be', 'or'])
    """

    def __init__(
        self, at: TopicPartition, pieces: Sequence[memoryview], first: int, end: int, next_offset: int
    ) -> None:
        """The records with offsets in `[first, end)` of the record batches in `pieces`."""
        self.topic = at.topic
        self.partition = at.partition
        self.next_offset = next_offset
        self._pieces = pieces
        self._first = first
        self._end = end
        self._records: list[Record] | None = None

    @property
    def records(self) -> Sequence[Record]:
        """The records. Raises BatchCorrupt if they were damaged in transit."""
        if self._records is None:
            self._records = list(self._decoded())
            self._pieces = ()
        return self._records

    def _decoded(self) -> Iterator[Record]:
        topic, partition = self.topic, self.partition
        for piece in self._pieces:
            for place, head in batches(piece):
                if head.attributes & CONTROL or head.base_offset >= self._end or head.next_offset <= self._first:
                    continue
                for one in decode(piece[place : place + head.size]):
                    if self._first <= one.offset < self._end:
                        headers = tuple((name.decode(errors="surrogateescape"), value) for name, value in one.headers)
                        yield Record(topic, partition, one.offset, one.timestamp, one.key, one.value, headers)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self.records[index]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        return f"<Batch of {self.topic}-{self.partition} up to {self.next_offset}>"


class Encodable(NamedTuple):
    """A record as the producer takes it."""

    value: bytes | None
    key: bytes | None
    headers: EncodedHeaders
    partition: int | None
    timestamp_ms: int | None


def encodable(records: Iterable[Writable], partition: int | None) -> list[Encodable]:
    """`records` as bytes; `partition` applies to those without one. Raises RequestInvalid."""
    if isinstance(records, bytes | str | NewRecord | Record):
        raise RequestInvalid(f"records are given in a list: write [{type(records).__name__}(…)] for a single one")
    if isinstance(records, Mapping | bytearray | memoryview) or not isinstance(records, Iterable):
        raise refused("records", records, "a list of bytes, str, NewRecord or Record")
    chosen = None if partition is None else whole("partition", partition, 0, INT32_MAX)
    return [_encodable(record, chosen) for record in records]


def _encodable(record: Writable, partition: int | None) -> Encodable:
    if isinstance(record, bytes | str):
        return Encodable(_bytes(record, "value"), None, (), partition, None)
    if not isinstance(record, NewRecord | Record):
        raise RequestInvalid(f"a record is bytes, str, NewRecord or Record, not {type(record).__name__}")
    return Encodable(
        _bytes(record.value, "value"), _bytes(record.key, "key"), _headers(record.headers),
        partition if record.partition is None else whole("partition", record.partition, 0, INT32_MAX),
        _timestamp_ms(record),
    )  # fmt: skip


def _timestamp_ms(record: NewRecord | Record) -> int | None:
    """The timestamp of a new record must be since 1970; that of a read record is kept unchanged."""
    if record.timestamp_ms is None:
        return None
    timestamp_ms = whole("timestamp_ms", record.timestamp_ms, -1 - INT64_MAX, INT64_MAX)
    if timestamp_ms < 0 and isinstance(record, NewRecord):
        raise RequestInvalid(f"timestamp_ms={timestamp_ms} is no time since 1970")
    return timestamp_ms


def _headers(headers: object) -> EncodedHeaders:
    if isinstance(headers, Mapping):
        pairs: list[object] = list(headers.items())
    elif isinstance(headers, Sequence) and not isinstance(headers, str | bytes | bytearray | memoryview):
        pairs = list(headers)
    else:
        raise refused("headers", headers, "a mapping, or a list of (name, value)")
    encoded = []
    for pair in pairs:
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise refused("a pair in headers", pair, "(name, value)")
        encoded.append((_name(pair[0]), _bytes(pair[1], "header")))
    return encoded


def _bytes(value: object, what: str) -> bytes | None:
    if isinstance(value, bytes) or value is None:
        return value
    if not isinstance(value, str):
        raise RequestInvalid(f"a {what} is bytes, str or None, not {type(value).__name__}")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise RequestInvalid(f"a {what} has half a surrogate pair, which is no UTF-8: give bytes") from None


def _name(name: object) -> bytes:
    if not isinstance(name, str):
        raise RequestInvalid(f"a header's name is str, not {type(name).__name__}")
    try:
        return name.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        raise RequestInvalid(f"the header's name {name!r} is no UTF-8") from None
