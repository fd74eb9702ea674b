"""Requests between nodes about transactions, and their responses."""

from typing import Annotated, Final

import msgspec

from duramen.rpc.errors import Refused
from duramen.rpc.methods import Method
from duramen.transactions.values import NO_SEQUENCE

__all__ = [
    "FIND_COMMITS", "HOLD_COMMITS", "JOIN", "RELEASE_COMMITS", "WRITE_MARKERS", "CommitsFound", "CommitsHeld",
    "CommitsReleased", "FindCommits", "FoundCommits", "HeldCommits", "HoldCommits", "Join", "Joined", "ReleaseCommits",
    "WriteMarkers", "WriteMarkersResponse",
]  # fmt: skip

_StreamKey = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Count = Annotated[int, msgspec.Meta(ge=0)]


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """The leader of partitions asks the coordinator before it appends transactional batches (KIP-890).

    With `joins` the partitions join the transaction; without, they must be in it already. `partitions` are (stream,
    partition).
    """

    id: str
    producer_id: int
    epoch: int
    joins: bool
    partitions: tuple[tuple[str, _Count], ...]


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="joined"):
    """The leader may append. `begins` tells for each partition whether it has joined just now."""

    coordinator_epoch: int
    begins: tuple[bool, ...]


class WriteMarkers(msgspec.Struct, frozen=True, array_like=True, tag="markers"):
    """The coordinator asks a leader to end a transaction in partitions of (stream id, partition).

    `coordinator` is the partition of `__transaction_state` that the asking node leads in `coordinator_epoch`. From
    `version` 2 on, the marker's epoch is higher than any in which the transaction has written (KIP-890). `sequence` is
    the transaction's commit sequence, which older nodes do not know.
    """

    coordinator: _Count
    coordinator_epoch: int
    producer_id: int
    epoch: int
    commit: bool
    version: int
    partitions: tuple[tuple[_StreamKey, _Count], ...]
    sequence: int = NO_SEQUENCE


class WriteMarkersResponse(msgspec.Struct, frozen=True, array_like=True, tag="written"):
    """For each partition None if all in-sync replicas have the marker, or the error."""

    results: tuple[Refused | None, ...]


class FindCommits(msgspec.Struct, frozen=True, array_like=True):
    """Ask each replica of partitions for the leader that it knows, and leaders for their high watermarks.

    `partitions` are (stream, partition, the offset from which commit markers are requested; -1: none are).
    """

    partitions: tuple[tuple[_StreamKey, _Count, int], ...]


class FoundCommits(msgspec.Struct, frozen=True, array_like=True):
    """A partition in a leader epoch, -1 if unknown.

    `high_watermark` is -1 if this node does not lead, or cannot respond: `why`. `transactional`: the log has, or had,
    records of a transaction; `in_sync`: the nodes that may lead next. `commits` are markers: offset and sequence.
    """

    epoch: int
    high_watermark: int = -1
    transactional: bool = False
    in_sync: tuple[int, ...] = ()
    commits: tuple[tuple[int, int], ...] = ()
    why: str = ""


class CommitsFound(msgspec.Struct, frozen=True, array_like=True):
    """The partitions, in the order of the request."""

    partitions: tuple[FoundCommits, ...]


class HoldCommits(msgspec.Struct, frozen=True, array_like=True):
    """Ask coordinators to write no commit markers into these streams for a while, except for earlier decisions.

    `coordinators` are partitions of `__transaction_state`, with the leader epochs in which the node leads them.
    """

    hold_id: bytes
    streams: tuple[_StreamKey, ...]
    coordinators: tuple[tuple[_Count, int], ...]


class HeldCommits(msgspec.Struct, frozen=True, array_like=True):
    """A coordinator's decisions: up to that time in the commit sequences, except the `undecided` ones."""

    newest_us: int
    undecided: tuple[int, ...]


class CommitsHeld(msgspec.Struct, frozen=True, array_like=True):
    """The decisions of each coordinator at that time; all of them have their markers."""

    coordinators: tuple[HeldCommits, ...]


class ReleaseCommits(msgspec.Struct, frozen=True, array_like=True):
    """Release a hold of commits."""

    hold_id: bytes


class CommitsReleased(msgspec.Struct, frozen=True, array_like=True):
    """The hold is released."""


JOIN: Final = Method("join-transaction", Join, Joined, idempotent=False)
WRITE_MARKERS: Final = Method("write-markers", WriteMarkers, WriteMarkersResponse, idempotent=True)
FIND_COMMITS: Final = Method("find-commits", FindCommits, CommitsFound, idempotent=True)
HOLD_COMMITS: Final = Method("hold-commits", HoldCommits, CommitsHeld, idempotent=True)
RELEASE_COMMITS: Final = Method("release-commits", ReleaseCommits, CommitsReleased, idempotent=True)
