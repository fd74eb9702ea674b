"""Fires deadlines with one timer of the event loop, set for the next one."""

import asyncio
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock

__all__ = ["DeadlineTimer"]

_MOST_AT_ONCE: Final = 256
"""Thousands of replicas may be due at once: messages of other nodes are handled in between."""


class DeadlineTimer:
    """Fires `deadlines` from `start` to `stop`."""

    def __init__(self, deadlines: Deadlines, clock: Clock) -> None:
        self._deadlines = deadlines
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start in the running loop."""
        self._deadlines.on_earlier = self._schedule
        self._schedule()

    def stop(self) -> None:
        """Fire none from now on, whatever is registered."""
        self._deadlines.on_earlier = None
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _schedule(self) -> None:
        next_ms = self._deadlines.next_ms()
        self._cancel()
        if next_ms is not None:
            delay_ms = max(0, next_ms - self._clock.monotonic_ms())
            self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._deadlines.fire(self._clock.monotonic_ms(), _MOST_AT_ONCE)
        if self._deadlines.on_earlier is not None:  # not stopped by what was due
            self._schedule()
