"""Messages between replicas as bytes: the messages of one turn together, followed by their batches.

    uint32 size of the head, the head, the bytes of whole record batches, those of one answer behind those of another,
    and where there are answers the forgotten producer id of each log that they are from

The head is MessagePack: an array of fetches and one of responses, each (stream id as 16 bytes, partition, message); a
response also has the size of its batches. A message is the array of its fields as in `replication.messages`: a response
without its batches, forgotten id and snapshot bound, a fetch without its checkpoints. An optional third array has
(number of the fetch in the body, checkpoints), an optional fourth (number of the response, bound). Older versions know
neither, and have no streams that need them. A MessagePack array of the forgotten ids ends the body; older versions
neither send nor read it.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Annotated, Final, NamedTuple

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.base.ids import StreamId
from duramen.base.ports import Buffer
from duramen.metadata.partitions import PartitionId
from duramen.replication.messages import ReplicaFetch, ReplicaFetchAnswer, ReplicationCheckpoint, SnapshotBound

__all__ = ["PlacedMessage", "decode", "encode"]

_PLACES_KEPT: Final = 1 << 14
_SIZE: Final = struct.Struct(">I")

_StreamKey = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class _Asked(NamedTuple):
    stream: _StreamKey
    partition: _Count
    fetch: ReplicaFetch


class _Answered(NamedTuple):
    stream: _StreamKey
    partition: _Count
    answer: ReplicaFetchAnswer
    size: _Count


class _Tagged(NamedTuple):
    fetch: _Count
    checkpoints: tuple[ReplicationCheckpoint, ...]


class _Bounded(NamedTuple):
    answer: _Count
    bound: SnapshotBound


class _Head(NamedTuple):
    fetches: list[_Asked]
    answers: list[_Answered]
    checkpoints: list[_Tagged] = []  # noqa: RUF012
    bounds: list[_Bounded] = []  # noqa: RUF012


class PlacedMessage(NamedTuple):
    """A message for the replica of a partition, and the batches that come with an answer."""

    place: PartitionId
    message: ReplicaFetch | ReplicaFetchAnswer
    records: Sequence[Buffer] = ()


_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final = msgspec.msgpack.Decoder(_Head)
_ids_decoder: Final = msgspec.msgpack.Decoder(list[int | None])


def encode(said: Sequence[PlacedMessage]) -> list[Buffer]:
    """The messages as one body, in pieces: the batches are not copied."""
    fetches: list[tuple[bytes, int, tuple[object, ...]]] = []
    checkpoints: list[tuple[int, tuple[ReplicationCheckpoint, ...]]] = []
    answers: list[tuple[bytes, int, tuple[object, ...], int]] = []
    bounds: list[tuple[int, SnapshotBound]] = []
    bodies: list[Buffer] = []
    forgotten: list[int | None] = []
    for (stream_id, partition), message, records in said:
        if isinstance(message, ReplicaFetch):
            if message.checkpoints:
                checkpoints.append((len(fetches), message.checkpoints))
            fetches.append((stream_id.bytes, partition, message[:-1]))
        else:
            node_id, leader_epoch, asked, *fields, _, forgotten_id, bound = message
            if bound is not None:
                bounds.append((len(answers), bound))
            said_fields = (node_id, leader_epoch, asked[:-1], *fields, ())
            answers.append((stream_id.bytes, partition, said_fields, sum(map(len, records))))
            bodies += records
            forgotten.append(forgotten_id)
    tagged: tuple[object, ...] = (checkpoints, bounds) if bounds else (checkpoints,) if checkpoints else ()
    packed = _encoder.encode((fetches, answers, *tagged))
    if answers:
        bodies.append(_encoder.encode(forgotten))
    return [_SIZE.pack(len(packed)), packed, *bodies]


def decode(body: Buffer, sender_id: int) -> Iterator[PlacedMessage]:
    """The messages in these bytes. Raises RequestInvalid, also if they do not name `sender_id` as their sender."""
    whole = memoryview(body)
    try:
        (size,) = _SIZE.unpack_from(whole)
        head = _decoder.decode(whole[_SIZE.size : _SIZE.size + size])
        at = _SIZE.size + size
        rest = whole[at + sum(answered.size for answered in head.answers) :]
        forgotten = _ids_decoder.decode(rest) if rest else [None] * len(head.answers)
    except (struct.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"what a replica says cannot be read: {error}") from None
    checkpoints = dict(head.checkpoints)
    for number, asked in enumerate(head.fetches):
        _check(asked.fetch.node_id, sender_id)
        fetch = asked.fetch._replace(checkpoints=checkpoints[number]) if number in checkpoints else asked.fetch
        yield PlacedMessage(_place(asked.stream, asked.partition), fetch)
    if len(forgotten) != len(head.answers):
        raise RequestInvalid("a replica answers about other logs than it names")
    bounds = dict(head.bounds)
    for number, (answered, forgotten_id) in enumerate(zip(head.answers, forgotten, strict=True)):
        _check(answered.answer.node_id, sender_id)
        if answered.answer.batches or answered.size > len(whole) - at:
            raise RequestInvalid("an answer of a replica names batches that did not come")
        answer = answered.answer._replace(forgotten_id=forgotten_id, snapshots=bounds.get(number))
        yield PlacedMessage(_place(answered.stream, answered.partition), answer, (whole[at : at + answered.size],))
        at += answered.size


@lru_cache(maxsize=_PLACES_KEPT)
def _place(stream: bytes, partition: int) -> PartitionId:
    return PartitionId(StreamId(bytes=stream), partition)


def _check(node_id: int, sender_id: int) -> None:
    if node_id != sender_id:
        raise RequestInvalid(f"node {node_id} is not who sent this message: that was node {sender_id}")
