"""What a replica's log is to replication: where it begins and ends, who ordered what, what of it is synced. Pure.

Where two histories part is found from the epochs alone (KIP-101, KIP-279; over Fetch: KIP-595).
"""

from collections.abc import Iterable

from duramen.base.ids import Position
from duramen.storage.leader_epochs import Takeover, TakeoverTable

__all__ = ["ReplicaHistory"]


class ReplicaHistory:
    """A log from `start_offset` to `end_offset`; below `synced_offset` all that there is of it is on disk."""

    __slots__ = ("_end", "_takeovers", "end_offset", "start_offset", "synced_offset")

    def __init__(self, takeovers: Iterable[tuple[int, int, int]], start_offset: int, end_offset: int) -> None:
        self._takeovers = TakeoverTable(takeovers)
        self._end = Position(-1, -1)
        self.start_offset = start_offset
        self.end_offset = self.synced_offset = end_offset

    @property
    def end(self) -> Position:
        """The end that names this history."""
        epoch, end = self._takeovers.latest_epoch, self._end
        if end.offset != self.end_offset or end.leader_epoch != epoch:
            end = self._end = Position(epoch, self.end_offset)
        return end

    def epoch_at(self, offset: int) -> int:
        """The epoch that ordered the record there, or -1 where that is not known."""
        return self._takeovers.epoch_at(offset)

    def takeovers_after(self, epoch: int) -> tuple[Takeover, ...]:
        """The leaderships later than `epoch`."""
        return tuple(takeover for takeover in self._takeovers if takeover.epoch > epoch)

    def append(self, epoch: int, leader_id: int, records: int) -> None:
        """So many records of `epoch`, which is no lower than that of the last record."""
        if epoch != self._takeovers.latest_epoch:
            self._takeovers.add(Takeover(epoch, leader_id, self.end_offset))
        self.end_offset += records

    def cut(self, end_offset: int) -> None:
        """Let go of the records from `end_offset` on, which is not before the start."""
        self._takeovers.cut(end_offset)
        self.end_offset = end_offset
        self.synced_offset = min(self.synced_offset, end_offset)

    def restart(self, start_offset: int, high_watermark: int) -> None:
        """The log is empty and begins there. On disk is, until that is synced, what was committed of the old one."""
        self._takeovers = TakeoverTable()
        self.synced_offset = min(self.synced_offset, high_watermark)
        self.start_offset = self.end_offset = start_offset

    def start_at(self, offset: int) -> None:
        """What is below `offset`, which lies in the log, is gone, and so is what is known of who ordered it."""
        rows = list(self._takeovers)
        at = max((at for at, row in enumerate(rows) if row.first_offset <= offset), default=0)
        rows[at : at + 1] = [row._replace(first_offset=max(row.first_offset, offset)) for row in rows[at : at + 1]]
        self._takeovers = TakeoverTable(rows[at:])
        self.start_offset = offset

    def synced(self, end: Position) -> bool:
        """All up to there is on disk; whether that is news. It is none where `end` is no part of the log any more."""
        if not self.synced_offset < end.offset <= self.end_offset:
            return False
        if self._takeovers.epoch_at(end.offset - 1) != end.leader_epoch:
            return False
        self.synced_offset = end.offset
        return True

    def knows(self, end: Position) -> bool:
        """Whether it can be said at all where this log and the history that `end` names part.

        Of what is before the start it cannot: not of an end there, and not of one in an epoch before the first that is
        known. A log without a record, whose end names no epoch, is a part of any.
        """
        if end.offset < self.start_offset:
            return False
        first = next(iter(self._takeovers), None)
        return end.leader_epoch < 0 or (first is not None and first.epoch <= end.leader_epoch)

    def holds(self, end: Position) -> bool:
        """Whether this log is, up to there, the history that `end` names."""
        return self.knows(end) and end.offset <= self.end_offset and self.parting(end) is None

    def parting(self, end: Position) -> Position | None:
        """Where this log and the history that `end` names may part; None where they do not, up to there.

        `end` is one that this log knows of.
        """
        if end.leader_epoch < 0:
            return None
        epoch, offset = self._takeovers.end_of(end.leader_epoch, self.end_offset)
        return Position(epoch, offset) if epoch < end.leader_epoch or offset < end.offset else None

    def meeting(self, diverging: Position) -> int:
        """The offset to cut to where the leader's part ends at `diverging`: up to there the two may be the same.

        That is the end of this epoch, the leader's or this log's; where this log has nothing of it, that of the last
        epoch before, and where there is none, the start.
        """
        epoch, offset = self._takeovers.end_of(diverging.leader_epoch, self.end_offset)
        if epoch < 0:
            return self.start_offset
        return min(offset, diverging.offset) if epoch == diverging.leader_epoch else offset
