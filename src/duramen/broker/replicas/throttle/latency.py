"""Time until all in-sync replicas have a batch, and the local write rate: the inputs of the throttle."""

from collections import deque
from typing import Final

from duramen.base.ports import Clock
from duramen.broker.replicas.throttle.throttle import CatchUpThrottle
from duramen.storage.log.log import Log

__all__ = ["AckLatencyTimer"]

_MOST: Final = 64
"""Batches on their way whose time is taken: of more, those behind are about as late."""


class AckLatencyTimer:
    """The time from a batch's arrival at an in-sync replica until it learns that all have it on disk.

    On a leader that is an acknowledgement. A follower learns it at once too, so that a node which serves others while
    this node follows knows the latency of producers elsewhere.
    """

    def __init__(self, log: Log, clock: Clock, pace: CatchUpThrottle | None) -> None:
        self._log = log
        self._clock = clock
        self._pace = pace
        # Of batches on their way, since when, and whether as leader.
        self._ends: deque[tuple[int, float, bool]] = deque()
        # Not the segment itself, which would keep its files open once it is gone.
        self._base_offset, self._size = log.active.base_offset, log.active.size

    def appended(self, end_offset: int, *, leads: bool, in_sync: bool) -> None:
        """A batch is in the log, which ends at `end_offset`."""
        if self._pace is None:
            return
        segment = self._log.active
        grown = segment.size - (self._size if segment.base_offset == self._base_offset else 0)
        self._base_offset, self._size = segment.base_offset, segment.size
        if leads:
            self._pace.wrote(max(0, grown))
        if in_sync and len(self._ends) < _MOST:
            self._ends.append((end_offset, self._clock.seconds(), leads))

    def reached(self, offset: int) -> None:
        """All below is on the disks of all in sync."""
        while self._ends and self._ends[0][0] <= offset:
            _, since_s, leads = self._ends.popleft()
            if self._pace is not None:
                self._pace.took(int(1_000_000 * (self._clock.seconds() - since_s)), leads=leads)

    def forget(self) -> None:
        """The leader or the in-sync set changes: the time of batches under way does not count."""
        self._ends.clear()
