"""What unanswered requests may hold in memory, all connections together.

A connection that wants more than there is stops reading and stands in line. When somebody stands in line and
connections sit on half a request without sending on, the one that has been silent longest is closed.
"""

from collections import deque
from typing import Final, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.metrics import Metrics
from duramen.base.ports import Clock

__all__ = ["Holder", "RequestMemory"]

_STALLED_MS: Final = 1000


class Holder(Protocol):
    """A connection."""

    last_progress_ms: int

    def memory_granted(self) -> None:
        """There is room now: go on reading."""

    def holds_half_a_request(self) -> bool:
        """Whether part of a request has come and the rest has not."""

    def reclaim(self) -> None:
        """Close: others need the memory."""


class RequestMemory:
    """An account in bytes. A single request that is larger than the whole account is let in alone."""

    def __init__(self, limit_bytes: int, clock: Clock, deadlines: Deadlines, metrics: Metrics) -> None:
        self._limit = limit_bytes
        self._clock = clock
        self._deadlines = deadlines
        self._used = 0
        self._waiting: deque[tuple[Holder, int]] = deque()
        self._checking = False
        self._gauge = metrics.counter("duramen_kafka_request_bytes")
        self._paused = metrics.counter("duramen_kafka_paused_reads_total", "memory")
        self._reclaimed = metrics.counter("duramen_kafka_reclaimed_total")
        self.holders: set[Holder] = set()

    def acquire(self, holder: Holder, size: int) -> bool:
        """Take `size` bytes; where they are not there now, `holder` waits and is told when it has them."""
        if not self._waiting and self._fits(size):
            self._take(size)
            return True
        self._waiting.append((holder, size))
        self._paused.value += 1
        self._check_later()
        return False

    def take(self, size: int) -> None:
        """Count bytes that are in memory already."""
        self._take(size)

    def _take(self, size: int) -> None:
        self._used += size
        self._gauge.value = self._used

    def _fits(self, size: int) -> bool:
        return self._used + size <= self._limit or self._used == 0

    def release(self, size: int) -> None:
        """Give bytes back; whoever waits first gets them."""
        self._take(-size)
        while self._waiting and self._fits(self._waiting[0][1]):
            holder, wanted = self._waiting.popleft()
            self._take(wanted)
            holder.memory_granted()

    def forget(self, holder: Holder) -> None:
        """The connection is gone; it does not wait any more."""
        self.holders.discard(holder)
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not holder)

    def _check_later(self) -> None:
        if not self._checking:
            self._checking = True
            self._deadlines.at(self._clock.monotonic_ms() + _STALLED_MS, self._check)

    def _check(self) -> None:
        self._checking = False
        if not self._waiting:
            return
        before_ms = self._clock.monotonic_ms() - _STALLED_MS
        waiting = {id(holder) for holder, _ in self._waiting}
        stalled = [
            holder
            for holder in self.holders
            if holder.holds_half_a_request() and holder.last_progress_ms <= before_ms and id(holder) not in waiting
        ]
        for holder in sorted(stalled, key=lambda stalled: stalled.last_progress_ms):
            if not self._waiting:
                break
            self._reclaimed.value += 1
            holder.reclaim()
        if self._waiting:
            self._check_later()
