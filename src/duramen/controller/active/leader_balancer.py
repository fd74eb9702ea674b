"""Returns leadership to the preferred replicas, as in Apache Kafka (`auto.leader.rebalance.enable`)."""

from collections.abc import Callable
from typing import Final

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.ports import Clock
from duramen.broker.control.responses import Answer, Outcome, Stepped, When

__all__ = ["AT_ONCE", "Balancing"]

AT_ONCE: Final = 1_000
"""Leaders per step, as in Apache Kafka: a controller that decides on more does not respond for too long."""


class Balancing:
    """Moves leaders periodically while a controller is active."""

    def __init__(
        self, clock: Clock, deadlines: Deadlines, every_ms: int | None, rebalance: Callable[[When], None]
    ) -> None:
        """`rebalance` moves up to `AT_ONCE` leaders, and returns their number; without `every_ms` it never runs."""
        self._clock = clock
        self._every_ms = every_ms
        self._rebalance = rebalance
        self._over = False
        self._alarm = Alarm(deadlines, lambda: self._rebalance(self._moved))
        self._next()

    def end(self) -> None:
        """Stop."""
        self._over = True
        self._alarm.move(None)

    def _moved(self, outcome: Outcome) -> None:
        more = isinstance(outcome, Answer) and isinstance(outcome.value, Stepped) and outcome.value.done == AT_ONCE
        self._next(at_once=more)

    def _next(self, *, at_once: bool = False) -> None:
        if self._every_ms is not None and not self._over:
            self._alarm.move(self._clock.monotonic_ms() + (0 if at_once else self._every_ms))
