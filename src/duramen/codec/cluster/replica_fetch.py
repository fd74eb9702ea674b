"""The Fetch with which replicas follow each other: Kafka's, version 17, by hand because it is hot.

What is ours is in a tagged field that Kafka leaves alone, number 10000: `covered`, on the way up how far the follower
and those below it have synced, on the way down how far the answering replica and those above it have. The fetch offset
acknowledges nothing.

    request   int32 max wait (ms), int32 min bytes, int32 max bytes, int8 isolation level (0), int32 session id, int32
              session epoch, array of topics: uuid, array of partitions: int32 index, int32 current leader epoch,
              int64 fetch offset, int32 last fetched epoch, int64 log start offset, int32 max bytes, tag 10000: int64
              covered; array of forgotten topics: uuid, array of int32; string rack id (empty); tag 1: int32 replica
              id and int64 replica epoch (KIP-903)
    answer    int32 throttle time (0), int16 error code, int32 session id, array of topics: uuid, array of partitions:
              int32 index, int16 error code, int64 high watermark, int64 last stable offset (-1), int64 log start
              offset, null for aborted transactions, int32 preferred read replica (-1), bytes records, tag 0: int32
              epoch and int64 end offset where histories part (KIP-595), tag 1: int32 leader id and int32 leader
              epoch, tag 10000: int64 covered

Lengths are compact and every structure ends in its tagged fields.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.varint import encode_uvarint, read_uvarint

__all__ = [
    "COVERED_TAG",
    "Diverging",
    "Leader",
    "ReplicaAnswer",
    "ReplicaAnswerHead",
    "ReplicaFetch",
    "ReplicaPartition",
    "ReplicaTopic",
    "ReplicaTopicAnswer",
    "decode_answer",
    "decode_fetch",
    "encode_answer",
    "encode_fetch",
]

COVERED_TAG: Final = 10000

_DIVERGING_TAG: Final = 0
_LEADER_TAG: Final = 1
_REPLICA_TAG: Final = 1
_LARGEST_ELEMENTS: Final = 200_000
_LARGEST_TAGS: Final = 16
_COVERED_HEAD: Final = encode_uvarint(COVERED_TAG) + b"\x08"

_UUID_BYTES: Final = 16
_HEAD: Final = struct.Struct(">iiibii")
_PARTITION: Final = struct.Struct(">iiqiqi")
_PARTITION_COVERED: Final = struct.Struct(">iiqiqiB3sq")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_REPLICA: Final = struct.Struct(">iq")
_ANSWER_HEAD: Final = struct.Struct(">ihi")
_ANSWER: Final = struct.Struct(">ihqqqBi")
_DIVERGING: Final = struct.Struct(">iq")
_LEADER: Final = struct.Struct(">ii")


class ReplicaPartition(NamedTuple):
    """What a follower wants of a partition, and how far it is.

    `last_fetched_epoch` is the epoch of the entry before `offset`, -1 where there is none; `covered` is the first
    offset that is not synced by the follower or one below it.
    """

    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    start_offset: int
    max_bytes: int
    covered: int


class ReplicaTopic(NamedTuple):
    """What it wants of a stream."""

    stream_id: UUID
    partitions: Sequence[ReplicaPartition]


class ReplicaFetch(NamedTuple):
    """A follower's request. Epoch -1 of the session: there is none (KIP-227). `forgotten` are to leave the session."""

    node_id: int
    node_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    topics: Sequence[ReplicaTopic]
    session_id: int = 0
    session_epoch: int = -1
    forgotten: Sequence[tuple[UUID, Sequence[int]]] = ()


class Diverging(NamedTuple):
    """Where the follower's history leaves this one: the last epoch in common at most, and that epoch's end."""

    epoch: int
    end_offset: int


class Leader(NamedTuple):
    """Who leads, for a follower that asked with another epoch."""

    node_id: int
    epoch: int


class ReplicaAnswer(NamedTuple):
    """What a partition gives. On the way out `records` is left empty, and `size` of them go behind the piece."""

    partition: int
    error_code: int
    high_watermark: int
    start_offset: int
    covered: int
    size: int = 0
    diverging: Diverging | None = None
    leader: Leader | None = None
    records: memoryview = memoryview(b"")


class ReplicaTopicAnswer(NamedTuple):
    """What a stream gives."""

    stream_id: UUID
    partitions: Sequence[ReplicaAnswer]


