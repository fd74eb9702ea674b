"""Schedules the rounds of streams: immediately while one is behind, otherwise twice per lag, later after errors.

Pure.
"""

from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["RoundScheduler"]

_LEAST_S: Final = 0.25
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0


class RoundScheduler:
    """The order of rounds. Rounds of one stream run one after another, those of different streams concurrently.

    After an error a stream waits, twice as long each time: no other stream does.
    """

    def __init__(self) -> None:
        self._due_s: dict[str, float] = {}
        self._lag_s: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._busy: set[str] = set()

    def know(self, streams: Mapping[str, int], now_s: float) -> None:
        """Set the existing tables, with the lag in ms that each may have; new ones are due at once."""
        for name in self._due_s.keys() - streams.keys():
            del self._due_s[name]
            self._failures.pop(name, None)
        for name, lag_ms in streams.items():
            self._lag_s[name] = lag_ms / 1000
            self._due_s.setdefault(name, now_s)

    def take(self, now_s: float, most: int) -> list[str]:
        """Streams that are due, at most `most` including those at work: they are at work from now on."""
        due = sorted((due_s, name) for name, due_s in self._due_s.items() if due_s <= now_s and name not in self._busy)
        taken = [name for _, name in due[: max(0, most - len(self._busy))]]
        self._busy.update(taken)
        return taken

    def done(self, name: str, now_s: float, *, behind: bool) -> None:
        """Its round has ended; `behind`: there was more than it took."""
        self._end(name, now_s if behind else now_s + max(_LEAST_S, self._lag_s.get(name, 0) / 2))
        self._failures.pop(name, None)

    def failed(self, name: str, now_s: float) -> None:
        """Its round failed."""
        count = self._failures[name] = self._failures.get(name, 0) + 1
        self._end(name, now_s + min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** min(count - 1, 10)))

    def _end(self, name: str, due_s: float) -> None:
        self._busy.discard(name)
        if name in self._due_s:
            self._due_s[name] = due_s

    def wait_s(self, now_s: float, most: int) -> float | None:
        """The time until one is due; None if that depends on a round in progress."""
        if len(self._busy) >= most:
            return None
        return min(
            (max(0.0, due_s - now_s) for name, due_s in self._due_s.items() if name not in self._busy), default=None
        )

    def failures(self, name: str) -> int:
        """The number of its failed rounds in a row."""
        return self._failures.get(name, 0)

    @property
    def busy(self) -> Iterable[str]:
        """The streams that are at work."""
        return frozenset(self._busy)
