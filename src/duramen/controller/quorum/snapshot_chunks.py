"""Transfers of snapshots: a follower fetches a snapshot's bytes from a position on (KIP-630). Pure."""

from typing import NamedTuple

from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import FetchSnapshot, Message
from duramen.raft.voters import ReplicaId

__all__ = ["Download", "FetchChunk", "SnapshotBytes", "Wire"]


class FetchChunk(NamedTuple):
    """A FetchSnapshot, from a position in the snapshot's bytes on."""

    asked: FetchSnapshot
    position: int


class SnapshotBytes(NamedTuple):
    """Bytes of a snapshot from `position` on; the snapshot has `size_bytes` in all."""

    sender: ReplicaId
    epoch: int
    snapshot: EpochEnd
    position: int
    size_bytes: int
    data: bytes


Wire = Message | FetchChunk | SnapshotBytes
"""Messages between replicas: the machine's messages, with snapshots in chunks."""


class Download:
    """The snapshot being fetched, and its bytes so far: from one node, one snapshot at a time."""

    __slots__ = ("_data", "_node_id", "_snapshot")

    def __init__(self) -> None:
        self._node_id = -1
        self._snapshot: EpochEnd | None = None
        self._data = bytearray()

    def begin(self, node_id: int, snapshot: EpochEnd) -> int:
        """Fetch it from that node; returns the position to continue from."""
        if (node_id, snapshot) != (self._node_id, self._snapshot):
            self._node_id, self._snapshot = node_id, snapshot
            self._data = bytearray()
        return len(self._data)

    def take(self, chunk: SnapshotBytes) -> bool:
        """Add a chunk; returns whether it was the next one."""
        if (chunk.sender.node_id, chunk.snapshot) != (self._node_id, self._snapshot):
            return False
        if chunk.position != len(self._data) or not chunk.data:
            return False
        self._data += chunk.data
        return True

    def finish(self) -> bytes:
        """The bytes; the next fetch starts again."""
        data, self._snapshot = bytes(self._data), None
        self._data = bytearray()
        return data

    def __len__(self) -> int:
        return len(self._data)
