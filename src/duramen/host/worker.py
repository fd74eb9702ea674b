"""The Worker port on threads: one for syncs, one for everything that writes segments, a few for cold reads."""

import asyncio
import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

from duramen.base.ports import Lane

__all__ = ["HostWorker"]

T = TypeVar("T")

_LANES: Final[tuple[Lane, ...]] = ("sync", "disk", "read", "read", "read", "read")
_Job = tuple[Callable[[], Any], Callable[[Any], None]]


class _Outcome:
    """What came of a job that runs in its `with` block: what it returned, or whatever it raised."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: Any = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> bool:
        if error is not None:
            self.value = error
        return True


class HostWorker:
    """Threads that run jobs and hand results to an event loop. Made and used in that loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queues: dict[Lane, queue.SimpleQueue[_Job | None]] = {
            "sync": queue.SimpleQueue(),
            "disk": queue.SimpleQueue(),
            "read": queue.SimpleQueue(),
        }
        self._threads = [
            threading.Thread(target=self._run, args=(self._queues[lane],), name=f"duramen-{lane}", daemon=True)
            for lane in _LANES
        ]
        for thread in self._threads:
            thread.start()

    def soon(self, action: Callable[[], None]) -> None:
        self._loop.call_soon(action)

    def submit(self, lane: Lane, job: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        self._queues[lane].put((job, done))

    def stop(self) -> None:
        """End the threads once they have done what was submitted; results of jobs are not delivered any more."""
        for lane in _LANES:
            self._queues[lane].put(None)
        for thread in self._threads:
            thread.join(timeout=5)

    def _run(self, jobs: "queue.SimpleQueue[_Job | None]") -> None:
        while (item := jobs.get()) is not None:
            job, done = item
            outcome = _Outcome()
            with outcome:
                outcome.value = job()
            try:
                self._loop.call_soon_threadsafe(done, outcome.value)
            except RuntimeError:
                return  # the loop is closed: nobody is left to tell
