"""Rests in computing jobs, so that threads that wait for the interpreter or a processor run first.

A computing thread holds Python's global lock: a thread that wakes waits for a switch interval, and an acknowledgement
needs the lock three times. So jobs compute in slices shorter than that interval, and after each slice leave the lock
and the processor to others for longer than the slice took.
"""

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from duramen.base.ports import Clock

__all__ = ["Rests"]

T = TypeVar("T")

_GRAIN: Final = 16  # pieces of work between two looks at the clock, so that looking costs little
_SLICE_S: Final = 0.00004


class Rests:
    """For one job at a time: counts pieces of work, each of some microseconds, and pauses when due."""

    __slots__ = ("_began_s", "_clock", "_left", "_pause_ratio", "_rested_s", "hurried")

    def __init__(self, clock: Clock, share: float) -> None:
        """`share`: of one processor, above 0 and at most 1; with 1 it yields the lock without waiting."""
        self.hurried = False  # the job should end soon: no more pauses
        self._clock = clock
        self._pause_ratio = 1 / share - 1
        self._left = _GRAIN
        self._began_s = 0.0
        self._rested_s = 0.0

    def begin(self) -> None:
        """A job begins."""
        self._began_s = self._clock.seconds()

    def piece(self) -> None:
        """A piece of work is done. Blocking."""
        self._left -= 1
        if not self._left:
            self._left = _GRAIN
            self._look()

    def each(self, things: Iterable[T]) -> Iterator[T]:
        """The same items; each is a piece of work. Blocking."""
        for thing in things:
            self.piece()
            yield thing

    def rested_ms(self) -> int:
        """Whole milliseconds of pauses since the last call."""
        rested_ms = int(self._rested_s * 1000)
        self._rested_s -= rested_ms / 1000
        return rested_ms

    def _look(self) -> None:
        now_s = self._clock.seconds()
        worked_s = now_s - self._began_s
        if worked_s < _SLICE_S or self.hurried:
            return
        self._clock.pause(worked_s * self._pause_ratio)
        self._began_s = self._clock.seconds()
        self._rested_s += self._began_s - now_s