class ReplicaAnswerHead(NamedTuple):
    """What an answer says as a whole."""

    error_code: int = 0
    session_id: int = 0


NO_ERROR: Final = ReplicaAnswerHead()


# -- requests -----------------------------------------------------------------------------------------


def encode_fetch(fetch: ReplicaFetch) -> bytes:
    """The request's body."""
    parts = [
        _HEAD.pack(fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes, 0, fetch.session_id, fetch.session_epoch),
        encode_uvarint(len(fetch.topics) + 1),
    ]
    for stream_id, partitions in fetch.topics:
        parts += (stream_id.bytes, encode_uvarint(len(partitions) + 1))
        parts += [_PARTITION_COVERED.pack(*partition[:6], 1, _COVERED_HEAD, partition[6]) for partition in partitions]
        parts.append(b"\0")
    parts.append(encode_uvarint(len(fetch.forgotten) + 1))
    for stream_id, indexes in fetch.forgotten:
        parts += (stream_id.bytes, encode_uvarint(len(indexes) + 1), *map(_INT32.pack, indexes), b"\0")
    replica = _REPLICA.pack(fetch.node_id, fetch.node_epoch) + b"\0"
    parts.append(b"\1" + _tags([(_REPLICA_TAG, replica)]))
    return b"".join(parts)


def decode_fetch(body: Buffer) -> ReplicaFetch:
    """The request in these bytes. Raises RequestInvalid."""
    reader = _Reader(memoryview(body))
    try:
        max_wait_ms, min_bytes, max_bytes, _, session_id, session_epoch = reader.unpack(_HEAD)
        topics = [_read_topic(reader) for _ in range(reader.count(_UUID_BYTES + 2))]
        forgotten = [_read_forgotten(reader) for _ in range(reader.count(_UUID_BYTES + 2))]
        reader.take(reader.length())  # the rack says nothing here
        tags = reader.tags()
        if _REPLICA_TAG not in tags:
            raise ValueError("it does not say whose it is")
        node_id, node_epoch = _REPLICA.unpack_from(tags[_REPLICA_TAG])
        reader.end()
    except (ValueError, struct.error) as error:
        raise RequestInvalid(f"a replica's fetch is damaged: {error}") from None
    return ReplicaFetch(
        node_id, node_epoch, max_wait_ms, min_bytes, max_bytes, topics, session_id, session_epoch, forgotten
    )


def _read_topic(reader: "_Reader") -> ReplicaTopic:
    stream_id = reader.uuid()
    count = reader.count(_PARTITION.size + 1)
    partitions = reader.usual(count)
    if partitions is None:
        partitions = [
            ReplicaPartition._make((*reader.unpack(_PARTITION), _covered(reader.tags(), "a partition")))
            for _ in range(count)
        ]
    reader.tags()
    return ReplicaTopic(stream_id, partitions)


def _read_forgotten(reader: "_Reader") -> tuple[UUID, list[int]]:
    stream_id = reader.uuid()
    indexes = [index for (index,) in _INT32.iter_unpack(reader.take(4 * reader.count(4)))]
    reader.tags()
    return stream_id, indexes


# -- answers ------------------------------------------------------------------------------------------


def encode_answer(topics: Sequence[ReplicaTopicAnswer], head: ReplicaAnswerHead = NO_ERROR) -> list[bytes]:
    """The answer's body without the records: piece i goes before the records of the i-th partition that has any.

    There is one piece more than such partitions.
    """
    pieces: list[bytes] = []
    parts = [_ANSWER_HEAD.pack(0, *head), encode_uvarint(len(topics) + 1)]
    for stream_id, partitions in topics:
        parts += (stream_id.bytes, encode_uvarint(len(partitions) + 1))
        for answer in partitions:
            parts.append(
                _ANSWER.pack(answer.partition, answer.error_code, answer.high_watermark, -1, answer.start_offset, 0, -1)
            )
            parts.append(encode_uvarint(answer.size + 1))
            if answer.size:
                pieces.append(b"".join(parts))
                parts = []
            parts.append(_answer_tags(answer))
        parts.append(b"\0")
    parts.append(b"\0")
    pieces.append(b"".join(parts))
    return pieces


def _answer_tags(answer: ReplicaAnswer) -> bytes:
    tags = []
    if answer.diverging is not None:
        tags.append((_DIVERGING_TAG, _DIVERGING.pack(*answer.diverging) + b"\0"))
    if answer.leader is not None:
        tags.append((_LEADER_TAG, _LEADER.pack(*answer.leader) + b"\0"))
    return _tags([*tags, (COVERED_TAG, _INT64.pack(answer.covered))])


