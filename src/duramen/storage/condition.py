"""Whether the storage of a node accepts writes, and the listeners of that state. Plain."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError
from duramen.base.ports import Worker

__all__ = ["Condition"]


class Condition:
    """`problem` says why nothing is written: StorageFull until there is room again, StorageFailed until a restart."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._watchers: list[Callable[[DuramenError | None], None]] = []
        self.problem: DuramenError | None = None

    def watch(self, action: Callable[[DuramenError | None], None]) -> None:
        """Have `action` called soon after each change, with the problem, or None once writes are taken again."""
        self._watchers.append(action)
        if self.problem is not None:
            self._worker.soon(lambda: action(self.problem))

    def update(self, problem: DuramenError | None) -> None:
        """Take in how it is; another message of the same kind of problem is no change."""
        if type(problem) is not type(self.problem):
            self.problem = problem
            for action in self._watchers:
                self._worker.soon(partial(action, problem))
