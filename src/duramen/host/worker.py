"""The Worker port on threads: for syncs, for writes to segments, for rows, and a few for cold reads."""

import asyncio
import ctypes
import queue
import sys
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, TypeVar

from duramen.base.ports import Lane

__all__ = ["HostWorker"]

T = TypeVar("T")

_LANES: Final[tuple[Lane, ...]] = ("sync", "disk", "rows", "read", "read", "read", "read")
_Job = tuple[Callable[[], Any], Callable[[Any], None]]


# How long a thread waits for the interpreter before it asks for it. The event loop lets go of it between any two
# sockets, too shortly for a sleeping thread to get hold of it: a thread that misses that moment begins again.
_SWITCH_S: Final = 0.0002
_CROWDED_SWITCH_S: Final = 0.00003
_PR_SET_TIMERSLACK: Final = 29


def _wake_in_time() -> None:
    """Have this thread wake at the end of its wait, and not up to 50 µs later, if Linux allows it."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1, 0, 0, 0)


class _Outcome:
    """The outcome of a job in its `with` block: its result or its exception."""

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

    def __init__(self, loop: asyncio.AbstractEventLoop, *, at_once: bool = False) -> None:
        """`at_once`: brief jobs run inside `submit`, and so do their callbacks: that saves two wake-ups of threads."""
        self._loop = loop
        self._at_once = at_once
        self._switch_s = 0.0
        self.hurry(crowded=False)
        self._queues: dict[Lane, queue.SimpleQueue[_Job | None]] = {
            "sync": queue.SimpleQueue(),
            "disk": queue.SimpleQueue(),
            "rows": queue.SimpleQueue(),
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

    def submit(
        self, lane: Lane, job: Callable[[], T], done: Callable[[T | BaseException], None], *, brief: bool = False
    ) -> None:
        if not (brief and self._at_once):
            self._queues[lane].put((job, done))
            return
        result: T | BaseException
        try:
            result = job()
        except OSError as error:
            result = error
        done(result)

    def hurry(self, *, crowded: bool) -> None:
        interval_s = _CROWDED_SWITCH_S if crowded else _SWITCH_S
        if interval_s != self._switch_s:
            self._switch_s = interval_s
            sys.setswitchinterval(interval_s)

    def stop(self) -> None:
        """End the threads after their submitted jobs; their results are delivered in the next turn of the loop."""
        for lane in _LANES:
            self._queues[lane].put(None)
        for thread in self._threads:
            thread.join(timeout=5)

    def _run(self, jobs: "queue.SimpleQueue[_Job | None]") -> None:
        _wake_in_time()
        while (item := jobs.get()) is not None:
            if not self._run_one(*item):
                return
            # A thread that waits must not keep the files open, and the memory taken, of the job that it did last.
            del item

    def _run_one(self, job: Callable[[], Any], done: Callable[[Any], None]) -> bool:
        """Run a job and deliver its result; returns whether there is still a receiver."""
        outcome = _Outcome()
        with outcome:
            outcome.value = job()
        try:
            self._loop.call_soon_threadsafe(done, outcome.value)
        except RuntimeError:
            return False  # the loop is closed
        return True
