"""How much of a disk and a processor those who catch up may have: what nobody else feels. Pure.

Who catches up gives way to producers. Before, while nobody does, it is learned how long an acknowledgement takes, on
whichever replica in sync this node has; while somebody does, each that takes longer than the slowest of a hundred did,
and a quarter, lowers the rate, and each that does not raises it a hundredth as much. So the rate settles where about
one in a hundred is that slow: a staircase whose steps are weighted (Kaernbach, "Simple adaptive testing with the
weighted up-down method", 1991). What is slow comes in bursts, so steps have to be so small that a burst does not bring
the rate down to the least, from where it would be back too early. They are larger at first and become smaller with
each burst (Kesten, "Accelerated stochastic approximation", 1958). Where all stays slow although next to nothing goes,
something else makes it slow: then that is what is usual.

A replica catches up in bounded time: there is a least rate, more than what is written meanwhile, and it doubles again
and again while that lasts.
"""

import math
from collections import deque
from typing import Final

__all__ = ["FIRST_RATE", "LEAST_RATE", "MOST_RATE", "Yielding"]

LEAST_RATE: Final = 4 << 20
"""Bytes a second that go whatever becomes of producers, at first."""
FIRST_RATE: Final = 8 << 20
"""Bytes a second with which it begins."""
MOST_RATE: Final = 8 << 30
"""Bytes a second that nothing goes beyond."""

_PATIENCE_MS: Final = 300_000
"""After so long the least rate is twice what it was."""
_WINDOW_MS: Final = 100
_QUIET_BYTES: Final = 64 << 10
"""Less than this in a window is nothing that others could feel."""
_REST_WINDOWS: Final = 10
"""After so many quiet windows one in a row, who comes next catches up anew."""
_GAIN: Final = 2.0
"""How many times what is written goes at least: what is lacking does not grow."""
_NEAR: Final = 1.5
_LONG_WINDOWS: Final = 100
"""So many in a row so near to the least rate: what is slow then is so without those who catch up."""
_SMOOTH: Final = 8.0
_KEPT: Final = 1024
_ENOUGH: Final = 100
_SLOWER: Final = 1.25
_RARE: Final = 0.01
_FIRST_STEP: Final = 0.0025
_LAST_STEP: Final = 0.0005
_SHORTER: Final = 0.5
"""Of a step that was too long."""
_STEPS: Final = 20
"""More samples in a window than these do not raise the rate faster."""
_FALL: Final = 0.35
_ALONE: Final = 1.25
"""Times the rate in each window while nobody writes."""
_SILENT_WINDOWS: Final = 10
"""After so many in a row without an acknowledgement nobody writes; before, the disk may stand still."""


class Yielding:
    """A rate in bytes a second. Times are those of a monotonic clock, in ms; what is told comes in their order."""

    def __init__(self, now_ms: int) -> None:
        self._window_ms = now_ms
        self._sent_bytes = 0
        self._wrote_bytes = 0
        self._written_rate = 0.0
        self._taken_us: list[int] = []  # in this window
        self._before_us: deque[int] = deque(maxlen=_KEPT)  # while nobody catches up
        self._slow_us: float | None = None
        self._began_ms: int | None = None  # since when somebody catches up
        self._quiet = 0
        self._silent = _SILENT_WINDOWS  # windows in a row in which nothing was acknowledged
        self._least = 0  # windows in a row near to the least rate
        self._rate = float(FIRST_RATE)
        self._step = _FIRST_STEP

    def took(self, taken_us: int, now_ms: int) -> None:
        """Until all in sync had a batch on disk it took so long."""
        self._close(now_ms)
        if len(self._taken_us) < _KEPT:
            self._taken_us.append(taken_us)

    def wrote(self, size: int, now_ms: int) -> None:
        """So many bytes were written to what this node leads."""
        self._close(now_ms)
        self._wrote_bytes += size

    def sent(self, size: int, now_ms: int) -> None:
        """So many bytes went to who catches up."""
        self._close(now_ms)
        self._sent_bytes += size

    def rate(self, now_ms: int) -> int:
        """Bytes a second that may go now."""
        self._close(now_ms)
        return int(self._rate)

    def _close(self, now_ms: int) -> None:
        """A window may be over. Where others were before it in which nothing happened they were quiet ones."""
        windows = (now_ms - self._window_ms) // _WINDOW_MS
        if windows < 1:
            return
        wrote_rate = self._wrote_bytes * 1000 / (windows * _WINDOW_MS)
        self._written_rate += (wrote_rate - self._written_rate) * min(1.0, windows / _SMOOTH)
        self._silent = windows - 1 if self._taken_us else self._silent + windows
        if self._sent_bytes < _QUIET_BYTES:
            self._rest(windows)
        else:
            self._work(now_ms)
            self._quiet = windows - 1
        self._window_ms += windows * _WINDOW_MS
        self._sent_bytes = self._wrote_bytes = 0
        self._taken_us = []

    def _rest(self, windows: int) -> None:
        self._quiet += windows
        if self._began_ms is None or self._quiet >= _REST_WINDOWS:
            self._before_us.extend(self._taken_us)
            self._least = 0
            self._began_ms, self._slow_us = None, None
            self._rate, self._step = float(FIRST_RATE), _FIRST_STEP

    def _work(self, now_ms: int) -> None:
        if self._began_ms is None:
            self._began_ms = now_ms
        if self._taken_us and self._slow_us is None:
            self._learn()
        if self._silent > _SILENT_WINDOWS:
            self._rate *= _ALONE
        elif self._taken_us and self._slow_us is not None:
            slow = sum(1 for one_us in self._taken_us if one_us > self._slow_us)
            step = self._step * min(1.0, _STEPS / len(self._taken_us))
            exponent = step * ((len(self._taken_us) - slow) - slow * (1 - _RARE) / _RARE)
            self._rate *= max(_FALL, math.exp(exponent))
            if slow:
                self._step = max(_LAST_STEP, self._step * _SHORTER)
        least = max(LEAST_RATE * 2.0 ** min(64.0, (now_ms - self._began_ms) / _PATIENCE_MS), _GAIN * self._written_rate)
        self._rate = min(max(self._rate, least), float(MOST_RATE))
        self._least = self._least + 1 if self._rate <= _NEAR * least else 0
        if self._least > _LONG_WINDOWS and self._taken_us and self._slow_us is not None:
            self._before_us.extend(self._taken_us)
            self._learn()
            self._least, self._step = 0, _FIRST_STEP

    def _learn(self) -> None:
        """What is slow; where too little is known of before, that is learned at the rate of the beginning."""
        if len(self._before_us) < _ENOUGH:
            self._before_us.extend(self._taken_us)
            return
        ordered = sorted(self._before_us)
        self._slow_us = _SLOWER * ordered[int(len(ordered) * (1 - _RARE))]