def _tags(tags: Sequence[tuple[int, bytes]]) -> bytes:
    fields = [encode_uvarint(tag) + encode_uvarint(len(value)) + value for tag, value in tags]
    return encode_uvarint(len(fields)) + b"".join(fields)


def decode_answer(body: Buffer) -> tuple[ReplicaAnswerHead, list[ReplicaTopicAnswer]]:
    """The answer in these bytes; records are views into them. Raises RequestInvalid."""
    reader = _Reader(memoryview(body))
    try:
        _, error_code, session_id = reader.unpack(_ANSWER_HEAD)
        topics = [_read_topic_answer(reader) for _ in range(reader.count(_UUID_BYTES + 2))]
        reader.tags()
        reader.end()
    except (ValueError, struct.error) as error:
        raise RequestInvalid(f"the answer to a replica's fetch is damaged: {error}") from None
    return ReplicaAnswerHead(error_code, session_id), topics


def _read_topic_answer(reader: "_Reader") -> ReplicaTopicAnswer:
    stream_id = reader.uuid()
    partitions = [_read_answer(reader) for _ in range(reader.count(_ANSWER.size + 2))]
    reader.tags()
    return ReplicaTopicAnswer(stream_id, partitions)


def _read_answer(reader: "_Reader") -> ReplicaAnswer:
    index, error_code, high_watermark, _, start_offset, aborted, _ = reader.unpack(_ANSWER)
    if aborted:
        raise ValueError("a replica is told of no aborted transactions")
    records = reader.take(max(0, reader.length()))
    tags = reader.tags()
    diverging, leader = tags.get(_DIVERGING_TAG), tags.get(_LEADER_TAG)
    return ReplicaAnswer(
        index,
        error_code,
        high_watermark,
        start_offset,
        _covered(tags, "an answer"),
        len(records),
        None if diverging is None else Diverging(*_DIVERGING.unpack_from(diverging)),
        None if leader is None else Leader(*_LEADER.unpack_from(leader)),
        records,
    )


# -- reading ------------------------------------------------------------------------------------------


def _covered(tags: dict[int, memoryview], what: str) -> int:
    if COVERED_TAG not in tags:
        raise ValueError(f"{what} does not say how far is covered")
    covered: int = _INT64.unpack(tags[COVERED_TAG])[0]
    return covered


class _Reader:
    """Bytes being read; no count or length is believed before that much is there."""

    __slots__ = ("_data", "_elements", "_position")

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._elements = _LARGEST_ELEMENTS  # how many all arrays together may still have
        self._position = 0

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return values

    def length(self) -> int:
        value, self._position = read_uvarint(self._data, self._position)
        return value - 1

    def count(self, smallest: int) -> int:
        count = self.length()
        if not 0 <= count <= self._elements or count * smallest > len(self._data) - self._position:
            raise ValueError(f"an array cannot have {count} elements")
        self._elements -= count
        return count

    def take(self, size: int) -> memoryview:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"{size} bytes wanted, {len(self._data) - self._position} left")
        taken = self._data[self._position : end]
        self._position = end
        return taken

    def uuid(self) -> UUID:
        return UUID(bytes=bytes(self.take(_UUID_BYTES)))

    def tags(self) -> dict[int, memoryview]:
        count, self._position = read_uvarint(self._data, self._position)
        if count > _LARGEST_TAGS:
            raise ValueError(f"a structure has {count} tagged fields")
        found = {}
        for _ in range(count):
            tag, self._position = read_uvarint(self._data, self._position)
            size, self._position = read_uvarint(self._data, self._position)
            found[tag] = self.take(size)
        return found

    def usual(self, count: int) -> list[ReplicaPartition] | None:
        """So many partitions where each has `covered` as its only tagged field, as ours have; else None."""
        end = self._position + count * _PARTITION_COVERED.size
        if end > len(self._data):
            return None
        found = list(_PARTITION_COVERED.iter_unpack(self._data[self._position : end]))
        if any(values[6] != 1 or values[7] != _COVERED_HEAD for values in found):
            return None
        self._position = end
        return [ReplicaPartition._make((*values[:6], values[8])) for values in found]

    def end(self) -> None:
        if self._position != len(self._data):
            raise ValueError(f"{len(self._data) - self._position} bytes too many")
