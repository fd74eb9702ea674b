"""Samples of a view's position over time, which convert an age to a position. Pure."""

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

__all__ = ["PositionSample", "Samples"]

_MOST: Final = 1024


class PositionSample(NamedTuple):
    """At `time_ms` the view was at `position`; everything that counts from there on has offsets from `floor` on.

    The floor is the position, or the start of the oldest transaction open then.
    """

    time_ms: int
    position: int
    floor: int


class Samples:
    """At most 1,024 samples, in order; if there are more, every other one is dropped."""

    def __init__(self, base: int) -> None:
        self._base = base
        self._kept: list[PositionSample] = []

    def add(self, sample: PositionSample) -> None:
        """Add a sample; one with an earlier time or position is ignored."""
        last = self._kept[-1] if self._kept else None
        if last is not None and (sample.time_ms <= last.time_ms or sample.position <= last.position):
            return
        self._kept.append(sample)
        if len(self._kept) > _MOST:
            self._kept = self._kept[::2]

    def as_of(self, time_ms: int) -> PositionSample:
        """The last sample that is not younger; the beginning without one."""
        at = bisect_right(self._kept, time_ms, key=lambda one: one.time_ms)
        return self._kept[at - 1] if at else PositionSample(0, self._base, self._base)

    def after(self, time_ms: int) -> PositionSample | None:
        """The first sample that is not older; None without one."""
        at = bisect_left(self._kept, time_ms, key=lambda one: one.time_ms)
        return self._kept[at] if at < len(self._kept) else None

    def at(self, position: int) -> PositionSample:
        """The last sample at or before the position; the beginning without one."""
        at = bisect_right(self._kept, position, key=lambda one: one.position)
        return self._kept[at - 1] if at else PositionSample(0, self._base, self._base)

    def drop_before(self, time_ms: int) -> None:
        """Drop samples that `as_of` does not need for this time and later ones."""
        at = bisect_right(self._kept, time_ms, key=lambda one: one.time_ms)
        del self._kept[: max(0, at - 1)]

    def rows(self) -> list[PositionSample]:
        """All of them, for a checkpoint."""
        return list(self._kept)
