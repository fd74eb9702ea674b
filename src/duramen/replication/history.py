"""A replica's log as replication sees it: its start and end, its leader epochs, its synced end. Pure.

For the divergence of two histories see `duramen.base.leader_epochs`.
"""

from collections.abc import Iterable

from duramen.base.ids import Position
from duramen.base.leader_epochs import LeaderEpochCache, Takeover, diverging, truncation

__all__ = ["ReplicaHistory"]


class ReplicaHistory:
    """A log from `start_offset` to `end_offset`; everything below `synced_offset` is on disk."""

    __slots__ = ("_end", "_takeovers", "end_offset", "start_offset", "synced_offset")

    def __init__(self, takeovers: Iterable[tuple[int, int, int]], start_offset: int, end_offset: int) -> None:
        self._takeovers = LeaderEpochCache(takeovers)
        self._end = Position(-1, -1)
        self.start_offset = start_offset
        self.end_offset = self.synced_offset = end_offset

    @property
    def end(self) -> Position:
        """The end that identifies this history."""
        epoch, end = self._takeovers.latest_epoch, self._end
        if end.offset != self.end_offset or end.leader_epoch != epoch:
            end = self._end = Position(epoch, self.end_offset)
        return end

    def epoch_at(self, offset: int) -> int:
        """The epoch of the record at this offset, or -1 if unknown."""
        return self._takeovers.epoch_at(offset)

    def takeovers_after(self, epoch: int) -> tuple[Takeover, ...]:
        """The leaderships later than `epoch`."""
        return tuple(takeover for takeover in self._takeovers if takeover.epoch > epoch)

    def append(self, epoch: int, leader_id: int, records: int) -> None:
        """Add a number of records of `epoch`, which is not lower than that of the last record."""
        if epoch != self._takeovers.latest_epoch:
            self._takeovers.add(Takeover(epoch, leader_id, self.end_offset))
        self.end_offset += records

    def cut(self, end_offset: int) -> None:
        """Truncate the log at `end_offset`, which is not before the start."""
        self._takeovers.cut(end_offset)
        self.end_offset = end_offset
        self.synced_offset = min(self.synced_offset, end_offset)

    def restart(self, start_offset: int, high_watermark: int) -> None:
        """Restart the log empty at this offset. Until a sync, the disk has the committed part of the old log."""
        self._takeovers = LeaderEpochCache()
        self.synced_offset = min(self.synced_offset, high_watermark)
        self.start_offset = self.end_offset = start_offset

    def start_at(self, offset: int) -> None:
        """Remove records below `offset`, which is in the log, and their epochs."""
        self._takeovers.start_at(offset)
        self.start_offset = offset

    def synced(self, end: Position) -> bool:
        """Note that the log up to `end` is on disk; returns whether that is new.

        It is not if `end` is no longer part of the log.
        """
        if not self.synced_offset < end.offset <= self.end_offset:
            return False
        if self._takeovers.epoch_at(end.offset - 1) != end.leader_epoch:
            return False
        self.synced_offset = end.offset
        return True

    def knows(self, end: Position) -> bool:
        """Whether the divergence between this log and the history that `end` names can be determined.

        It cannot for ends before the start, or in an epoch before the first known one. A log without records, whose end
        names no epoch, is a prefix of any.
        """
        if end.offset < self.start_offset:
            return False
        return end.leader_epoch < 0 or 0 <= self._takeovers.earliest_epoch <= end.leader_epoch

    def holds(self, end: Position) -> bool:
        """Whether this log up to `end` is the history that `end` names."""
        return self.knows(end) and end.offset <= self.end_offset and self.parting(end) is None

    def parting(self, end: Position) -> Position | None:
        """The offset at which this log and the history up to `end` may diverge; None if they do not.

        `end` must be known to this log.
        """
        if end.leader_epoch < 0:
            return None
        own = self._takeovers.end_of(end.leader_epoch, self.end_offset)
        return own if diverging(own, end) else None

    def meeting(self, parting: Position) -> int:
        """The offset at which to truncate if the leader's part ends at `parting`; the start if nothing is shared."""
        own = self._takeovers.end_of(parting.leader_epoch, self.end_offset)
        return truncation(own, parting) if own.leader_epoch >= 0 else self.start_offset
