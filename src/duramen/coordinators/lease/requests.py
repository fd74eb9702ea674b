"""Requests between nodes about leases on snapshots, and their responses."""

from typing import Annotated, Final, Literal

import msgspec

from duramen.keyed.leases import SnapshotLease
from duramen.rpc.methods import Method

__all__ = [
    "ASK_LEASE", "FIND_HELD", "HOLD_SNAPSHOT", "AskLease", "FindHeld", "HeldSnapshots", "HoldSnapshot", "LeaseRow",
    "LeasesFound", "SnapshotHeld",
]  # fmt: skip

_StreamKey = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Count = Annotated[int, msgspec.Meta(ge=0)]
_Epoch = Annotated[int, msgspec.Meta(ge=-1)]

_WITHIN_MS: Final = 10_000


class LeaseRow(msgspec.Struct, frozen=True, array_like=True):
    """A lease. `positions`: partition, position, leader epoch of the record before the position."""

    lease_id: str
    positions: tuple[tuple[_Count, _Count, _Epoch], ...]
    expires_ms: int
    opened_ms: int

    @classmethod
    def of(cls, lease: SnapshotLease) -> "LeaseRow":
        """The row of a lease, for other nodes."""
        positions = [(index, position, lease.epochs.get(index, -1)) for index, position in lease.positions.items()]
        return cls(lease.lease_id, tuple(positions), lease.expires_ms, lease.opened_ms)

    def lease(self) -> SnapshotLease:
        """The lease."""
        positions = {index: position for index, position, _ in self.positions}
        epochs = {index: epoch for index, _, epoch in self.positions}
        return SnapshotLease(self.lease_id, positions, self.expires_ms, self.opened_ms, epochs)


class AskLease(msgspec.Struct, frozen=True, array_like=True):
    """Ask the coordinator of leases to open, renew, close or show one, or to list those of a stream.

    `lease` is the one to open. A list has at most `limit` leases after the one opened at `after` with that id.
    """

    what: Literal["open", "renew", "close", "get", "list"]
    stream_id: _StreamKey
    lease_id: str = ""
    lease_ms: _Count = 0
    lease: LeaseRow | None = None
    after: tuple[int, str] = (-1, "")
    limit: _Count = 0


class LeasesFound(msgspec.Struct, frozen=True, array_like=True):
    """The requested lease, or those of a list; `more`: the list continues."""

    leases: tuple[LeaseRow, ...]
    more: bool = False


class FindHeld(msgspec.Struct, frozen=True, array_like=True):
    """The leader of partitions (stream, partition, leader epoch) asks for the snapshots that leases hold there."""

    partitions: tuple[tuple[_StreamKey, _Count, int], ...]


class HeldSnapshots(msgspec.Struct, frozen=True, array_like=True):
    """For each partition the oldest held position; None if none is held."""

    oldest: tuple[int | None, ...]


class HoldSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The coordinator has stored a lease: the leader of a partition must hold its snapshot from now on.

    `epoch` is the leader epoch of the record before the position.
    """

    stream_id: _StreamKey
    partition: _Count
    position: _Count
    epoch: _Epoch


class SnapshotHeld(msgspec.Struct, frozen=True, array_like=True):
    """S0 does not pass the position while a leader of this epoch leads."""

    leader_epoch: int


ASK_LEASE: Final = Method("snapshot-lease", AskLease, LeasesFound, idempotent=True, deadline_ms=_WITHIN_MS)
FIND_HELD: Final = Method("find-held-snapshots", FindHeld, HeldSnapshots, idempotent=True)
HOLD_SNAPSHOT: Final = Method("hold-snapshot", HoldSnapshot, SnapshotHeld, idempotent=True)
