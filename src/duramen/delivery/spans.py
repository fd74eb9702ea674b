"""Spans: adjacent positions in the same state, stored as one whatever their number. Pure."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

__all__ = ["DeliveryPhase", "PositionSpan", "Spans"]


class DeliveryPhase(IntEnum):
    """The state of a position."""

    AVAILABLE = 0
    ACQUIRED = 1
    ACKNOWLEDGED = 2
    ARCHIVED = 4


class PositionSpan(NamedTuple):
    """The positions `first` to `last`, both included.

    `deliveries` is how often they were acquired. Acquired positions have an `owner` and a `deadline_ms`; a decided
    outcome, `becomes`, may still be reverted.
    """

    first: int
    last: int
    phase: DeliveryPhase = DeliveryPhase.AVAILABLE
    deliveries: int = 0
    owner: str = ""
    deadline_ms: int = 0
    becomes: DeliveryPhase | None = None

    @property
    def size(self) -> int:
        """The number of positions."""
        return self.last - self.first + 1

    @property
    def over(self) -> bool:
        """Whether it is never delivered again."""
        return self.phase in (DeliveryPhase.ACKNOWLEDGED, DeliveryPhase.ARCHIVED)

    @property
    def free(self) -> bool:
        """Whether it may be acquired."""
        return self.phase is DeliveryPhase.AVAILABLE

    @property
    def held(self) -> bool:
        """Whether its outcome may be decided."""
        return self.phase is DeliveryPhase.ACQUIRED and self.becomes is None

    def held_by(self, owner: str) -> bool:
        """Whether `owner` may decide its outcome."""
        return self.held and self.owner == owner

    def joins(self, other: "PositionSpan") -> bool:
        """Whether `other`, which follows, is in the same state."""
        return self[2:] == other[2:]


class Spans:
    """Spans in the order of their positions, without holes between them; neighbours in the same state are one.

    `over` is how many positions are never delivered again.
    """

    __slots__ = ("_firsts", "_spans", "over")

    def __init__(self) -> None:
        self._spans: list[PositionSpan] = []
        self._firsts: list[int] = []
        self.over = 0

    def __len__(self) -> int:
        return len(self._spans)

    def __iter__(self) -> Iterator[PositionSpan]:
        return iter(self._spans)

    def within(self, first: int, last: int) -> list[PositionSpan]:
        """The spans between `first` and `last`: those that reach over an edge are split there."""
        at = max(0, bisect_right(self._firsts, first) - 1)
        found = []
        for span in self._spans[at:]:
            if span.first > last:
                break
            if span.last >= first:
                found.append(span._replace(first=max(first, span.first), last=min(last, span.last)))
        return found

    def first_free(self, position: int) -> int | None:
        """The first position from `position` on that may be acquired."""
        for at in range(max(0, bisect_right(self._firsts, position) - 1), len(self._spans)):
            span = self._spans[at]
            if span.free and span.last >= position:
                return max(position, span.first)
        return None

    def over_before(self, first: int) -> int:
        """The first of the adjacent positions before `first`, where a span begins, that are all over; else `first`."""
        at = bisect_left(self._firsts, first) - 1
        while at >= 0 and self._spans[at].over:
            first = self._spans[at].first
            at -= 1
        return first

    def append(self, span: PositionSpan) -> None:
        """Add a span behind the last."""
        self.over += span.size if span.over else 0
        if self._spans and self._spans[-1].joins(span):
            self._spans[-1] = self._spans[-1]._replace(last=span.last)
        else:
            self._spans.append(span)
            self._firsts.append(span.first)

    def put(self, span: PositionSpan) -> None:
        """These positions, all of which are there, are in this state from here on."""
        low = bisect_right(self._firsts, span.first) - 1
        high = bisect_right(self._firsts, span.last)
        replaced = self._spans[max(0, low - 1) : high + 1]
        parts = []
        placed = False
        for old in replaced:
            if old.first < span.first:
                parts.append(old._replace(last=min(old.last, span.first - 1)))
            if old.last >= span.first and not placed:
                parts.append(span)
                placed = True
            if old.last > span.last:
                parts.append(old._replace(first=max(old.first, span.last + 1)))
        self._splice(max(0, low - 1), high + 1, parts)

    def drop_before(self, position: int) -> None:
        """Forget everything before `position`."""
        at = max(0, bisect_right(self._firsts, position) - 1)
        kept = [
            span._replace(first=max(position, span.first)) for span in self._spans[at : at + 1] if span.last >= position
        ]
        self._splice(0, at + 1, kept)

    def _splice(self, begin: int, end: int, parts: list[PositionSpan]) -> None:
        joined: list[PositionSpan] = []
        for part in parts:
            if joined and joined[-1].joins(part):
                joined[-1] = joined[-1]._replace(last=part.last)
            else:
                joined.append(part)
        self.over += sum(span.size for span in joined if span.over)
        self.over -= sum(span.size for span in self._spans[begin:end] if span.over)
        self._spans[begin:end] = joined
        self._firsts[begin:end] = [span.first for span in joined]
