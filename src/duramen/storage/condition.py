"""Whether the storage of a node accepts writes, and the listeners of that state. Plain."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError
from duramen.base.ports import Worker

__all__ = ["Condition"]


class Condition:
    """`problem` is the reason why writes are refused.

    StorageFull lasts until there is room, StorageFailed until a restart.
    """

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._watchers: list[Callable[[DuramenError | None], None]] = []
        self.problem: DuramenError | None = None

    def watch(self, action: Callable[[DuramenError | None], None]) -> None:
        """Have `action` called soon after each change, with the problem, or None once writes are accepted again."""
        self._watchers.append(action)
        if self.problem is not None:
            self._worker.soon(lambda: action(self.problem))

    def update(self, problem: DuramenError | None) -> None:
        """Update the problem; another message of the same kind of problem is no change."""
        if type(problem) is not type(self.problem):
            self.problem = problem
            for action in self._watchers:
                self._worker.soon(partial(action, problem))
