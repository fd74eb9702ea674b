"""Decides when a full disk makes appends fail and when they continue; reports each change once. Pure.

An almost full disk accepts small batches and refuses large ones, alternating. So appends continue only after a while
without a refusal, and if nothing lacks space any more or a batch has been written since.
"""

from collections.abc import Callable
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, StorageFull
from duramen.base.ports import Clock

__all__ = ["Fullness"]

_QUIET_MS: Final = 2000  # longer than the delay before failed work is retried


class Fullness:
    """Watches refused appends. `on_full` gets the reason, `on_room` is called when appends continue."""

    def __init__(self, clock: Clock, deadlines: Deadlines, lacks_space: Callable[[], bool]) -> None:
        """`lacks_space`: whether a copy, a checkpoint or a file of the write-ahead log waits for space."""
        self.on_full: Callable[[StorageFull], None] = lambda _: None
        self.on_room: Callable[[], None] = lambda: None
        self.refusing = False
        self._clock = clock
        self._deadlines = deadlines
        self._lacks_space = lacks_space
        self._refused_ms = 0
        self._probed = False  # whether other work than appends shows that there is space
        self._taken = False  # a batch was written since the last refusal
        self._due = False

    def refused(self, error: DuramenError) -> None:
        """An append was refused with this error."""
        if not isinstance(error, StorageFull):
            return
        self._refused_ms = self._clock.monotonic_ms()
        self._taken = False
        self._probed = self._lacks_space()
        if not self.refusing:
            self.refusing = True
            self.on_full(error)
        self._look_later()

    def taken(self) -> None:
        """An append was accepted while others were refused."""
        self._taken = True
        self._look_later()

    def _look_later(self) -> None:
        if not self._due:
            self._due = True
            self._deadlines.at(self._clock.monotonic_ms() + _QUIET_MS, self._look)

    def _look(self) -> None:
        self._due = False
        if self._lacks_space() or self._clock.monotonic_ms() < self._refused_ms + _QUIET_MS:
            self._look_later()
        elif self._probed or self._taken:
            self.refusing = False
            self.on_room()
