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
    """What a connection is for."""

    CONTROL = 1
    """Votes, heartbeats, forming a cluster, forwarded requests: small, and never to wait."""
    METADATA = 2
    """The metadata log and its snapshots, as the quorum fetches them."""
    DATA = 3
    """The logs of streams, as replicas fetch them, and records on their way to a leader."""


class Subject(IntEnum):
    """What a message is about, and so how its body is to be read."""

    FORMING = 1
    QUORUM = 2
    CONTROLLER = 3
    """What the active controller is asked."""
    REPLICAS = 4
    """What the replicas of partitions say to each other."""
    BROKER = 5
    """What the brokers of nodes ask each other."""
    NODES = 6
    RECORDS = 7
    """What nodes ask each other for clients that came to one which does not lead."""


_MEBIBYTE: Final = 1024 * 1024

LARGEST_BODY_BYTES: Final[Mapping[PeerChannel, int]] = MappingProxyType(
    {PeerChannel.CONTROL: 4 * _MEBIBYTE, PeerChannel.METADATA: 64 * _MEBIBYTE, PeerChannel.DATA: 128 * _MEBIBYTE}
)
"""How large the body of one frame may be."""
