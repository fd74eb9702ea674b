"""What replicas say to each other, as bytes: between nodes of this version, and with nodes of the one before."""

import struct
from typing import NamedTuple
from uuid import UUID

import msgspec
import pytest

from duramen.base.errors import RequestInvalid
from duramen.base.ids import Position, StreamId
from duramen.base.leader_epochs import Takeover
from duramen.broker.replicas.wire import PlacedMessage, decode, encode
from duramen.metadata.partitions import PartitionId
from duramen.replication.messages import Permit, Reach, ReplicaFetch, ReplicaFetchAnswer, ReplicaRefusal

PLACES = [PartitionId(StreamId(int=number), number) for number in (1, 2)]
FETCH = ReplicaFetch(2, 1, 3, Position(3, 9), (Reach(2, 1, 8),), 4, 5, 6, confirmed=True)
ANSWER = ReplicaFetchAnswer(1, 3, FETCH, None, 4, 2, Permit((1, 2), (1,), 7), None, (Takeover(3, 1, 9),))
REFUSED = ReplicaFetchAnswer(1, 3, FETCH, ReplicaRefusal.OFFSET_OUT_OF_RANGE, 4, 2)


class OldAnswer(NamedTuple):
    """An answer as it was before logs said what they have forgotten: an array of no other length."""

    node_id: int
    leader_epoch: int
    asked: ReplicaFetch
    refusal: ReplicaRefusal | None = None
    high_watermark: int = 0
    start_offset: int = 0
    permit: Permit | None = None
    diverging: Position | None = None
    takeovers: tuple[Takeover, ...] = ()
    batches: tuple[object, ...] = ()


def body_of(*said: PlacedMessage) -> bytes:
    return b"".join(bytes(piece) for piece in encode(said))


def test_what_is_said_is_what_is_heard() -> None:
    said = [
        PlacedMessage(PLACES[0], ANSWER._replace(forgotten_id=77), (b"ab", b"c")),
        PlacedMessage(PLACES[1], REFUSED._replace(forgotten_id=-1)),
    ]
    heard = list(decode(body_of(*said), 1))
    assert [(one.place, one.message) for one in heard] == [(one.place, one.message) for one in said]
    assert [b"".join(map(bytes, one.records)) for one in heard] == [b"abc", b""]
    assert list(decode(body_of(PlacedMessage(PLACES[0], FETCH)), 2)) == [PlacedMessage(PLACES[0], FETCH)]


def test_a_node_of_the_version_before_reads_it() -> None:
    body = body_of(PlacedMessage(PLACES[0], ANSWER._replace(forgotten_id=77), (b"abc",)))
    (size,) = struct.unpack_from(">I", body)
    _, answers = msgspec.msgpack.decode(
        body[4 : 4 + size], type=tuple[list[object], list[tuple[bytes, int, OldAnswer, int]]]
    )
    assert answers == [(UUID(int=1).bytes, 1, OldAnswer(*ANSWER[:10]), 3)]
    assert body[4 + size : 4 + size + 3] == b"abc"


def test_what_a_node_of_the_version_before_says_is_read() -> None:
    head = msgspec.msgpack.encode(([], [(UUID(int=1).bytes, 1, OldAnswer(*ANSWER[:10]), 3)]))
    (heard,) = decode(struct.pack(">I", len(head)) + head + b"abc", 1)
    assert heard.message == ANSWER
    assert isinstance(heard.message, ReplicaFetchAnswer)
    assert heard.message.forgotten_id is None


def test_what_is_said_of_other_logs_than_are_named_is_refused() -> None:
    body = body_of(PlacedMessage(PLACES[0], ANSWER._replace(forgotten_id=7), (b"abc",)))
    for wrong in (b"\x90", b"\x92\x07\x07", b"\xc1"):
        with pytest.raises(RequestInvalid):
            list(decode(body[:-2] + wrong, 1))
