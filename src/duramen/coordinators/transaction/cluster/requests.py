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
    """The leader of partitions asks the coordinator before it appends what a transaction writes there (KIP-890).

    With `joins` they are part of the transaction from then on; without, they have to be already. `partitions` are
    (stream, partition).
    """

    id: str
    producer_id: int
    epoch: int
    joins: bool
    partitions: tuple[tuple[str, _Count], ...]


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="joined"):
    """It may append. `begins` says of each partition whether it has joined just now."""

    coordinator_epoch: int
    begins: tuple[bool, ...]


class WriteMarkers(msgspec.Struct, frozen=True, array_like=True, tag="markers"):
    """The coordinator asks a leader to end a transaction in partitions of (stream id, partition).

    `coordinator` is the partition of `__transaction_state`, which its asker leads in `coordinator_epoch`. Of `version`
    2 on the marker's epoch is higher than any that the transaction has written in (KIP-890). `sequence` is the
    transaction's commit sequence, which older nodes do not know of.
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
    """For each partition None where all replicas in sync have the marker, or why not."""

    results: tuple[Refused | None, ...]


class FindCommits(msgspec.Struct, frozen=True, array_like=True):
    """Each replica of partitions is to say who leads as far as it knows, and leaders what is committed.

    `partitions` are (stream, partition, from which offset on commit markers are wanted; -1: none are).
    """

    partitions: tuple[tuple[_StreamKey, _Count, int], ...]


class FoundCommits(msgspec.Struct, frozen=True, array_like=True):
    """A partition in a leader epoch, -1 where that is not known.

    `high_watermark` is -1 where this node does not lead, or cannot answer: `why`. `transactional` says whether the log
    has, or had, something of a transaction, `in_sync` who may lead next. `commits` are markers: offset and sequence.
    """

    epoch: int
    high_watermark: int = -1
    transactional: bool = False
    in_sync: tuple[int, ...] = ()
    commits: tuple[tuple[int, int], ...] = ()
    why: str = ""


class CommitsFound(msgspec.Struct, frozen=True, array_like=True):
    """The partitions, as they were asked for."""

    partitions: tuple[FoundCommits, ...]


class HoldCommits(msgspec.Struct, frozen=True, array_like=True):
    """Coordinators are to write no commit marker into these streams for a while, but of what is decided already.

    `coordinators` are partitions of `__transaction_state`, with the leader epochs in which the node leads them.
    """

    hold_id: bytes
    streams: tuple[_StreamKey, ...]
    coordinators: tuple[tuple[_Count, int], ...]


class HeldCommits(msgspec.Struct, frozen=True, array_like=True):
    """What a coordinator has decided: up to that time in the commit sequences, but for those that are `undecided`."""

    newest_us: int
    undecided: tuple[int, ...]


class CommitsHeld(msgspec.Struct, frozen=True, array_like=True):
    """Of each coordinator what it had decided by then; all of that has its markers."""

    coordinators: tuple[HeldCommits, ...]


class ReleaseCommits(msgspec.Struct, frozen=True, array_like=True):
    """Coordinators may go on."""

    hold_id: bytes


class CommitsReleased(msgspec.Struct, frozen=True, array_like=True):
    """They do."""


JOIN: Final = Method("join-transaction", Join, Joined, idempotent=False)
WRITE_MARKERS: Final = Method("write-markers", WriteMarkers, WriteMarkersResponse, idempotent=True)
FIND_COMMITS: Final = Method("find-commits", FindCommits, CommitsFound, idempotent=True)
HOLD_COMMITS: Final = Method("hold-commits", HoldCommits, CommitsHeld, idempotent=True)
RELEASE_COMMITS: Final = Method("release-commits", ReleaseCommits, CommitsReleased, idempotent=True)
