"""The epochs of a replica's log: its start and end, and the epoch of each range of offsets. Pure.

Two logs with an entry of the same epoch at the same offset are equal up to it. For their divergence see
`duramen.base.leader_epochs`.
"""

from typing import Final, NamedTuple

from duramen.base.leader_epochs import NO_END, LeaderEpochCache, Takeover, truncation

__all__ = ["NOTHING", "EpochEnd", "EpochTable"]


class EpochEnd(NamedTuple):
    """The epoch of the last entry and the offset after it. The greater of two is more up to date."""

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.offset}"


NOTHING: Final = EpochEnd(0, 0)
"""The end of a log that never had an entry."""


class EpochTable:
    """The epochs of a log and their first offsets. The quorum does not need the leaders of these epochs.

    `start` is the end of the snapshot at the beginning of the log, (0, 0) without a snapshot.
    """

    __slots__ = ("_cache", "end", "start")

    def __init__(self, start: EpochEnd = NOTHING) -> None:
        self.restart(start)

    def restart(self, start: EpochEnd) -> None:
        """Make the log empty; it begins at `start`."""
        self.start = self.end = start
        self._cache = LeaderEpochCache()

    def append(self, epoch: int, count: int) -> None:
        """Add `count` entries of `epoch`, which is not lower than the epoch of the last entry."""
        if epoch != self._cache.latest_epoch:
            self._cache.add(Takeover(epoch, -1, self.end.offset))
        self.end = EpochEnd(epoch, self.end.offset + count)

    def cut(self, end_offset: int) -> None:
        """Truncate the log at `end_offset`, which is not before the start."""
        self._cache.cut(end_offset)
        self.end = EpochEnd(self._cache.latest_epoch, end_offset) if self._cache else self.start

    def start_at(self, offset: int) -> None:
        """Move the start to `offset`, which lies in the log: a snapshot holds the entries below it."""
        self.start = EpochEnd(self.epoch_below(offset), offset)
        self._cache.start_at(offset)
        if self.end.offset == offset:
            self.restart(self.start)

    def epoch_below(self, offset: int) -> int:
        """The epoch of the entry before `offset`; at the start, the epoch of the snapshot's last entry."""
        epoch = self._cache.epoch_at(offset - 1)
        return epoch if epoch >= 0 else self.start.epoch

    def knows(self, end: EpochEnd) -> bool:
        """Whether this log can find its divergence from the history up to `end`: it is not before the start."""
        return end.offset >= self.start.offset and self.end_of(end.epoch).epoch <= end.epoch

    def holds(self, end: EpochEnd) -> bool:
        """Whether the log up to `end` is the history that `end` names."""
        return self.start.offset <= end.offset <= self.end.offset and self.epoch_below(end.offset) == end.epoch

    def end_of(self, epoch: int) -> EpochEnd:
        """The end of the last epoch that is not above `epoch`; the start if there is none."""
        end = self._cache.end_of(epoch, self.end.offset)
        return self.start if end == NO_END else EpochEnd(*end)

    def meeting(self, parting: EpochEnd) -> int:
        """The offset at which to truncate if the leader's part ends at `parting`."""
        return truncation(self.end_of(parting.epoch), parting)
