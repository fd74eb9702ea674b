"""Voter addresses, which a node sends to each peer that connects: a MessagePack array of ids and addresses."""

from typing import Annotated, Final

import msgspec

from duramen.base.errors import RequestInvalid
from duramen.base.ports import Buffer
from duramen.codec.cluster.formation import Address
from duramen.codec.cluster.quorum import NodeId

__all__ = ["Nodes", "decode", "encode"]

Nodes = Annotated[tuple[tuple[NodeId, Address], ...], msgspec.Meta(max_length=64)]

_decoder: Final[msgspec.msgpack.Decoder[tuple[tuple[int, str], ...]]] = msgspec.msgpack.Decoder(Nodes)


def encode(nodes: tuple[tuple[int, str], ...]) -> bytes:
    """The nodes as bytes."""
    return msgspec.msgpack.encode(nodes)


def decode(body: Buffer) -> tuple[tuple[int, str], ...]:
    """The nodes in these bytes. Raises RequestInvalid."""
    try:
        return _decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RequestInvalid(f"a message about where nodes are is damaged: {error}") from None
