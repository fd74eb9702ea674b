"""The current leader in responses of a node that does not lead (KIP-951): tagged fields of Produce 10 and Fetch 16."""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.codec.varint import encode_uvarint

__all__ = ["NO_TAGS", "LeaderHint", "NodeEndpoint", "endpoint_tags", "leader_tags"]

NO_TAGS: Final = b"\0"

_LEADER: Final = struct.Struct(">iiB")
_ENDPOINTS_TAG: Final = 0


class LeaderHint(NamedTuple):
    """The leader of a partition and its epoch, as far as they are known."""

    node_id: int
    epoch: int


class NodeEndpoint(NamedTuple):
    """The address of a node for clients."""

    node_id: int
    host: str
    port: int
    rack: str | None


def leader_tags(tag: int, leader: LeaderHint | None) -> bytes:
    """The tagged fields of a partition: its leader under that number, or none."""
    if leader is None:
        return NO_TAGS
    return bytes((1, tag, _LEADER.size)) + _LEADER.pack(*leader, 0)


def endpoint_tags(nodes: Sequence[NodeEndpoint]) -> bytes:
    """The tagged fields of the answer: where the leaders are that it names."""
    if not nodes:
        return NO_TAGS
    body = encode_uvarint(len(nodes) + 1) + b"".join(map(_endpoint, nodes))
    return bytes((1, _ENDPOINTS_TAG)) + encode_uvarint(len(body)) + body


def _endpoint(node: NodeEndpoint) -> bytes:
    rack = b"\0" if node.rack is None else _text(node.rack)
    return struct.pack(">i", node.node_id) + _text(node.host) + struct.pack(">i", node.port) + rack + NO_TAGS


def _text(value: str) -> bytes:
    encoded = value.encode()
    return encode_uvarint(len(encoded) + 1) + encoded
