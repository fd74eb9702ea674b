"""Fast path for the most frequent Produce request: one batch for one partition, ready to append.

One call decodes the request and checks its batch, in the native package if it is installed. Anything unusual
(transactions, several partitions, tagged fields, damage) returns None and takes the ordinary path, which finds the
reason.
"""

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from duramen.base.errors import DuramenError
from duramen.base.native import is_installed
from duramen.base.ports import Buffer
from duramen.codec.batch import CODEC_MASK, HEADER_BYTES, TRANSACTIONAL, check, first_timestamp
from duramen.codec.kafka.header import encode_response
from duramen.codec.kafka.produce import FLEXIBLE, PartitionResponse, TopicResponse
from duramen.codec.kafka.produce import encode_response as encode_body
from duramen.codec.kafka.versions import ApiKey
from duramen.codec.varint import read_uvarint

__all__ = ["HotProduce", "ReadProduce", "encode_answer", "read_produce", "reader"]

HotProduce = tuple[int, int, int, str | None, int, str, int, int, int, tuple[int, ...]]
"""Where the frame ends, version, correlation id, client id, acks, topic, partition, where the batch begins and ends,
and the fields of its header."""

ReadProduce = Callable[[Buffer], HotProduce | None]
"""The request that the bytes begin with; None where it is not whole, or unusual in any way."""

_OLDEST: Final = 3
_NEWEST: Final = 12
_FIRST_WITH_ZSTD: Final = 7
_ZSTD: Final = 4
_LONGEST_CLIENT_ID: Final = 255
_LONGEST_TOPIC: Final = 126
_NO_TIMESTAMP: Final = -1

_HEAD = struct.Struct(">ihhih")  # up to the length of the client id
_FLEXIBLE_START = struct.Struct(">BBhiBB")  # from the header's tags to the length of the topic's name
_FLEXIBLE_PARTITION = struct.Struct(">Bi")
_PLAIN_START = struct.Struct(">hhiih")  # from the length of the transactional id to that of the topic's name
_PLAIN_PARTITION = struct.Struct(">iii")

_ANSWER_START = struct.Struct(">iiBB")  # size, correlation id, no tags, one topic
_ANSWER_END = struct.Struct(">Bihqqq4siB")  # one partition and its result, the throttle time, no tags
_ANSWER_BYTES: Final = _ANSWER_START.size - 4 + _ANSWER_END.size  # without the size itself and the name
_END_OF_ONE: Final = b"\x01\0\0\0"  # no record errors, no message, no tags of the partition and of the topic

_Place = tuple[int, str, int, int, int]


def reader() -> ReadProduce:
    """The native one, else its twin in Python."""
    if not is_installed():
        return read_produce
    import duramen_native

    return duramen_native.read_produce


def read_produce(data: Buffer) -> HotProduce | None:
    """The twin of the native reader, and its reference."""
    try:
        return _read(memoryview(data))
    except (struct.error, ValueError, IndexError, DuramenError):
        return None


def _read(data: memoryview) -> HotProduce | None:
    size, api, version, correlation_id, length = _HEAD.unpack_from(data)
    end = size + 4
    if api != ApiKey.PRODUCE or not _OLDEST <= version <= _NEWEST or length > _LONGEST_CLIENT_ID or end > len(data):
        return None
    frame = data[:end]
    position = _HEAD.size + max(0, length)
    if position > end:
        return None
    client_id = str(frame[_HEAD.size : position], "utf-8") if length >= 0 else None
    place = (_flexible if version >= FLEXIBLE else _plain)(frame, position)
    if place is None:
        return None
    acks, topic, partition, start, stop = place
    batch = frame[start:stop]
    head = check(batch)
    codec = head.attributes & CODEC_MASK
    usual = (
        acks in (-1, 1)
        and not head.attributes & TRANSACTIONAL
        and (codec != _ZSTD or version >= _FIRST_WITH_ZSTD)
        and head.max_timestamp >= _NO_TIMESTAMP
        and (head.records != 1 or codec != 0 or first_timestamp(batch, head) == head.max_timestamp)
    )
    return (end, version, correlation_id, client_id, acks, topic, partition, start, stop, head) if usual else None


def _flexible(frame: memoryview, position: int) -> _Place | None:
    tags, transactional, acks, _, topics, length = _FLEXIBLE_START.unpack_from(frame, position)
    position += _FLEXIBLE_START.size
    if tags or transactional or topics != 2 or not 1 <= length <= _LONGEST_TOPIC + 1:
        return None
    topic = str(frame[position : position + length - 1], "utf-8")
    partitions, partition = _FLEXIBLE_PARTITION.unpack_from(frame, position + length - 1)
    length, start = read_uvarint(frame, position + length - 1 + _FLEXIBLE_PARTITION.size)
    stop = start + length - 1
    # Behind the batch come the tags of the partition, of the topic and of the request: none.
    if partitions != 2 or length < HEADER_BYTES or stop + 3 != len(frame) or any(frame[stop:]):
        return None
    return acks, topic, partition, start, stop


def _plain(frame: memoryview, position: int) -> _Place | None:
    transactional, acks, _, topics, length = _PLAIN_START.unpack_from(frame, position)
    position += _PLAIN_START.size
    if transactional >= 0 or topics != 1 or not 0 <= length <= _LONGEST_TOPIC:
        return None
    topic = str(frame[position : position + length], "utf-8")
    partitions, partition, size = _PLAIN_PARTITION.unpack_from(frame, position + length)
    start = position + length + _PLAIN_PARTITION.size
    if partitions != 1 or size < HEADER_BYTES or start + size != len(frame):
        return None
    return acks, topic, partition, start, start + size


def _compact(name: str) -> bytes:
    encoded = name.encode()
    return bytes((len(encoded) + 1,)) + encoded


_known_name = lru_cache(1024)(_compact)


def encode_answer(
    version: int, correlation_id: int, topic: str, partition: int, base_offset: int, start_offset: int
) -> bytes:
    """The whole answer to such a request whose batch was appended at `base_offset`."""
    if version < FLEXIBLE:
        answer = PartitionResponse(partition, 0, base_offset, -1, start_offset)
        return encode_response(
            ApiKey.PRODUCE, version, correlation_id, encode_body(version, [TopicResponse(topic, [answer])])
        )
    name = _known_name(topic)
    end = _ANSWER_END.pack(2, partition, 0, base_offset, -1, start_offset, _END_OF_ONE, 0, 0)
    return _ANSWER_START.pack(_ANSWER_BYTES + len(name), correlation_id, 0, 2) + name + end
