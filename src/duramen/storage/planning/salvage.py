"""The content of a log, assembled from pieces of its segments and of the write-ahead log. Pure.

A *run* is a range of bytes in a file with batches of one epoch and dense offsets. Pieces of the write-ahead log are
added in its order, after those of the segments.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["OffsetRun", "SalvageGaps", "SalvagedHistory"]


class OffsetRun(NamedTuple):
    """Offsets `first` to before `next`, in `path` from `start` to `end`.

    Batches there that are not completely within these offsets do not belong to it.
    """

    first: int
    next: int
    epoch: int
    path: str
    start: int
    end: int


class SalvagedHistory:
    """The runs of a log, in order: offsets never overlap, epochs never decrease."""

    def __init__(self, runs: Iterable[OffsetRun] = ()) -> None:
        """`runs` are the segments' runs, in order."""
        self._runs: list[OffsetRun] = []
        for run in runs:
            self.append(run)

    def __iter__(self) -> Iterator[OffsetRun]:
        return iter(self._runs)

    @property
    def end_offset(self) -> int:
        """The offset after the last run; 0 without runs."""
        return self._runs[-1].next if self._runs else 0

    def _overlapping(self, run: OffsetRun) -> tuple[int, int]:
        low = bisect_right(self._runs, run.first, key=lambda known: known.next)
        return low, max(low, bisect_left(self._runs, run.next, key=lambda known: known.first))

    def append(self, run: OffsetRun) -> bool:
        """Add a run written after all present ones, unless its offsets are present already.

        Present runs that contradict it are removed, because its epoch is newer; the run itself is refused if its epoch
        is older.
        """
        low, high = self._overlapping(run)
        if low and self._runs[low - 1].epoch > run.epoch:
            return False
        if any(known.epoch >= run.epoch for known in self._runs[low:high]):
            return False
        if low < high and self._runs[low].first < run.first:
            self._runs[low] = self._runs[low]._replace(next=run.first)
            low += 1
        # Records of older leaders at or after these offsets were truncated before the run was written.
        stale = bisect_left(self._runs, run.epoch, lo=low, key=lambda known: known.epoch)
        self._runs[low:stale] = [run]
        return True

    def fill(self, run: OffsetRun) -> bool:
        """Add a run written before the present ones, if it lies in a hole whose neighbours' epochs agree."""
        low, high = self._overlapping(run)
        if low < high or (low < len(self._runs) and self._runs[low].epoch < run.epoch):
            return False
        if low and self._runs[low - 1].epoch > run.epoch:
            return False
        insort(self._runs, run)
        return True

    def cut(self, end_offset: int, boundary: Callable[[OffsetRun, int], int]) -> int:
        """Truncate to `end_offset`; returns the resulting end.

        `boundary(run, offset)` is the first offset of the batch of `run` with `offset`, which is removed as a whole.
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
    """Finds lost offsets; it gets the present ones in order. `lost` are ranges by first and last offset.

    A gap that ends at or below `cleaned_offset` comes from compaction, unless a range of `suspect` touches it.
    """

    def __init__(self, start_offset: int, cleaned_offset: int = 0, suspect: Sequence[tuple[int, int]] = ()) -> None:
        self.next_offset = start_offset
        self.lost: list[tuple[int, int]] = []
        self._cleaned = cleaned_offset
        self._suspect = suspect

    def reach(self, offset: int) -> None:
        """No records exist up to `offset`."""
        first, last = self.next_offset, offset - 1
        if first <= last:
            if offset > self._cleaned or any(low <= last and first <= high for low, high in self._suspect):
                self.lost.append((first, last))
            self.next_offset = offset

    def add(self, base_offset: int, next_offset: int) -> None:
        """A batch exists."""
        self.reach(base_offset)
        self.next_offset = next_offset
