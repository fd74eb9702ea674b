"""The content of a log, assembled from pieces of its segments and of the write-ahead log. Pure.

A *run* is a range of bytes in a file with batches of one epoch and dense offsets. Pieces of the write-ahead log are
added in its order, after those of the segments.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["Run", "SalvageGaps", "SalvagedHistory"]


class Run(NamedTuple):
    """Offsets `first` to before `next`, in `path` from `start` to `end`.

    Batches there that do not lie wholly within these offsets do not belong to it.
    """

    first: int
    next: int
    epoch: int
    path: str
    start: int
    end: int


class SalvagedHistory:
    """The runs of a log, in order: offsets never overlap, epochs never fall."""

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        """`runs` are those of segments, in order."""
        self._runs: list[Run] = []
        for run in runs:
            self.append(run)

    def __iter__(self) -> Iterator[Run]:
        return iter(self._runs)

    @property
    def end_offset(self) -> int:
        """The offset after the last run; 0 where there is none."""
        return self._runs[-1].next if self._runs else 0

    def _overlapping(self, run: Run) -> tuple[int, int]:
        low = bisect_right(self._runs, run.first, key=lambda known: known.next)
        return low, max(low, bisect_left(self._runs, run.next, key=lambda known: known.first))

    def append(self, run: Run) -> bool:
        """Enter what was written after all that is here, as far as the same offsets are not here already.

        What it contradicts, because it was ordered in a newer epoch, goes; it goes itself where its epoch is older.
        """
        low, high = self._overlapping(run)
        if low and self._runs[low - 1].epoch > run.epoch:
            return False
        if any(known.epoch >= run.epoch for known in self._runs[low:high]):
            return False
        if low < high and self._runs[low].first < run.first:
            self._runs[low] = self._runs[low]._replace(next=run.first)
            low += 1
        # Whatever an older leader ordered at or behind these offsets was cut before they were written.
        stale = bisect_left(self._runs, run.epoch, lo=low, key=lambda known: known.epoch)
        self._runs[low:stale] = [run]
        return True

    def fill(self, run: Run) -> bool:
        """Enter what was written before what is here, if it lies in a hole, of which the epochs around say the same."""
        low, high = self._overlapping(run)
        if low < high or (low < len(self._runs) and self._runs[low].epoch < run.epoch):
            return False
        if low and self._runs[low - 1].epoch > run.epoch:
            return False
        insort(self._runs, run)
        return True

    def cut(self, end_offset: int, boundary: Callable[[Run, int], int]) -> int:
        """Everything from `end_offset` on goes; returns the end that this leaves.

        `boundary(run, offset)` is the first offset of the batch of `run` that holds `offset`, which goes whole.
        """
        count = bisect_left(self._runs, end_offset, key=lambda known: known.first)
        del self._runs[count:]
        if self._runs and self._runs[-1].next > end_offset:
            last = self._runs[-1]
            end_offset = boundary(last, end_offset)
            if end_offset > last.first:
                self._runs[-1] = last._replace(next=end_offset)
            else:
                del self._runs[-1]
        return end_offset


class SalvageGaps:
    """Which offsets are lost, told of those that are there in their order. `lost` are ranges by first and last offset.

    A gap that ends at or below `cleaned_offset` is one of compaction's, unless a range of `suspect` touches it.
    """

    def __init__(self, start_offset: int, cleaned_offset: int = 0, suspect: Sequence[tuple[int, int]] = ()) -> None:
        self.next_offset = start_offset
        self.lost: list[tuple[int, int]] = []
        self._cleaned = cleaned_offset
        self._suspect = suspect

    def reach(self, offset: int) -> None:
        """Nothing is there up to `offset`."""
        first, last = self.next_offset, offset - 1
        if first <= last:
            if offset > self._cleaned or any(low <= last and first <= high for low, high in self._suspect):
                self.lost.append((first, last))
            self.next_offset = offset

    def add(self, base_offset: int, next_offset: int) -> None:
        """A batch is there."""
        self.reach(base_offset)
        self.next_offset = next_offset
