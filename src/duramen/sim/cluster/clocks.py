"""A node's clocks: one that drifts from the true time, and a wall clock that also jumps."""

from typing import Final

from duramen.sim.machine.scheduler import VirtualClock

__all__ = ["NodeClock"]

_MILLION: Final = 1_000_000
_MOST_MS: Final = 1_200_000


class NodeClock:
    """The Clock port of a node. `true` is the time that the whole run goes by."""

    def __init__(self, true: VirtualClock, drift_ppm: int) -> None:
        """It goes faster than the true time by so many parts of a million, or slower."""
        self._true = true
        self._drift_ppm = drift_ppm
        self._ahead_ms = 0

    @property
    def _now_us(self) -> int:
        return self._true.now_us + self._true.now_us * self._drift_ppm // _MILLION

    def monotonic_ms(self) -> int:
        now_us = self._true.now_us
        return (now_us + now_us * self._drift_ppm // _MILLION) // 1000

    def wall_ms(self) -> int:
        return self._true.wall_ms() + self._ahead_ms

    def seconds(self) -> float:
        return self._now_us / 1e6

    def pause(self, duration_s: float) -> None:
        """Nothing: a job takes the time that the process gives it."""

    def jump(self, duration_ms: int) -> None:
        """Set the wall clock forward, or back if negative; its error has a bound.

        Otherwise one node's present would be too far in another's future, which may refuse it.
        """
        self._ahead_ms = max(-_MOST_MS, min(self._ahead_ms + duration_ms, _MOST_MS))

    def true_us(self, monotonic_ms: int) -> int:
        """The true time at which this clock shows that."""
        at_us = monotonic_ms * 1000 * _MILLION // (_MILLION + self._drift_ppm)
        while (at_us + at_us * self._drift_ppm // _MILLION) // 1000 < monotonic_ms:
            at_us += 1
        return at_us
