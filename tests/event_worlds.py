"""Event loops of simulated worlds: what happens is an event at a virtual time, and a seed makes the same events."""

import heapq
import random
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Generic, Protocol, TypeVar

from duramen.sim.machine.scheduler import VirtualClock

__all__ = ["DiskWorld", "PureWorld"]


class PureWorld:
    """Events at times in ms, for state machines that are called directly. With `trace` events are kept as text."""

    def __init__(self, chance: random.Random, counted: Iterable[str], trouble_ms: int, *, trace: bool) -> None:
        self.random = chance
        self.trace: list[str] = []
        self._trouble_ms = trouble_ms
        self._traced = trace
        self._now_ms = 0
        self._numbers = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._counts = dict.fromkeys(counted, 0)

    def _at(self, delay_ms: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self._now_ms + delay_ms, next(self._numbers), act))

    def _run_until(self, end_ms: int) -> None:
        while self._events and self._events[0][0] <= end_ms:
            self._now_ms, _, act = heapq.heappop(self._events)
            self._counts["events"] += 1
            act()
        self._now_ms = end_ms

    def _again(self, every_ms: int, act: Callable[[], None]) -> None:
        """Act every `every_ms` on average, as long as there is trouble."""

        def again() -> None:
            if self._now_ms < self._trouble_ms:
                act()
                self._at(self.random.randrange(2 * every_ms) + 1, again)

        self._at(self.random.randrange(2 * every_ms) + 1, again)

    def _say(self, text: str) -> None:
        if self._traced:
            self.trace.append(f"{self._now_ms} {text}")


class SimulatedProcess(Protocol):
    """The process of a node: the time of its next turn, and that turn."""

    @property
    def next_us(self) -> int | None: ...

    def turn(self) -> object: ...


class SimulatedNode(Protocol):
    """A node, whose process is None while it is down."""

    @property
    def process(self) -> SimulatedProcess | None: ...


N = TypeVar("N", bound=SimulatedNode)


class DiskWorld(Generic[N]):
    """Events at times of one clock, for nodes that are processes on simulated disks."""

    nodes: Sequence[N]

    def __init__(self, chance: random.Random, counted: Iterable[str], *, trace: bool) -> None:
        self.random = chance
        self.clock = VirtualClock()
        self.trace: list[str] = []
        self.troubled = False  # whether the network may lose, repeat and delay
        self.counts = dict.fromkeys(counted, 0)
        self.traced = trace
        self._numbers = count()
        self._events: list[tuple[int, int, Callable[[], None]]] = []

    def at(self, delay_us: int, act: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.clock.now_us + delay_us, next(self._numbers), act))

    def again(self, every_ms: int, act: Callable[[], None], chance: random.Random | None = None) -> None:
        """Act every `every_ms` on average, as long as there is trouble; `chance` draws the times."""
        drawn = chance or self.random

        def again() -> None:
            if self.troubled:
                act()
                self.at(drawn.randrange(2_000 * every_ms) + 1, again)

        self.at(drawn.randrange(2_000 * every_ms) + 1, again)

    def run_until(self, end_us: int) -> None:
        while True:
            at_us, node = self._next()
            if at_us is None or at_us > end_us:
                self.clock.now_us = max(self.clock.now_us, end_us)
                return
            self.counts["events"] += 1
            if node is None:
                at_us, _, act = heapq.heappop(self._events)
                self.clock.now_us = max(self.clock.now_us, at_us)
                act()
            else:
                self._turn(node)

    def _next(self) -> tuple[int | None, N | None]:
        found: tuple[int | None, N | None] = (self._events[0][0], None) if self._events else (None, None)
        for node in self.nodes:
            at_us = self._due_us(node)
            if at_us is not None and (found[0] is None or at_us < found[0]):
                found = (at_us, node)
        return found

    def _due_us(self, node: N) -> int | None:
        return node.process.next_us if node.process is not None else None

    def _turn(self, node: N) -> None:
        raise NotImplementedError

    def say(self, text: str) -> None:
        if self.traced:
            self.trace.append(f"{self.clock.now_us} {text}")
