"""The offsets below which logs may be truncated, because a checkpoint has everything before them."""

from collections import deque
from collections.abc import Callable

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

    def due(self, offset: int, step: int, keep_ms: int, times: Callable[[int], int]) -> int:
        """The offset up to which the log may be truncated now.

        After `keep_ms` the log may be truncated up to `offset`, or after the multiple that `times` returns for it.
        Steps have at least `step` records.
        """
        now_ms = self._clock.monotonic_ms()
        if offset >= step + (self._known[-1][1] if self._known else self._due):
            self._known.append((now_ms, offset))
        due_ms = self._next_ms(keep_ms, times)
        while due_ms is not None and due_ms <= now_ms:
            self._due = self._known.popleft()[1]
            due_ms = self._next_ms(keep_ms, times)
        self._alarm.move(due_ms)
        return min(self._due, offset)

    def _next_ms(self, keep_ms: int, times: Callable[[int], int]) -> int | None:
        if not self._known:
            return None
        known_ms, offset = self._known[0]
        return known_ms + keep_ms * times(offset)
