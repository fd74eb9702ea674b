"""Serialises work per key: tasks of one key run one after the other."""

from collections import deque
from collections.abc import Callable

__all__ = ["KeyedQueue"]

Action = Callable[[], None]


class KeyedQueue:
    """A task waits while another task of the same name has not called `over`. `soon` schedules the next one."""

    def __init__(self, soon: Callable[[Action], None]) -> None:
        self._soon = soon
        self._waiting: dict[str, deque[Action]] = {}

    def take(self, name: str, action: Action) -> None:
        """Run `action` after all earlier ones of that name; it calls `over` once, now or later."""
        waiting = self._waiting.get(name)
        if waiting is None:
            self._waiting[name] = deque()
            action()
        else:
            waiting.append(action)

    def over(self, name: str) -> None:
        """The present task of that name has ended."""
        waiting = self._waiting[name]
        if waiting:
            self._soon(waiting.popleft())
        else:
            del self._waiting[name]
