"""Produce latency: its usual value, and the factor by which acknowledgements count as slow. Pure.

Two quantiles are usual: the latency of the slowest in ten and of the slowest in a hundred. A busy disk or processor
raises both, and the former is known ten times sooner (docs/performance-notes.md); occasional stalls raise only the
latter.
"""

from collections import deque
from typing import Final

__all__ = ["Acknowledgements"]

_KEPT: Final = 1024
_ENOUGH: Final = 100
_LATE: Final = 0.1
"""How many may be so much slower than as many are else."""
_RARE: Final = 0.01
_RARE_STEPS: Final = 20.0
"""Of each that is slower than this many are else, besides those of the others."""


class Acknowledgements:
    """Latencies of a window of time, in µs each, and the known quantiles of earlier ones."""

    def __init__(self, slower: float) -> None:
        """Latencies of `slower` times the usual value are slow."""
        self._slower = slower
        self._taken_us: list[int] = []
        self._paused_us: list[int] = []
        self._usual_us: deque[int] = deque(maxlen=_KEPT)
        self._slow_us: tuple[float, float] | None = None  # of the late ones and of the rare ones

    @property
    def count(self) -> int:
        """How many of this window are kept: all, unless there are very many."""
        return len(self._taken_us)

    def took(self, taken_us: int, *, paused: bool) -> None:
        """Record a latency; `paused`: it occurred while no follower caught up."""
        if len(self._taken_us) < _KEPT:
            self._taken_us.append(taken_us)
            if paused:
                self._paused_us.append(taken_us)

    def learn(self, *, paused: bool) -> None:
        """The latencies of this window are usual, or those while no follower caught up."""
        learned_us = self._paused_us if paused else self._taken_us
        if learned_us:
            self._usual_us.extend(learned_us)
            self._slow_us = None

    def steps(self) -> float:
        """One up for each of this window; more than that down for each that is slow. 0 while nothing is known."""
        if self._slow_us is None:
            if len(self._usual_us) < _ENOUGH:
                return 0.0
            ordered = sorted(self._usual_us)
            late_us, rare_us = (self._slower * ordered[int(len(ordered) * (1 - many))] for many in (_LATE, _RARE))
            self._slow_us = late_us, rare_us
        late, rare = (sum(1 for one_us in self._taken_us if one_us > slow_us) for slow_us in self._slow_us)
        return self.count - late / _LATE - rare * _RARE_STEPS

    def forget(self) -> None:
        """A window begins."""
        self._taken_us, self._paused_us = [], []
