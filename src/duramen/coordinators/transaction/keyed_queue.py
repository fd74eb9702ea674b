"""Serialises work per key: tasks of one key run one after the other."""

from collections import deque
from collections.abc import Callable

__all__ = ["KeyedQueue"]

Action = Callable[[], None]


class KeyedQueue:
    """Who comes while another of the same name has not called `over` waits for it. `soon` is where who follows goes."""

    def __init__(self, soon: Callable[[Action], None]) -> None:
        self._soon = soon
        self._waiting: dict[str, deque[Action]] = {}

    def take(self, name: str, action: Action) -> None:
        """Do `action` when all before it of that name are over; it calls `over` once, now or later."""
        waiting = self._waiting.get(name)
        if waiting is None:
            self._waiting[name] = deque()
            action()
        else:
            waiting.append(action)

    def over(self, name: str) -> None:
        """The one whose turn it is has ended."""
        waiting = self._waiting[name]
        if waiting:
            self._soon(waiting.popleft())
        else:
            del self._waiting[name]
