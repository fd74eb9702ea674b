"""The Worker and Clock ports driven by a seed: jobs begin, are interrupted and end at drawn virtual times.

A job's work and the delivery of its result are two events. Within a job, the broker's side may run at each disk call
before the job continues, as while a thread waits for the disk.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ports import Lane

__all__ = ["SeededWorker", "VirtualClock"]

T = TypeVar("T")

_Job = tuple[Callable[[], Any], Callable[[Any], None]]

_AT_ONCE: Final[dict[Lane, int]] = {"sync": 1, "disk": 1, "rows": 1, "read": 4}
_DEEPEST: Final = 3  # jobs that were interrupted by each other
_INTERRUPTED: Final = 0.12  # how likely it is that a job is interrupted in a call to the disk


class VirtualClock:
    """Time that only the scheduler moves, in whole microseconds."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._start_ms = wall_ms
        self.now_us = 0

    def wall_ms(self) -> int:
        return self._start_ms + self.now_us // 1000

    def monotonic_ms(self) -> int:
        return self.now_us // 1000

    def seconds(self) -> float:
        return self.now_us / 1e6

    def pause(self, duration_s: float) -> None:
        """Nothing: a job takes the time that the scheduler gives it."""


def _outcome(job: Callable[[], Any]) -> Any:
    try:
        return job()
    except (OSError, DuramenError) as error:
        return error


class SeededWorker:
    """Jobs of a process, and everything else that happens in it: `turn` does the next thing."""

    def __init__(
        self,
        clock: VirtualClock,
        chance: random.Random,
        failed: Callable[[BaseException], BaseException],
        began: Callable[[Lane, Callable[[], Any]], None] = lambda _, __: None,
    ) -> None:
        """`failed` ends the run because of an unexpected exception; `began` is called with each job."""
        self.deadlines = Deadlines()
        self.jobs: list[Callable[[], Any]] = []  # under way now: each was interrupted by the next
        self.on_own_side = True  # whether the broker itself runs now, and not a job
        self.slow_us = 0  # the extra time of the job under way
        self._clock = clock
        self._chance = chance
        self._failed = failed
        self._began = began
        self._ready: deque[Callable[[], None]] = deque()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._waiting: dict[Lane, deque[_Job]] = {lane: deque() for lane in _AT_ONCE}
        self._running: dict[Lane, int] = dict.fromkeys(_AT_ONCE, 0)
        self._delivered_us: dict[Lane, int] = dict.fromkeys(_AT_ONCE, 0)

    # -- the port -----------------------------------------------------------------------------------

    def soon(self, action: Callable[[], None]) -> None:
        self._ready.append(action)

    def submit(
        self, lane: Lane, job: Callable[[], T], done: Callable[[T | BaseException], None], *, brief: bool = False
    ) -> None:
        if brief and self._chance.random() < 0.5:
            self._run_at_once(job, done)
            return
        self._waiting[lane].append((job, done))
        self._begin_later(lane)

    def hurry(self, *, crowded: bool) -> None:
        pass

    # -- time ---------------------------------------------------------------------------------------

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do `action` on the broker's side once that much time has gone by."""
        self._at(self._clock.now_us + delay_us, action)

    def _at(self, at_us: int, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (at_us, self._count, action))

    def turn(self) -> bool:
        """Do the next thing there is to do; False where there is nothing."""
        own_side, self.on_own_side = self.on_own_side, True
        try:
            return self._turn()
        except Exception as error:
            raise self._failed(error) from error
        finally:
            self.on_own_side = own_side

    def _turn(self) -> bool:
        if self._ready:
            self._ready.popleft()()
            return True
        due_ms = self.deadlines.next_ms()
        if due_ms is not None and (not self._events or due_ms * 1000 <= self._events[0][0]):
            self._clock.now_us = max(self._clock.now_us, due_ms * 1000)
            self.deadlines.fire(self._clock.monotonic_ms())
            return True
        if not self._events:
            return False
        at_us, _, action = heapq.heappop(self._events)
        self._clock.now_us = max(self._clock.now_us, at_us)
        action()
        return True

    # -- jobs ---------------------------------------------------------------------------------------

    def _begin_later(self, lane: Lane) -> None:
        if self._waiting[lane] and self._running[lane] < _AT_ONCE[lane]:
            self._running[lane] += 1
            self.after(self._chance.randint(1, 150), partial(self._run, lane))

    def _run(self, lane: Lane) -> None:
        if not self._waiting[lane]:
            self._running[lane] -= 1
            return
        job, done = self._waiting[lane].popleft()
        self._began(lane, job)
        self.jobs.append(job)
        self.on_own_side, slow_us, self.slow_us = False, self.slow_us, 0
        result = _outcome(job)
        self.on_own_side = True
        self.jobs.pop()
        took_us = self._chance.randint(20, 900) + self.slow_us
        self.slow_us = slow_us
        ended_us = max(self._clock.now_us + took_us, self._delivered_us[lane] if lane != "read" else 0)
        self._delivered_us[lane] = ended_us
        self._at(ended_us, partial(done, result))
        self._at(ended_us, partial(self._free, lane))

    def _run_at_once(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """A brief job, on the broker's own side: nothing goes on meanwhile."""
        self.soon(partial(done, _outcome(job)))

    def _free(self, lane: Lane) -> None:
        self._running[lane] -= 1
        self._begin_later(lane)

    def interrupt(self) -> None:
        """A job waits for the disk: the broker's side and jobs of other lanes may go on first."""
        if self.on_own_side or len(self.jobs) >= _DEEPEST or self._chance.random() >= _INTERRUPTED:
            return
        for _ in range(self._chance.randint(1, 6)):
            self.turn()
