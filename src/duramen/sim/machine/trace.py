"""The events of a run, one per line: the same seed writes the same bytes in every process."""

from collections import deque
from collections.abc import Callable
from typing import Final

from duramen.sim.machine.scheduler import VirtualClock

__all__ = ["BrokenPromise", "Stuck", "Trace"]

_REMEMBERED: Final = 60


class BrokenPromise(BaseException):
    """Something that Duramen promises is not so. No code under test may catch it."""


class Stuck(BrokenPromise):
    """Nothing is lost, but the cluster does not go on where it should."""


class Trace:
    """Lines with their virtual time. The last ones are remembered; all of them go to `write`, where there is one."""

    def __init__(self, clock: VirtualClock, write: Callable[[str], object] | None = None) -> None:
        self._clock = clock
        self._write = write
        self._last: deque[tuple[int, str, tuple[object, ...]]] = deque(maxlen=_REMEMBERED)

    def __call__(self, words: str, *values: object) -> None:
        """Note that `words` happened, formatted with `values` if anybody wants to see it."""
        self._last.append((self._clock.now_us, words, values))
        if self._write is not None:
            self._write(_line(*self._last[-1]))

    def last(self) -> list[str]:
        """The last lines."""
        return [_line(*event) for event in self._last]


def _line(now_us: int, words: str, values: tuple[object, ...]) -> str:
    return f"{now_us / 1000:14.3f} {words % values if values else words}"
