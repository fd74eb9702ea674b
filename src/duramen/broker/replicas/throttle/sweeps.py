"""Work on every replica of a node, a few per turn of the event loop, one task after another.

A node may have tens of thousands of replicas. All in one turn would block it for seconds, and other nodes would
consider it failed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, Generic, TypeVar

__all__ = ["Sweeps"]

T = TypeVar("T")

_AT_ONCE: Final = 256


class Sweeps(Generic[T]):
    """Each sweep visits the items that existed when it began; the action checks whether an item still exists."""

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        """`soon` calls back in a later turn."""
        self._soon = soon
        self._waiting: deque[tuple[Iterator[T], Callable[[T], None]]] = deque()

    def begin(self, everything: Iterable[T], action: Callable[[T], None]) -> None:
        """Do it with each of these: with the first of them now, where nothing else goes before."""
        self._waiting.append((iter(list(everything)), action))
        if len(self._waiting) == 1:
            self._go_on()

    def end(self) -> None:
        """Do nothing any more."""
        self._waiting.clear()

    def _go_on(self) -> None:
        left = _AT_ONCE
        while self._waiting and left:
            one, action = self._waiting[0]
            for each in one:
                action(each)
                left -= 1
                if not left:
                    break
            else:
                self._waiting.popleft()
        if self._waiting:
            self._soon(self._go_on)
