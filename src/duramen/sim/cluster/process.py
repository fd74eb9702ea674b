"""A node's process among several on one clock: its turns, its jobs, its deadlines, and pauses.

A job's work is done when it begins; its result arrives later, unless the process has ended by then.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Final, TypeVar

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ports import Lane
from duramen.sim.cluster.clocks import NodeClock
from duramen.sim.draws import below
from duramen.sim.machine.scheduler import VirtualClock

__all__ = ["NEVER_US", "Process"]

T = TypeVar("T")

_Job = tuple[Callable[[], Any], Callable[[Any], None]]

NEVER_US: Final = 1 << 62
_UNKNOWN: Final = -1

_AT_ONCE: Final[dict[Lane, int]] = {"sync": 1, "disk": 1, "rows": 1, "read": 4}


class Process:
    """The Worker port. `disk_us` is the longest time of a job; `turn` executes the next step."""

    def __init__(self, true: VirtualClock, clock: NodeClock, chance: random.Random, disk_us: int) -> None:
        self.deadlines = Deadlines()
        self.disk_us = disk_us
        self.paused_until_us = 0
        self.deadlines.on_earlier = self.look_again
        self._true = true
        self._clock = clock
        self._chance = chance
        self._ready: deque[Callable[[], None]] = deque()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0
        self._due: tuple[int, int] = (-1, -1)  # a deadline, and the true time of it
        self.known_us = _UNKNOWN
        """The last result of `find_next_us`, while it is valid."""
        self._waiting: dict[Lane, deque[_Job]] = {lane: deque() for lane in _AT_ONCE}
        self._running: dict[Lane, int] = dict.fromkeys(_AT_ONCE, 0)

    # -- the port -----------------------------------------------------------------------------------

    def soon(self, action: Callable[[], None]) -> None:
        self.known_us = _UNKNOWN
        self._ready.append(action)

    def submit(
        self, lane: Lane, job: Callable[[], T], done: Callable[[T | BaseException], None], *, brief: bool = False
    ) -> None:
        del brief  # a node of a cluster answers heartbeats even if its disk is slow
        self._waiting[lane].append((job, done))
        self._begin(lane)

    def hurry(self, *, crowded: bool) -> None:
        pass

    # -- time ---------------------------------------------------------------------------------------

    def after(self, delay_us: int, action: Callable[[], None]) -> None:
        """Do `action` in this process once that much time has gone by."""
        self.at(self._true.now_us + delay_us, action)

    def at(self, at_us: int, action: Callable[[], None]) -> None:
        """Do `action` in this process at that time, which is still to come."""
        self._count += 1
        self.known_us = _UNKNOWN
        heapq.heappush(self._events, (at_us, self._count, action))

    def look_again(self) -> None:
        """The time of the next step may have changed."""
        self.known_us = _UNKNOWN

    @property
    def next_us(self) -> int | None:
        """When it has something to do next, in true time; None where it never has."""
        at_us = self.known_us if self.known_us != _UNKNOWN else self.find_next_us()
        return None if at_us == NEVER_US else at_us

    def find_next_us(self) -> int:
        """As `next_us`; NEVER_US where it never has."""
        if self._ready:
            at_us = self._true.now_us
        else:
            at_us, events = self._due_us(), self._events
            if events and events[0][0] < at_us:
                at_us = events[0][0]
        if at_us < self.paused_until_us:
            at_us = self.paused_until_us
        self.known_us = at_us
        return at_us

    def _due_us(self) -> int:
        """When the next deadline is, in true time; NEVER_US where there is none."""
        due_ms = self.deadlines.next_ms()
        if due_ms is None:
            return NEVER_US
        if self._due[0] != due_ms:
            self._due = due_ms, self._clock.true_us(due_ms)
        return self._due[1]

    def turn(self) -> None:
        """Execute the steps of this time: all ready jobs, else the due deadline, else the next event."""
        self.known_us = _UNKNOWN
        ready, events = self._ready, self._events
        if ready:
            for _ in range(len(ready)):
                ready.popleft()()
            return
        now_us, due_us = self._true.now_us, self._due_us()
        if due_us <= now_us and (not events or due_us <= events[0][0]):
            self.deadlines.fire(self._clock.monotonic_ms())
        elif events and events[0][0] <= now_us:
            heapq.heappop(events)[2]()

    def hasten(self) -> None:
        """Execute the next step now, whatever its time is."""
        next_us = self.next_us
        if next_us is None:
            raise AssertionError("nothing is left to happen")
        self._true.now_us = max(self._true.now_us, next_us)
        self.turn()

    # -- jobs ---------------------------------------------------------------------------------------

    def _begin(self, lane: Lane) -> None:
        if self._waiting[lane] and self._running[lane] < _AT_ONCE[lane]:
            self._running[lane] += 1
            job, done = self._waiting[lane].popleft()
            self.after(1 + below(self._chance, 100), lambda: self._run(lane, job, done))

    def _run(self, lane: Lane, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        result: Any
        try:
            result = job()
        except (OSError, DuramenError) as error:
            result = error

        def ended() -> None:
            self._running[lane] -= 1
            self._begin(lane)
            done(result)

        self.after(20 + below(self._chance, self.disk_us), ended)
