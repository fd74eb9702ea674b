"""Produce, coded by hand: batches are never copied, and reading a request with one record takes about a microsecond.

    request   nullable string transactional id (3+), int16 acks, int32 timeout (ms), array of topics:
              string name, array of partitions: int32 index, nullable bytes records
    response  array of topics: string name, array of partitions: int32 index, int16 error code, int64 base offset,
              int64 log append time (2+), int64 log start offset (5+), array of record errors and nullable string
              error message (8+); then int32 throttle time (1+)

From version 9 on lengths are compact and structures end in tagged fields.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka.leaders import NO_TAGS, LeaderHint, NodeEndpoint, endpoint_tags, leader_tags
from duramen.codec.kafka.schema import LARGEST_ELEMENTS, LARGEST_TAGS, LARGEST_TEXT_BYTES
from duramen.codec.varint import encode_uvarint, read_uvarint

__all__ = [
    "PartitionData",
    "PartitionResponse",
    "ProduceRequest",
    "TopicData",
    "TopicResponse",
    "decode_request",
    "decode_response",
    "encode_request",
    "encode_response",
]

FLEXIBLE: Final = 9

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT_COUNT = struct.Struct(">hii")
_ACKS_TIMEOUT = struct.Struct(">hi")
_TWO_INT32 = struct.Struct(">ii")
_TO_ONE_TOPIC = struct.Struct(">BhiBB")
_TO_ONE_PARTITION = struct.Struct(">Bi")
_new = tuple.__new__  # of a NamedTuple, without the call that its own takes
_TAG_SECTIONS: Final = 3  # of a partition, of a topic, of the request: a byte each, 0, where there are no tags
_ANSWER = struct.Struct(">ihqqq")
_SHORT_ANSWER = struct.Struct(">ihqq")
_SHORTEST_ANSWER = struct.Struct(">ihq")
_NAMES_LEADERS: Final = 10
_LEADER_TAG: Final = 0
_END_OF_ONE: Final = b"\x01\0\0\0"  # no record errors, no message, no tags of the partition and of the topic


class PartitionData(NamedTuple):
    """Batches for one partition; a view into the request."""

    partition: int
    records: memoryview | None


class TopicData(NamedTuple):
    """Batches for one topic."""

    name: str
    partitions: list[PartitionData]


class ProduceRequest(NamedTuple):
    """A produce request."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicData]


class PartitionResponse(NamedTuple):
    """The result for one partition's batch. `record_errors`: places in it, and the errors of the records there.

    `leader`, if another node leads, exists from version 10 on.
    """

    partition: int
    error_code: int
    base_offset: int
    append_time_ms: int = -1
    start_offset: int = -1
    message: str | None = None
    record_errors: Sequence[tuple[int, str | None]] = ()
    leader: LeaderHint | None = None


class TopicResponse(NamedTuple):
    """The results for one topic's batches."""

    name: str
    partitions: Sequence[PartitionResponse]


# -- requests -----------------------------------------------------------------------------------------


def decode_request(version: int, frame: memoryview, position: int) -> ProduceRequest:
    """The request in `frame` from `position` on. Raises RequestInvalid."""
    try:
        if version >= FLEXIBLE:
            return _decode_one(frame, position) or _decode_flexible(frame, position)
        return _decode_plain(version, frame, position)
    except (ValueError, struct.error) as error:
        raise RequestInvalid(f"PRODUCE request version {version} is damaged: {error}") from None


def _count(count: int, smallest: int, left: int, allowed: int) -> int:
    if not 0 <= count <= allowed or count * smallest > left:
        raise ValueError(f"an array cannot have {count} elements")
    return count


def _decode_plain(version: int, frame: memoryview, position: int) -> ProduceRequest:
    transactional_id = None
    if version >= 3:
        (length,) = _INT16.unpack_from(frame, position)
        position += 2
        if length >= 0:
            transactional_id = _text(frame, position, length)
            position += length
    acks, timeout_ms, topic_count = _ACKS_TIMEOUT_COUNT.unpack_from(frame, position)
    position += 10
    size = len(frame)
    allowed = LARGEST_ELEMENTS
    topics = []
    for _ in range(_count(topic_count, 6, size - position, allowed)):
        (length,) = _INT16.unpack_from(frame, position)
        name = _text(frame, position + 2, length)
        position += 2 + length
        (partition_count,) = _INT32.unpack_from(frame, position)
        position += 4
        partitions = []
        allowed -= 1 + _count(partition_count, 8, size - position, allowed)
        for _ in range(partition_count):
            index, length = _TWO_INT32.unpack_from(frame, position)
            position += 8
            if length < 0:
                partitions.append(PartitionData(index, None))
                continue
            if length > size - position:
                raise ValueError(f"{length} bytes of records wanted, {size - position} left")
            partitions.append(PartitionData(index, frame[position : position + length]))
            position += length
        topics.append(TopicData(name, partitions))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _text(frame: memoryview, position: int, length: int) -> str:
    if not 0 <= length <= LARGEST_TEXT_BYTES or position + length > len(frame):
        raise ValueError("a string is null, too long or cut off")
    return str(frame[position : position + length], "utf-8")


