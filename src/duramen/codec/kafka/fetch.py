"""Fetch, coded by hand: the response is made in pieces, between which the records' bytes are sent untouched.

    request   int32 replica id (to 14), int32 max wait (ms), int32 min bytes, int32 max bytes, int8 isolation level,
              int32 session id and epoch (7+), array of topics: string name or, from 13, uuid, array of partitions:
              int32 index, int32 current leader epoch (9+), int64 fetch offset, int32 last fetched epoch (12+), int64
              log start offset (5+), int32 max bytes; array of forgotten topics (7+), string rack id (11+)
    response  int32 throttle time, int16 error code and int32 session id (7+), array of topics: name or uuid, array of
              partitions: int32 index, int16 error code, int64 high watermark, int64 last stable offset, int64 log
              start offset (5+), nullable array of aborted transactions, int32 preferred read replica (11+),
              nullable bytes records

From version 12 on lengths are compact and structures end in tagged fields.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka.leaders import NO_TAGS, LeaderHint, NodeEndpoint, endpoint_tags, leader_tags
from duramen.codec.kafka.schema import LARGEST_TAGS, LARGEST_TEXT_BYTES, ByteInput
from duramen.codec.varint import encode_uvarint, read_uvarint

__all__ = [
    "TOPIC_IDS",
    "FetchPartition",
    "FetchRequest",
    "FetchTopic",
    "PartitionAnswer",
    "PartitionRecords",
    "ResponseHead",
    "TopicAnswer",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

FLEXIBLE: Final = 12
_REPLICA_STATES: Final = 15  # from here on a replica sends its id in a tagged field (KIP-903)
_REPLICA_STATE_TAG: Final = 1
_CONSUMER: Final = -1
TOPIC_IDS: Final = 13
"""The first version that names topics by their ids."""

_NAMES_LEADERS: Final = 16
_LEADER_TAG: Final = 1

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_WAIT = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_PARTITION_4 = struct.Struct(">iqi")  # index, offset, max bytes
_PARTITION_5 = struct.Struct(">iqqi")  # … log start offset
_PARTITION_9 = struct.Struct(">iiqqi")  # … current leader epoch
_PARTITION_12 = struct.Struct(">iiqiqi")  # … last fetched epoch
_PARTITION_12_TAGS = struct.Struct(">iiqiqiB")  # and the number of its tagged fields, where that is small
_ANSWER = struct.Struct(">ihqqq")
_SHORT_ANSWER = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_HEAD = struct.Struct(">ihi")


class FetchPartition(NamedTuple):
    """The request for one partition."""

    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1


class FetchTopic(NamedTuple):
    """The request for one topic, by name or by id."""

    topic: str | UUID
    partitions: list[FetchPartition]


class FetchRequest(NamedTuple):
    """A fetch request; `replica_id` is -1 for a consumer. `forgotten` are partitions that its session is to lose."""

    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    rack_id: str = ""
    forgotten: Sequence[tuple[str | UUID, Sequence[int]]] = ()


class ResponseHead(NamedTuple):
    """The fields of a whole response; versions before 7 lack the first two.

    `endpoints`, of the leaders that it names, exist from version 16 on.
    """

    error_code: int = 0
    session_id: int = 0
    throttle_ms: int = 0
    endpoints: Sequence[NodeEndpoint] = ()


NO_ERROR: Final = ResponseHead()


class PartitionAnswer(NamedTuple):
    """The result for one partition: `size` bytes of records follow it.

    `preferred_replica` is the replica that the consumer should read, -1: this one (KIP-392). `leader`, if another node
    leads, exists from version 16 on.
    """

    partition: int
    error_code: int
    high_watermark: int
    stable_offset: int
    start_offset: int
    size: int
    aborted: Sequence[tuple[int, int]] | None = None  # producer id, first offset; None: uncommitted records too
    preferred_replica: int = -1
    leader: LeaderHint | None = None


class TopicAnswer(NamedTuple):
    """The result for one topic."""

    topic: str | UUID
    partitions: Sequence[PartitionAnswer]


class PartitionRecords(NamedTuple):
    """A client's result for one partition; `records` is a view into the response.

    `aborted` has the producer id and first offset of each aborted transaction among the records.
    """

    topic: str | UUID
    partition: int
    error_code: int
    high_watermark: int
    start_offset: int
    records: memoryview
    aborted: Sequence[tuple[int, int]] = ()


# -- requests -----------------------------------------------------------------------------------------


class _Frame(ByteInput):
    """A request or response being read."""

    __slots__ = ("flexible",)

    def __init__(self, data: memoryview, position: int, *, flexible: bool) -> None:
        super().__init__(data, position)
        self.flexible = flexible

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        values = layout.unpack_from(self.data, self.position)
        self.position += layout.size
        return values

    def length(self, layout: struct.Struct) -> int:
        if self.flexible:
            value, self.position = read_uvarint(self.data, self.position)
            return value - 1
        return self.unpack(layout)[0]

    def count(self, smallest: int) -> int:
        count = self.length(_INT32)
        if not 0 <= count <= self.elements or count * smallest > len(self.data) - self.position:
            raise ValueError(f"an array cannot have {count} elements")
        self.elements -= count
        return count

    def text(self) -> str:
        length = self.length(_INT16)
        if length > LARGEST_TEXT_BYTES:
            raise ValueError(f"a string has {length} bytes")
        return str(self.take(length), "utf-8")

    def topic(self, version: int) -> str | UUID:
        return UUID(bytes=bytes(self.take(16))) if version >= TOPIC_IDS else self.text()

    def tags(self) -> None:
        if self.flexible:
            count, self.position = read_uvarint(self.data, self.position)
            if count > LARGEST_TAGS:
                raise ValueError(f"a structure has {count} tagged fields")
            for _ in range(count):
                _, self.position = read_uvarint(self.data, self.position)
                size, self.position = read_uvarint(self.data, self.position)
                self.take(size)

    def replica_id(self) -> int:
        """Take the tagged fields of the request; the id of the replica that they name, -1 where they name none."""
        found = _CONSUMER
        count, self.position = read_uvarint(self.data, self.position)
        if count > LARGEST_TAGS:
            raise ValueError(f"a structure has {count} tagged fields")
        for _ in range(count):
            tag, self.position = read_uvarint(self.data, self.position)
            size, self.position = read_uvarint(self.data, self.position)
            body = self.take(size)
            if tag == _REPLICA_STATE_TAG:
                found = _INT32.unpack_from(body)[0]
        return found


def decode_request(version: int, frame: memoryview, position: int) -> FetchRequest:
    """The request in `frame` from `position` on. Raises RequestInvalid."""
    try:
        return _decode_request(version, _Frame(frame, position, flexible=version >= FLEXIBLE))
    except (ValueError, struct.error) as error:
        raise RequestInvalid(f"FETCH request version {version} is damaged: {error}") from None


def _decode_request(version: int, frame: _Frame) -> FetchRequest:
    replica_id = frame.unpack(_INT32)[0] if version < _REPLICA_STATES else _CONSUMER
    max_wait_ms, min_bytes, max_bytes, isolation_level = frame.unpack(_WAIT)
    session_id, session_epoch = frame.unpack(_SESSION) if version >= 7 else (0, -1)
    layout = _layout(version)
    topics = []
    forgotten: list[tuple[str | UUID, Sequence[int]]] = []
    for _ in range(frame.count(3)):
        topic = frame.topic(version)
        count = frame.count(layout.size)
        partitions = _untagged(frame, count) if count > 1 and version >= FLEXIBLE else []
        for _ in range(count - len(partitions)):
            values = frame.unpack(layout)
            frame.tags()
            if version >= 9:
                index, leader_epoch, offset = values[:3]
            else:
                index, offset, leader_epoch = values[0], values[1], -1
            partitions.append(FetchPartition(index, offset, values[-1], leader_epoch))
        frame.tags()
        topics.append(FetchTopic(topic, partitions))
    if version >= 7:
        forgotten = _forgotten(version, frame)
    rack_id = frame.text() if version >= 11 else ""
    if version >= _REPLICA_STATES:
        replica_id = frame.replica_id()
    else:
        frame.tags()
    return FetchRequest(
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, rack_id,
        forgotten,
    )  # fmt: skip


def _untagged(frame: _Frame, count: int) -> list[FetchPartition]:
    """So many partitions, from version 12 on, where none of them has tagged fields, as is usual; else nothing."""
    size = count * _PARTITION_12_TAGS.size
    if size > len(frame.data) - frame.position:
        return []
    found = list(_PARTITION_12_TAGS.iter_unpack(frame.data[frame.position : frame.position + size]))
    if any(values[6] for values in found):
        return []
    frame.position += size
    return [FetchPartition(values[0], values[2], values[5], values[1]) for values in found]


def _forgotten(version: int, frame: _Frame) -> list[tuple[str | UUID, Sequence[int]]]:
    topics: list[tuple[str | UUID, Sequence[int]]] = []
    for _ in range(frame.count(3)):
        topic = frame.topic(version)
        indexes = frame.take(4 * frame.count(4))
        frame.tags()
        topics.append((topic, [index for (index,) in _INT32.iter_unpack(indexes)]))
    return topics


def _layout(version: int) -> struct.Struct:
    if version >= 12:
        return _PARTITION_12
    if version >= 9:
        return _PARTITION_9
    return _PARTITION_5 if version >= 5 else _PARTITION_4


def encode_request(version: int, request: FetchRequest) -> bytes:
    """The request's body, versions from 13 on (topic ids)."""
    if version < TOPIC_IDS:
        raise ValueError("the client speaks Fetch 13 and newer")
    parts = [b"" if version >= 15 else _INT32.pack(request.replica_id)]
    parts.append(_WAIT.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level))
    parts += (_SESSION.pack(request.session_id, request.session_epoch), encode_uvarint(len(request.topics) + 1))
    for topic, partitions in request.topics:
        parts += (topic.bytes if isinstance(topic, UUID) else b"", encode_uvarint(len(partitions) + 1))
        for index, offset, max_bytes, leader_epoch in partitions:
            parts.append(_PARTITION_12.pack(index, leader_epoch, offset, -1, -1, max_bytes) + b"\0")
        parts.append(b"\0")
    parts.append(encode_uvarint(len(request.forgotten) + 1))
    for name, indexes in request.forgotten:
        parts += (_topic_bytes(name, True), encode_uvarint(len(indexes) + 1), *map(_INT32.pack, indexes), b"\0")
    rack = request.rack_id.encode()
    parts.append(encode_uvarint(len(rack) + 1) + rack + b"\0")
    return b"".join(parts)


