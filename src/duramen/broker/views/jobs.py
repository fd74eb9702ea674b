"""The jobs of one view, one at a time: each is run by the store, away from the event loop."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from duramen.broker.views.state import ViewState
from duramen.storage.store import Store

__all__ = ["ViewJobs"]

T = TypeVar("T")


class ViewJobs:
    """A queue of jobs. A checkpoint is written beside them, but not beside a job that is to run alone."""

    def __init__(self, store: Store, state: ViewState, after_each: Callable[[], None]) -> None:
        self._store = store
        self._state = state
        self._after_each = after_each
        self._queue: deque[tuple[bool, Callable[[], None]]] = deque()
        self._writing = False
        self.working = False

    def do(self, job: Callable[[], T], done: Callable[[T | BaseException], None], *, alone: bool = False) -> None:
        """Run a job behind those there are; one that is `alone` not while a checkpoint is written.

        Nothing is run that comes once the view is closed.
        """
        if self._state.closed:
            return

        def run() -> None:
            self._store.run(job, partial(self._ended, done))

        self._queue.append((alone, run))
        self._next()

    def write(self, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Write a checkpoint beside the jobs."""
        self._writing = True
        self._store.run(job, partial(self._written, done))

    def _written(self, done: Callable[[T | BaseException], None], result: T | BaseException) -> None:
        self._writing = False
        done(result)
        self._next()

    def _next(self) -> None:
        if self.working or not self._queue or (self._writing and self._queue[0][0]):
            return
        self.working = True
        self._queue.popleft()[1]()

    def _ended(self, done: Callable[[T | BaseException], None], result: T | BaseException) -> None:
        self.working = False
        self._state.note()
        done(result)
        self._after_each()
        self._next()