def _decode_one(frame: memoryview, position: int) -> ProduceRequest | None:
    """The usual request, batches for one partition, in few steps; None where it looks like anything else."""
    name_start = position + _TO_ONE_TOPIC.size
    if name_start > len(frame):
        return None
    transactional, acks, timeout_ms, topics, length = _TO_ONE_TOPIC.unpack_from(frame, position)
    name_end = name_start + length - 1
    # A count or a length of more than 126 has another byte.
    if transactional or topics != 2 or not 0 < length < 0x80 or name_end + _TO_ONE_PARTITION.size > len(frame):
        return None
    partitions, index = _TO_ONE_PARTITION.unpack_from(frame, name_end)
    length, start = read_uvarint(frame, name_end + _TO_ONE_PARTITION.size)
    end = start + length - 1
    if partitions != 2 or not length or len(frame) != end + _TAG_SECTIONS or any(frame[end:]):
        return None
    name = str(frame[name_start:name_end], "utf-8")
    partition = _new(PartitionData, (index, frame[start:end]))
    return _new(ProduceRequest, (None, acks, timeout_ms, [_new(TopicData, (name, [partition]))]))


def _decode_flexible(frame: memoryview, position: int) -> ProduceRequest:
    size = len(frame)
    length, position = read_uvarint(frame, position)
    transactional_id = None
    if length:
        transactional_id = _text(frame, position, length - 1)
        position += length - 1
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(frame, position)
    count, position = read_uvarint(frame, position + 6)
    allowed = LARGEST_ELEMENTS
    topics = []
    for _ in range(_count(count - 1, 3, size - position, allowed)):
        length, position = read_uvarint(frame, position)
        name = _text(frame, position, length - 1)
        count, position = read_uvarint(frame, position + length - 1)
        partitions = []
        allowed -= 1 + _count(count - 1, 6, size - position, allowed)
        for _ in range(count - 1):
            (index,) = _INT32.unpack_from(frame, position)
            length, position = read_uvarint(frame, position + 4)
            records = None
            if length:
                if length - 1 > size - position:
                    raise ValueError(f"{length - 1} bytes of records wanted, {size - position} left")
                records = frame[position : position + length - 1]
                position += length - 1
            position = _tags(frame, position)
            partitions.append(PartitionData(index, records))
        position = _tags(frame, position)
        topics.append(TopicData(name, partitions))
    _tags(frame, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _tags(frame: memoryview, position: int) -> int:
    if position < len(frame) and frame[position] == 0:
        return position + 1
    count, position = read_uvarint(frame, position)
    for _ in range(_count(count, 2, len(frame) - position, LARGEST_TAGS)):
        _, position = read_uvarint(frame, position)
        size, position = read_uvarint(frame, position)
        position += size
    if position > len(frame):
        raise ValueError("a tagged field is cut off")
    return position


def encode_request(version: int, request: ProduceRequest) -> list[bytes | memoryview]:
    """The request's body in pieces, the batches among them uncopied. Versions from 9 on only."""
    if version < FLEXIBLE:
        raise ValueError("the client speaks Produce 9 and newer")
    parts: list[bytes | memoryview] = [
        _compact_text(request.transactional_id)
        + _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms)
        + encode_uvarint(len(request.topics) + 1)
    ]
    for topic in request.topics:
        parts.append(_compact_text(topic.name) + encode_uvarint(len(topic.partitions) + 1))
        for partition in topic.partitions:
            records = partition.records if partition.records is not None else memoryview(b"")
            parts += (_INT32.pack(partition.partition) + encode_uvarint(len(records) + 1), records, b"\0")
        parts.append(b"\0")
    parts.append(b"\0")
    return parts


def _compact_text(value: str | None) -> bytes:
    if value is None:
        return b"\0"
    encoded = value.encode()
    return encode_uvarint(len(encoded) + 1) + encoded


_known_text = lru_cache(1024)(_compact_text)  # for names of topics that there are


# -- responses ----------------------------------------------------------------------------------------


def encode_response(
    version: int, topics: Sequence[TopicResponse], throttle_ms: int = 0, endpoints: Sequence[NodeEndpoint] = ()
) -> bytes:
    """The response's body; `endpoints` of the leaders that it names."""
    if version >= FLEXIBLE:
        return _encode_flexible(topics, throttle_ms, endpoints if version >= _NAMES_LEADERS else None)
    return _encode_plain(version, topics, throttle_ms)