# -- responses ----------------------------------------------------------------------------------------


def encode_response(version: int, topics: Sequence[TopicAnswer], head: ResponseHead = NO_ERROR) -> list[bytes]:
    """The response's body without the records: piece i goes before the records of the i-th partition that has any.

    There is one piece more than such partitions.
    """
    flexible = version >= FLEXIBLE
    no_array, empty = (b"\0", b"\1") if flexible else (b"\xff\xff\xff\xff", b"\0\0\0\0")
    pieces: list[bytes] = []
    error_code, session_id, throttle_ms, endpoints = head
    parts = [
        _HEAD.pack(throttle_ms, error_code, session_id) if version >= 7 else _INT32.pack(throttle_ms),
        _count_bytes(len(topics), flexible),
    ]
    for topic, partitions in topics:
        parts += (_topic_bytes(topic, flexible), _count_bytes(len(partitions), flexible))
        for index, code, high_watermark, stable_offset, start_offset, size, aborted, preferred, leader in partitions:
            if version >= 5:
                parts.append(_ANSWER.pack(index, code, high_watermark, stable_offset, start_offset))
            else:
                parts.append(_SHORT_ANSWER.pack(index, code, high_watermark, stable_offset))
            if aborted:
                parts.append(_aborted_bytes(aborted, flexible))
            else:
                parts.append(no_array if aborted is None else empty)
            if version >= 11:
                parts.append(_INT32.pack(preferred))
            parts.append(encode_uvarint(size + 1) if flexible else _INT32.pack(size))
            if size:
                pieces.append(b"".join(parts))
                parts = []
            if flexible:
                parts.append(leader_tags(_LEADER_TAG, leader) if version >= _NAMES_LEADERS else NO_TAGS)
        if flexible:
            parts.append(NO_TAGS)
    if flexible:
        parts.append(endpoint_tags(endpoints) if version >= _NAMES_LEADERS else NO_TAGS)
    pieces.append(b"".join(parts))
    return pieces


