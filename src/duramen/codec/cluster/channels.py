"""The purposes of connections between nodes, and the subjects of their frames.

Each purpose has its own connection, so that a vote never waits behind megabytes of records. Each has its own buffers,
also in both kernels.
"""

from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final

__all__ = ["LARGEST_BODY_BYTES", "PeerChannel", "Subject"]


class PeerChannel(IntEnum):
    """The purpose of a connection."""

    CONTROL = 1
    """Votes, heartbeats, forming a cluster, forwarded requests: small, and never to wait."""
    METADATA = 2
    """The metadata log and its snapshots, as the quorum fetches them."""
    DATA = 3
    """The logs of streams, as replicas fetch them, and records on their way to a leader."""


class Subject(IntEnum):
    """The subject of a message, which determines the encoding of its body."""

    FORMING = 1
    QUORUM = 2
    CONTROLLER = 3
    """Requests to the active controller."""
    REPLICAS = 4
    """Messages between replicas of partitions."""
    BROKER = 5
    """Requests between brokers of nodes."""
    NODES = 6
    RECORDS = 7
    """Requests that nodes forward for clients that are connected to a node which does not lead."""


_MEBIBYTE: Final = 1024 * 1024

LARGEST_BODY_BYTES: Final[Mapping[PeerChannel, int]] = MappingProxyType(
    {PeerChannel.CONTROL: 4 * _MEBIBYTE, PeerChannel.METADATA: 64 * _MEBIBYTE, PeerChannel.DATA: 128 * _MEBIBYTE}
)
"""The largest body of a frame in bytes."""