def _encode_plain(version: int, topics: Sequence[TopicResponse], throttle_ms: int) -> bytes:
    parts = [_INT32.pack(len(topics))]
    for name, partitions in topics:
        encoded = name.encode()
        parts += (_INT16.pack(len(encoded)), encoded, _INT32.pack(len(partitions)))
        for index, error_code, base_offset, append_time_ms, start_offset, message, wrong, _ in partitions:
            if version < 2:
                parts.append(_SHORTEST_ANSWER.pack(index, error_code, base_offset))
            elif version < 5:
                parts.append(_SHORT_ANSWER.pack(index, error_code, base_offset, append_time_ms))
            else:
                parts.append(_ANSWER.pack(index, error_code, base_offset, append_time_ms, start_offset))
            if version >= 8:
                parts.append(_INT32.pack(len(wrong)))
                for place, why in wrong:
                    parts += (_INT32.pack(place), _plain_text(why))
                parts.append(_plain_text(message))
    if version >= 1:
        parts.append(_INT32.pack(throttle_ms))
    return b"".join(parts)


def _plain_text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    encoded = value.encode()
    return _INT16.pack(len(encoded)) + encoded


def _encode_flexible(
    topics: Sequence[TopicResponse], throttle_ms: int, endpoints: Sequence[NodeEndpoint] | None
) -> bytes:
    """Without `endpoints` the version has no place for leaders."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        # The usual answer, about one partition and without an error, in few steps.
        name, ((index, error_code, base_offset, append_time_ms, start_offset, message, wrong, leader),) = topics[0]
        if message is None and not wrong and leader is None:
            answer = _ANSWER.pack(index, error_code, base_offset, append_time_ms, start_offset)
            return b"".join((b"\x02", _known_text(name), b"\x02", answer, _END_OF_ONE, _INT32.pack(throttle_ms), b"\0"))
    parts = [encode_uvarint(len(topics) + 1)]
    for name, partitions in topics:
        parts += (_compact_text(name), encode_uvarint(len(partitions) + 1))
        for index, error_code, base_offset, append_time_ms, start_offset, message, wrong, leader in partitions:
            parts.append(_ANSWER.pack(index, error_code, base_offset, append_time_ms, start_offset))
            parts.append(encode_uvarint(len(wrong) + 1))
            for place, why in wrong:
                parts.append(_INT32.pack(place) + _compact_text(why) + NO_TAGS)
            parts += (_compact_text(message), NO_TAGS if endpoints is None else leader_tags(_LEADER_TAG, leader))
        parts.append(NO_TAGS)
    parts += (_INT32.pack(throttle_ms), NO_TAGS if endpoints is None else endpoint_tags(endpoints))
    return b"".join(parts)


def decode_response(version: int, frame: memoryview, position: int) -> list[TopicResponse]:
    """The topics of a response, versions from 9 on. Raises RequestInvalid."""
    try:
        return _decode_response(frame, position)
    except (ValueError, struct.error) as error:
        raise RequestInvalid(f"PRODUCE response version {version} is damaged: {error}") from None


def _decode_response(frame: memoryview, position: int) -> list[TopicResponse]:
    count, position = read_uvarint(frame, position)
    topics = []
    for _ in range(_count(count - 1, 3, len(frame) - position, LARGEST_ELEMENTS)):
        length, position = read_uvarint(frame, position)
        name = _text(frame, position, length - 1)
        count, position = read_uvarint(frame, position + length - 1)
        partitions = []
        for _ in range(_count(count - 1, _ANSWER.size, len(frame) - position, LARGEST_ELEMENTS)):
            index, error_code, base_offset, append_time_ms, start_offset = _ANSWER.unpack_from(frame, position)
            wrong, position = _record_errors(frame, position + _ANSWER.size)
            length, position = read_uvarint(frame, position)
            message = None
            if length:
                message = _text(frame, position, length - 1)
                position += length - 1
            position = _tags(frame, position)
            partitions.append(
                PartitionResponse(index, error_code, base_offset, append_time_ms, start_offset, message, wrong)
            )
        position = _tags(frame, position)
        topics.append(TopicResponse(name, partitions))
    return topics


def _record_errors(frame: memoryview, position: int) -> tuple[list[tuple[int, str | None]], int]:
    count, position = read_uvarint(frame, position)
    found: list[tuple[int, str | None]] = []
    for _ in range(_count(max(0, count - 1), 6, len(frame) - position, LARGEST_ELEMENTS)):
        (place,) = _INT32.unpack_from(frame, position)
        length, position = read_uvarint(frame, position + 4)
        found.append((place, _text(frame, position, length - 1) if length else None))
        position = _tags(frame, position + max(0, length - 1))
    return found, position
