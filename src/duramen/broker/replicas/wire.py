"""What replicas say to each other as it travels: many messages of one turn together, behind them their batches.

    uint32 size of the head, the head, the bytes of whole record batches, those of one answer behind those of another

The head is MessagePack: an array of fetches and one of answers, each (stream id as 16 bytes, partition, message), an
answer also with the size of its batches. A message is the array of its fields, as `replication.messages` has them.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Final, NamedTuple

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.base.ids import StreamId
from duramen.base.ports import Buffer
from duramen.controller.partitions import PartitionId
from duramen.replication.messages import Fetch, FetchAnswer

__all__ = ["Said", "decode", "encode"]

_PLACES_KEPT: Final = 1 << 14
_SIZE: Final = struct.Struct(">I")

_StreamKey = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Asked(NamedTuple):
    stream: _StreamKey
    partition: _Count
    fetch: Fetch


class _Answered(NamedTuple):
    stream: _StreamKey
    partition: _Count
    answer: FetchAnswer
    size: _Count


class _Head(NamedTuple):
    fetches: list[_Asked]
    answers: list[_Answered]


class Said(NamedTuple):
    """A message for the replica of a partition, and the batches that come with an answer."""

    place: PartitionId
    message: Fetch | FetchAnswer
    records: Sequence[Buffer] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Head)


def encode(said: Sequence[Said]) -> list[Buffer]:
    """The messages as one body, in pieces: the batches are not copied."""
    head = _Head([], [])
    bodies: list[Buffer] = []
    for (stream_id, partition), message, records in said:
        if isinstance(message, Fetch):
            head.fetches.append(_Asked(stream_id.bytes, partition, message))
        else:
            answer = message._replace(batches=()) if message.batches else message
            size = sum(map(len, records))
            head.answers.append(_Answered(stream_id.bytes, partition, answer, size))
            bodies += records
    packed = _encoder.encode(head)
    return [_SIZE.pack(len(packed)), packed, *bodies]


def decode(body: Buffer, sender_id: int) -> Iterator[Said]:
    """The messages in these bytes. Raises RequestInvalid, also where not `sender_id` is named as who says them."""
    whole = memoryview(body)
    try:
        (size,) = _SIZE.unpack_from(whole)
        head = _decoder.decode(whole[_SIZE.size : _SIZE.size + size])
    except (struct.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"what a replica says cannot be read: {error}") from None
    for asked in head.fetches:
        _check(asked.fetch.node_id, sender_id)
        yield Said(_place(asked.stream, asked.partition), asked.fetch)
    at = _SIZE.size + size
    for answered in head.answers:
        _check(answered.answer.node_id, sender_id)
        if answered.answer.batches or answered.size > len(whole) - at:
            raise RequestInvalid("an answer of a replica names batches that did not come")
        yield Said(_place(answered.stream, answered.partition), answered.answer, (whole[at : at + answered.size],))
        at += answered.size


@lru_cache(maxsize=_PLACES_KEPT)
def _place(stream: bytes, partition: int) -> PartitionId:
    return PartitionId(StreamId(bytes=stream), partition)


def _check(node_id: int, sender_id: int) -> None:
    if node_id != sender_id:
        raise RequestInvalid(f"node {node_id} is not who sent this message: that was node {sender_id}")
