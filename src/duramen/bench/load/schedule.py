"""The send times of an open loop: a fixed rate, regardless of earlier messages. Pure."""

from typing import NamedTuple

__all__ = ["Schedule"]

_NS: int = 1_000_000_000


class Schedule(NamedTuple):
    """`rate_hz` messages a second for `duration_s`; the first is due at the start."""

    rate_hz: float
    duration_s: float

    @property
    def messages(self) -> int:
        """How many messages there are; at least one."""
        return max(1, int(self.rate_hz * self.duration_s + 1e-9))

    def due_ns(self, index: int) -> int:
        """When a message is due, in ns after the start."""
        return int(index * _NS / self.rate_hz)
