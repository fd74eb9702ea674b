"""The offsets below which logs may be truncated, because a checkpoint has everything before them."""

from collections import deque

from duramen.base.deadlines import Alarm
from duramen.base.ports import Clock

__all__ = ["LaterCuts"]


class LaterCuts:
    """Offsets below which a log may be truncated, each a delay after it was known: the records are older by then."""

    def __init__(self, clock: Clock, alarm: Alarm) -> None:
        self._clock = clock
        self._alarm = alarm
        self._known: deque[tuple[int, int]] = deque()
        self._due = 0

    def end(self) -> None:
        """The log is deleted."""
        self._alarm.move(None)

    def due(self, offset: int, step: int, keep_ms: int) -> int:
        """The offset up to which the log may be truncated now.

        After `keep_ms` the log may be truncated up to `offset`. Steps have at least `step` records.
        """
        now_ms = self._clock.monotonic_ms()
        if offset >= step + (self._known[-1][1] if self._known else self._due):
            self._known.append((now_ms, offset))
        while self._known and self._known[0][0] + keep_ms <= now_ms:
            self._due = self._known.popleft()[1]
        self._alarm.move(self._known[0][0] + keep_ms if self._known else None)
        return min(self._due, offset)
