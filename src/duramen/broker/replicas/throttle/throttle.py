"""Throttles catch-up: responses go out one at a time, each once the previous one is paid for.

The latency without catch-up shows only while no node serves any. So all leaders pause at the same time by the wall
clock, without messages. Earlier responses are still being written when a pause begins, so only its later part is
measured. A node with a wrong clock measures while others serve and throttles less; there is no other effect.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.ports import Clock
from duramen.broker.replicas.throttle.control import CatchUpRate

__all__ = ["PAUSE_MS", "PERIOD_MS", "SETTLED_MS", "UNLIMITED", "CatchUpThrottle", "pause_left_ms", "settled"]

UNLIMITED: Final = (1 << 63) - 1
"""As many bytes a second as there are (the default of Kafka's `leader.replication.throttled.rate`)."""
PERIOD_MS: Final = 20_000
"""Each pause begins so long after the one before."""
PAUSE_MS: Final = 2_000
SETTLED_MS: Final = 600
"""The part of a pause after which earlier traffic has no effect any more."""
_LEAST_PIECE_BYTES: Final = 512 << 10  # smaller ones cost twice the time of the processor
_PIECE_MS: Final = 4


class _Turn(NamedTuple):
    number: int  # in the order in which they asked
    go: Callable[[], None]


class CatchUpThrottle:
    """A rate, in bytes a second, that the followers share in the order of their requests.

    Producers hardly notice it (`CatchUpRate`), and it is at most `most_rate`. While there are any, followers with a
    large lag pause from time to time.
    """

    def __init__(self, most_rate: int, clock: Clock, deadlines: Deadlines) -> None:
        self._most_rate = most_rate
        self._clock = clock
        self._yielding = CatchUpRate(clock.monotonic_ms())
        self._asked = 0
        self._pausing: deque[_Turn] = deque()
        self._others: deque[_Turn] = deque()
        self._alarm = Alarm(deadlines, self._go_on)
        self._free_us = 0  # the time at which the sent bytes are paid for
        self._busy = False
        self._going = False

    @property
    def limited(self) -> bool:
        """Whether there is a bound that also holds for followers without a cost to others."""
        return self._most_rate != UNLIMITED

    @property
    def piece_bytes(self) -> int:
        """The bytes to copy at once, so that other work is not delayed."""
        return max(_LEAST_PIECE_BYTES, self._rate() * _PIECE_MS // 1000)

    def took(self, taken_us: int, *, leads: bool) -> None:
        """Until all in sync had a batch on disk it took so long, on its leader or on a follower."""
        paused = settled(self._clock.wall_ms())
        self._yielding.took(taken_us, self._clock.monotonic_ms(), leads=leads, paused=paused)

    def wrote(self, size: int) -> None:
        """Bytes were written to partitions that this node leads."""
        self._yielding.wrote(size, self._clock.monotonic_ms())

    def ask(self, go: Callable[[], None], *, pauses: bool) -> None:
        """Call `go` when it is its turn: now, or later, and not in a pause if it `pauses`.

        The callback calls `spent`, once.
        """
        self._asked += 1
        (self._pausing if pauses else self._others).append(_Turn(self._asked, go))
        self._go_on()

    def spent(self, size: int) -> None:
        """Whose turn it was has sent so many bytes."""
        now_ms = self._clock.monotonic_ms()
        self._yielding.sent(size, now_ms)
        self._free_us = max(self._free_us, 1000 * now_ms) + size * 1_000_000 // self._rate()
        self._busy = False
        self._go_on()

    def end(self) -> None:
        """No follower is served any more."""
        self._pausing.clear()
        self._others.clear()
        self._alarm.move(None)

    def _go_on(self) -> None:
        if self._going:
            return  # it has sent already: the loop below continues
        self._going = True
        while (self._pausing or self._others) and not self._busy:
            now_ms = self._clock.monotonic_ms()
            free_ms = self._free_us // 1000  # the clock knows no parts of it
            if now_ms < free_ms:
                self._alarm.move(free_ms)
                break
            left_ms = pause_left_ms(self._clock.wall_ms()) if self._yielding.has_writers(now_ms) else 0
            ready = [turns for turns in ((self._others,) if left_ms else (self._others, self._pausing)) if turns]
            if not ready:
                self._alarm.move(now_ms + left_ms)
                break
            self._busy = True
            min(ready, key=lambda turns: turns[0].number).popleft().go()
        self._going = False

    def _rate(self) -> int:
        return min(self._most_rate, self._yielding.rate(self._clock.monotonic_ms()))


def pause_left_ms(wall_ms: int) -> int:
    """The rest of the present pause in ms; 0 without one."""
    return max(0, PAUSE_MS - wall_ms % PERIOD_MS)


def settled(wall_ms: int) -> bool:
    """Whether a pause has lasted long enough to show the usual latency."""
    return SETTLED_MS <= wall_ms % PERIOD_MS < PAUSE_MS
