"""The snapshots and increments that a view can serve. Pure."""

from typing import NamedTuple

from duramen.base.errors import SnapshotNotReached, SnapshotStartOver, SnapshotTooOld

__all__ = ["SnapshotBounds"]


class SnapshotBounds(NamedTuple):
    """The bounds of a partition's snapshots: from `s0` to `position`, which the view has applied.

    The position is -1 while the view is loading.

    `horizon`: tombstones that count below it may have been dropped.
    """

    s0: int
    position: int
    horizon: int

    def check_snapshot(self, at: int) -> None:
        """Raise SnapshotTooOld, or SnapshotNotReached if the view has not reached it."""
        if self.position < 0:
            raise SnapshotNotReached("the view of the partition is being loaded")
        if at < self.s0:
            raise SnapshotTooOld(f"snapshots can be opened from {self.s0} on, and this one is at {at}")
        if at > self.position:
            raise SnapshotNotReached(f"the view has come to {self.position}, and the snapshot is at {at}")

    def check_changes(self, since: int, at: int) -> None:
        """Raise like `check_snapshot`, or SnapshotStartOver if deletions since then may be missing."""
        self.check_snapshot(at)
        if since > at:
            raise SnapshotNotReached(f"the snapshot at {at} is before {since}, the start of the requested changes")
        if since < self.horizon:
            raise SnapshotStartOver(
                f"tombstones are kept from {self.horizon} on, and the request starts at {since}: read a snapshot again"
            )
