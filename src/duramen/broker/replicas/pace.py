"""How fast replicas that catch up are served: one answer after the other, each once the one before is paid for."""

from collections import deque
from collections.abc import Callable
from typing import Final

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.ports import Clock

__all__ = ["UNLIMITED", "Pace"]

UNLIMITED: Final = (1 << 63) - 1
"""As many bytes a second as there are (the default of Kafka's `leader.replication.throttled.rate`)."""


class Pace:
    """A rate, in bytes a second, that those who are served share in the order in which they ask."""

    def __init__(self, rate: int, clock: Clock, deadlines: Deadlines) -> None:
        self._rate = rate
        self._clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._alarm = Alarm(deadlines, self._go_on)
        self._free_us = 0  # when what was sent is paid for
        self._busy = False
        self._going = False

    @property
    def limited(self) -> bool:
        """Whether anybody has to ask."""
        return self._rate != UNLIMITED

    def ask(self, go: Callable[[], None]) -> None:
        """Call `go` when it is its turn: now, or later. Whoever went says `spent`, once."""
        self._waiting.append(go)
        self._go_on()

    def spent(self, size: int) -> None:
        """Whose turn it was has sent so many bytes."""
        now_us = 1000 * self._clock.monotonic_ms()
        self._free_us = max(self._free_us, now_us) + size * 1_000_000 // self._rate
        self._busy = False
        self._go_on()

    def end(self) -> None:
        """Nobody is served any more."""
        self._waiting.clear()
        self._alarm.move(None)

    def _go_on(self) -> None:
        if self._going:
            return  # who went has sent already: the loop below goes on
        self._going = True
        while self._waiting and not self._busy:
            if 1000 * self._clock.monotonic_ms() < self._free_us:
                self._alarm.move(-(-self._free_us // 1000))
                break
            self._busy = True
            self._waiting.popleft()()
        self._going = False