def _aborted_bytes(aborted: Sequence[tuple[int, int]], flexible: bool) -> bytes:
    tags = b"\0" if flexible else b""
    return _count_bytes(len(aborted), flexible) + b"".join(_ABORTED.pack(*row) + tags for row in aborted)


def _count_bytes(count: int, flexible: bool) -> bytes:
    return encode_uvarint(count + 1) if flexible else _INT32.pack(count)


def _topic_bytes(topic: str | UUID, flexible: bool) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    encoded = topic.encode()
    return (encode_uvarint(len(encoded) + 1) if flexible else _INT16.pack(len(encoded))) + encoded


def decode_response(version: int, frame: memoryview, position: int) -> tuple[int, list[PartitionRecords]]:
    """Error code and partitions of a response, versions from 13 on. Raises RequestInvalid."""
    try:
        return _decode_response(version, _Frame(frame, position, flexible=True))
    except (ValueError, struct.error) as error:
        raise RequestInvalid(f"FETCH response version {version} is damaged: {error}") from None


def _decode_response(version: int, frame: _Frame) -> tuple[int, list[PartitionRecords]]:
    _, error_code, _ = frame.unpack(_HEAD)
    answers = []
    for _ in range(frame.count(18)):
        topic = frame.topic(version)
        for _ in range(frame.count(_ANSWER.size)):
            index, code, high_watermark, _, start_offset = frame.unpack(_ANSWER)
            aborted = []
            for _ in range(max(0, frame.length(_INT32))):
                aborted.append((frame.unpack(_INT64)[0], frame.unpack(_INT64)[0]))
                frame.tags()
            frame.unpack(_INT32)
            records = frame.take(max(0, frame.length(_INT32)))
            frame.tags()
            answers.append(PartitionRecords(topic, index, code, high_watermark, start_offset, records, tuple(aborted)))
        frame.tags()
    frame.tags()
    return error_code, answers
