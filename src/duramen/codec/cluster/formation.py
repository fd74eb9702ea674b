"""Messages of nodes that form a cluster, as MessagePack: an array per message, with its number first.

`doors/cluster/formation` converts them to the values of `raft/forming`.
"""

from typing import Annotated, Final
from uuid import UUID

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.cluster.quorum import NodeId, Whole

__all__ = ["Attempt", "HelloFrame", "Message", "ProposeFrame", "ReplicaId", "decode", "encode"]

Address = Annotated[str, msgspec.Meta(max_length=512, pattern=r"\A[!-~]*\Z")]
"""These appear in the log: on one line, whatever a peer sends."""
ReplicaId = tuple[NodeId, UUID]
Voter = tuple[NodeId, UUID, Address]
Attempt = tuple[NodeId, UUID, Whole]
"""The proposer, and the number of its attempt."""
Seeds = Annotated[tuple[Address, ...], msgspec.Meta(max_length=64)]


class HelloFrame(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """The identity of a node, and its state."""

    sender: ReplicaId
    seeds: Seeds
    attempt: Whole
    promised: Attempt | None
    cluster_id: UUID | None


class ProposeFrame(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """A cluster that may be."""

    attempt: Attempt
    seeds: Seeds
    voters: Annotated[tuple[Voter, ...], msgspec.Meta(max_length=64)]


Message = HelloFrame | ProposeFrame

_encoder: Final = msgspec.msgpack.Encoder()
_decoder: Final[msgspec.msgpack.Decoder[Message]] = msgspec.msgpack.Decoder(Message)


def encode(message: Message) -> bytes:
    """The message as bytes."""
    return _encoder.encode(message)


def decode(body: Buffer) -> Message:
    """The message in these bytes. Raises RequestInvalid."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"a message about forming a cluster is damaged: {error}") from None
