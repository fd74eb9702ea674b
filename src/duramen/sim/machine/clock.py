"""The Clock, Randomness and Worker ports, driven by hand."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from duramen.base.errors import DuramenError
from duramen.base.ports import Lane

__all__ = ["ManualClock", "ManualWorker", "SeededRandomness"]

T = TypeVar("T")


class ManualClock:
    """Time stands still until `advance`."""

    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self._wall_ms = wall_ms
        self._monotonic_ms = 1_000_000

    def wall_ms(self) -> int:
        return self._wall_ms

    def monotonic_ms(self) -> int:
        return self._monotonic_ms

    def seconds(self) -> float:
        return self._monotonic_ms / 1000

    def pause(self, duration_s: float) -> None:
        """Nothing: time stands still."""

    def advance(self, duration_ms: int) -> None:
        """Let that much time go by."""
        self._wall_ms += duration_ms
        self._monotonic_ms += duration_ms

    def jump(self, duration_ms: int) -> None:
        """Set the clock on the wall forward, or back where it is negative."""
        self._wall_ms += duration_ms


class SeededRandomness:
    """The same bytes in every run."""

    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(seed)

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)


class ManualWorker:
    """Jobs wait until the test runs them, in any order; so do actions that are scheduled for soon."""

    def __init__(self) -> None:
        self.at_once = False  # whether brief jobs run inside `submit`
        self.jobs: dict[Lane, deque[tuple[Callable[[], Any], Callable[[Any], None]]]] = {
            "sync": deque(),
            "disk": deque(),
            "rows": deque(),
            "read": deque(),
        }
        self.actions: deque[Callable[[], None]] = deque()

    def soon(self, action: Callable[[], None]) -> None:
        self.actions.append(action)

    def submit(
        self, lane: Lane, job: Callable[[], T], done: Callable[[T | BaseException], None], *, brief: bool = False
    ) -> None:
        self.jobs[lane].append((job, done))
        if brief and self.at_once:
            self.start(lane)()

    def hurry(self, *, crowded: bool) -> None:
        pass

    def run_soon(self) -> None:
        """Run the actions that are scheduled for soon, and those that they schedule."""
        while self.actions:
            self.actions.popleft()()

    def start(self, lane: Lane) -> Callable[[], None]:
        """Run the next job of a lane; calling the result delivers the job's result."""
        job, done = self.jobs[lane].popleft()
        result: Any
        try:
            result = job()
        except (OSError, DuramenError) as error:
            result = error
        return lambda: done(result)

    def step(self, lane: Lane) -> bool:
        """Run the next job of a lane and deliver its result; False where there is none."""
        if not self.jobs[lane]:
            return False
        self.start(lane)()
        self.run_soon()
        return True

    def settle(self) -> None:
        """Run everything until nothing is left to run."""
        self.run_soon()
        while any(self.step(lane) for lane in self.jobs):
            pass
