"""Messages between replicas of the quorum, as MessagePack.

An array per message: its number, then its fields in the order below. Types and sizes of values are checked here,
nothing else. `doors/cluster/quorum` converts them to the messages of `raft`.
"""

from typing import Annotated, Final

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer

__all__ = [
    "AddVoterFrame",
    "BeginEpochFrame",
    "ChangeVotersFrame",
    "CurrentLeaderFrame",
    "EndEpochFrame",
    "EntriesFrame",
    "FetchAnswerFrame",
    "FetchFrame",
    "FetchSnapshotFrame",
    "Message",
    "RemoveVoterFrame",
    "ReplicaId",
    "SnapshotChunk",
    "UpdateVoterFrame",
    "VoteAnswerFrame",
    "VoteFrame",
    "Voter",
    "decode",
    "encode",
]

Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
NodeId = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
DirectoryId = Annotated[str, msgspec.Meta(max_length=64)]
Endpoint = Annotated[str, msgspec.Meta(max_length=512)]

ReplicaId = tuple[NodeId, DirectoryId]
Voter = tuple[NodeId, DirectoryId, Endpoint]
Voters = Annotated[tuple[Voter, ...], msgspec.Meta(max_length=64)]
End = tuple[Whole, Whole]
"""The epoch of the last entry, and the offset behind it."""


class EntriesFrame(msgspec.Struct, array_like=True, frozen=True):
    """Entries next to each other; the payload is a Kafka record batch."""

    epoch: Whole
    first: Whole
    entries: Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]
    payload: bytes | None
    voters: Voters | None


class VoteFrame(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """Asks for a vote."""

    sender: ReplicaId
    epoch: Whole
    voter: ReplicaId
    end: End
    pre: bool


class VoteAnswerFrame(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Gives or denies it."""

    sender: ReplicaId
    epoch: Whole
    candidate: ReplicaId
    leader: ReplicaId | None
    granted: bool
    pre: bool


class BeginEpochFrame(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """The sender leads."""

    sender: ReplicaId
    epoch: Whole


class EndEpochFrame(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """The sender leads no more."""

    sender: ReplicaId
    epoch: Whole
    successors: Annotated[tuple[ReplicaId, ...], msgspec.Meta(max_length=64)]


class CurrentLeaderFrame(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """The response to an unsuitable message."""

    sender: ReplicaId
    epoch: Whole
    leader: ReplicaId | None


class FetchFrame(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Requests the next part."""

    sender: ReplicaId
    epoch: Whole
    end: End
    synced_offset: Whole
    high_watermark: Whole
    number: Whole


class FetchAnswerFrame(msgspec.Struct, array_like=True, frozen=True, tag=7):
    """Gives it; `asked` is the fetch that it answers."""

    sender: ReplicaId
    epoch: Whole
    asked: FetchFrame
    high_watermark: Whole
    diverging: End | None
    snapshot: End | None
    batches: tuple[EntriesFrame, ...]


class FetchSnapshotFrame(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """Asks for a snapshot, from a position in its bytes on."""

    sender: ReplicaId
    epoch: Whole
    snapshot: End
    position: Whole


class SnapshotChunk(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Gives bytes of it from there on; `size_bytes` is how many there are in all."""

    sender: ReplicaId
    epoch: Whole
    snapshot: End
    position: Whole
    size_bytes: Whole
    data: bytes


class AddVoterFrame(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A change of the voters."""

    voter: Voter


class RemoveVoterFrame(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A change of the voters."""

    replica: ReplicaId


class UpdateVoterFrame(msgspec.Struct, array_like=True, frozen=True, tag=3):
    """A change of the voters."""

    voter: Voter


class ChangeVotersFrame(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """Asks for a change of the voters."""

    sender: ReplicaId
    epoch: Whole
    change: AddVoterFrame | RemoveVoterFrame | UpdateVoterFrame


Message = (
    VoteFrame
    | VoteAnswerFrame
    | BeginEpochFrame
    | EndEpochFrame
    | CurrentLeaderFrame
    | FetchFrame
    | FetchAnswerFrame
    | FetchSnapshotFrame
    | SnapshotChunk
    | ChangeVotersFrame
)

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: "Final[msgspec.msgpack.Decoder[Message]]" = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)


def decode(body: Buffer) -> Message:
    """The message in these bytes. Raises RequestInvalid."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"a message of the quorum is damaged: {error}") from None
