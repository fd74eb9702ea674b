"""What a replica's log is to the quorum: where it begins and ends, and which epoch ordered which offsets. Pure.

Two logs that have an entry of the same epoch at the same offset are the same up to it, so an end, (epoch of the last
entry, offset behind it), names a whole history. Where two histories part is found from the epochs alone (KIP-101,
KIP-279; over Fetch: KIP-595).
"""

from bisect import bisect_right
from typing import Final, NamedTuple

__all__ = ["NOTHING", "EpochEnd", "EpochTable"]


class EpochEnd(NamedTuple):
    """The epoch of a history's last entry and the offset behind it. Of two, the greater is further on."""

    epoch: int
    offset: int

    def __str__(self) -> str:
        return f"{self.epoch}:{self.offset}"


NOTHING: Final = EpochEnd(0, 0)
"""The end of a log in which there has never been anything."""


class EpochTable:
    """The epochs of a log and the offsets with which they begin.

    `start` is the end of the snapshot with which the log begins, (0, 0) where it begins with nothing.
    """

    __slots__ = ("_epochs", "_firsts", "end", "start")

    def __init__(self, start: EpochEnd = NOTHING) -> None:
        self.restart(start)

    def restart(self, start: EpochEnd) -> None:
        """The log is empty and begins at `start`."""
        self.start = self.end = start
        self._epochs: list[int] = []
        self._firsts: list[int] = []

    def append(self, epoch: int, count: int) -> None:
        """`count` entries of `epoch`, which is no lower than that of the last entry."""
        if not self._epochs or epoch != self._epochs[-1]:
            self._epochs.append(epoch)
            self._firsts.append(self.end.offset)
        self.end = EpochEnd(epoch, self.end.offset + count)

    def cut(self, end_offset: int) -> None:
        """Let go of the entries from `end_offset` on, which is not before the start."""
        while self._firsts and self._firsts[-1] >= end_offset:
            del self._firsts[-1], self._epochs[-1]
        self.end = EpochEnd(self._epochs[-1], end_offset) if self._epochs else self.start

    def start_at(self, offset: int) -> None:
        """A snapshot holds what is below `offset`, which lies in the log: it begins there now."""
        self.start = EpochEnd(self.epoch_below(offset), offset)
        gone = bisect_right(self._firsts, offset) - 1
        if gone >= 0:
            del self._firsts[:gone], self._epochs[:gone]
            self._firsts[0] = offset
        if self.end.offset == offset:
            self.restart(self.start)

    def epoch_below(self, offset: int) -> int:
        """The epoch of the entry before `offset`, of the snapshot's last entry at the start."""
        at = bisect_right(self._firsts, offset - 1) - 1
        return self._epochs[at] if at >= 0 else self.start.epoch

    def holds(self, end: EpochEnd) -> bool:
        """Whether the log is, up to there, the history that `end` names."""
        return self.start.offset <= end.offset <= self.end.offset and self.epoch_below(end.offset) == end.epoch

    def end_of(self, epoch: int) -> EpochEnd:
        """The end of the last epoch that is not above `epoch`; the start where there is none."""
        behind = bisect_right(self._epochs, epoch)
        if behind == 0:
            return self.start
        return EpochEnd(
            self._epochs[behind - 1], self._firsts[behind] if behind < len(self._firsts) else self.end.offset
        )
