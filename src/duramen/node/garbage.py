"""Schedules garbage collection: young generations as usual, the oldest only while the node is mostly idle.

A collection of the oldest generation stops the process while every surviving object is visited: 100 ms for 400,000
objects. Objects of the start-up are frozen and visited only once, in the first idle moment, to free garbage among them.
What remains are cycles that survived two collections; they are few and can wait for an idle moment too.
"""

import asyncio
import gc
import time
from typing import Final

__all__ = ["GarbageCollection"]

_YOUNG: Final = 10_000  # more than the objects of requests in flight, most of which die before; 3 ms to visit
_MIDDLE: Final = 3  # young collections per collection of the middle generation
_NEVER: Final = 1 << 30
_INTERVAL_S: Final = 5.0
_IDLE_SHARE: Final = 0.05  # of one processor, in the interval
_LATEST_S: Final = 1800.0  # even a node that is never idle collects


class GarbageCollection:
    """Runs from `start`, when the present objects live as long as the node, to `stop`."""

    def __init__(self) -> None:
        self._timer: asyncio.TimerHandle | None = None
        self._thresholds = gc.get_threshold()
        self._cpu_s = 0.0
        self._collected_s = 0.0
        self._uncollected = False  # whether start-up objects still include garbage

    def start(self, *, collect: bool = True) -> None:
        """Freeze the present objects, and start; with `collect`, garbage among them is freed in an idle moment."""
        self._uncollected = collect
        gc.freeze()
        gc.set_threshold(_YOUNG, _MIDDLE, _NEVER)
        gc.enable()
        self._cpu_s, self._collected_s = time.process_time(), time.monotonic()
        self._wait()

    def stop(self) -> None:
        """Stop; no effect before `start`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            gc.set_threshold(*self._thresholds)

    def _wait(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_INTERVAL_S, self._fire)

    def _fire(self) -> None:
        cpu_s, now_s = time.process_time(), time.monotonic()
        idle = cpu_s - self._cpu_s < _IDLE_SHARE * _INTERVAL_S
        if idle and self._uncollected:
            self._uncollected = False
            gc.unfreeze()
            gc.collect()
            gc.freeze()
        elif gc.get_count()[2] and (idle or now_s - self._collected_s > _LATEST_S):
            gc.collect()
            self._collected_s = now_s
        self._cpu_s = time.process_time()
        self._wait()
