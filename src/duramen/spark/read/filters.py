"""The ranges that remain to be read after filters on topic, partition, offset and timestamp. Pure.

Partitions and offsets are restricted exactly. A timestamp gives only a lower bound: no record before the first offset
at or after it has a later timestamp, but records after it may have earlier ones.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from duramen.client import TopicPartition
from duramen.spark.api import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

__all__ = ["EVERYTHING", "Narrowing", "Numbers", "narrow"]

_LARGEST: Final = (1 << 63) - 1
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")


class Numbers(NamedTuple):
    """Integers from `low` to `high`, both included, and only those in `among` if it is given."""

    low: int = 0
    high: int = _LARGEST
    among: frozenset[int] | None = None

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and self.low <= number <= self.high and number in (self.among or (number,))

    def met(self, one: Filter) -> "Numbers | None":
        """The numbers that `one` accepts too; None if it is not a comparison with integers."""
        if isinstance(one, In):
            return self._among(frozenset(one.value)) if all(map(_is_whole, one.value)) else None
        if not isinstance(one, EqualTo | LessThan | LessThanOrEqual | GreaterThan | GreaterThanOrEqual):
            return None
        value = one.value
        if not _is_whole(value):
            return None
        match one:
            case EqualTo():
                return self._among(frozenset((value,)))
            case LessThan() | LessThanOrEqual():
                return self._replace(high=min(self.high, value - isinstance(one, LessThan)))
            case _:
                return self._replace(low=max(self.low, value + isinstance(one, GreaterThan)))

    def _among(self, values: frozenset[int]) -> "Numbers":
        both = values if self.among is None else values & self.among
        # An empty result is an empty range: an empty `among` would mean no restriction.
        low, high = (max(self.low, min(both)), min(self.high, max(both))) if both else (1, 0)
        return Numbers(low, high, both or None)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


class Narrowing(NamedTuple):
    """The remaining ranges: other records cannot pass. `since_ms` is 0 without a lower bound of timestamps."""

    topics: frozenset[str] | None = None
    partitions: Numbers = Numbers()
    offsets: Numbers = Numbers()
    since_ms: int = 0

    def takes(self, at: TopicPartition) -> bool:
        """Whether records of this partition can pass."""
        return at.partition in self.partitions and (self.topics is None or at.topic in self.topics)

    def cut(self, first: int, end: int) -> tuple[int, int]:
        """The part of offsets `[first, end)` in which records can pass; it may be empty."""
        first = max(first, self.offsets.low)
        return first, max(first, min(end, self.offsets.high + 1))


EVERYTHING: Final = Narrowing()


def narrow(filters: Iterable[Filter]) -> tuple[Narrowing, list[Filter]]:
    """The ranges that all `filters` together leave, and the filters that must still be applied to the records."""
    left, unmet = EVERYTHING, []
    for one in filters:
        narrowed = _narrowed(left, one)
        left = left if narrowed is None else narrowed
        if narrowed is None or not _is_exact(one):
            unmet.append(one)
    return left, unmet


def _column(one: Filter) -> str:
    attribute: tuple[str, ...] = getattr(one, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _is_exact(one: Filter) -> bool:
    """Whether the range has no record that the filter refuses.

    Offsets are restricted in whole ranges, and times roughly.
    """
    return isinstance(one, IsNotNull) or _column(one) in ("topic", "partition")


def _narrowed(left: Narrowing, one: Filter) -> Narrowing | None:
    """None if the filter restricts nothing."""
    column = _column(one)
    if isinstance(one, IsNotNull):
        return left if column in _NEVER_NULL else None
    if column == "topic":
        return _by_topic(left, one)
    if column == "partition":
        partitions = left.partitions.met(one)
        return None if partitions is None else left._replace(partitions=partitions)
    if column == "offset":
        offsets = left.offsets.met(one)
        return None if offsets is None else left._replace(offsets=offsets)
    return _by_time(left, one) if column == "timestamp" else None


def _by_topic(left: Narrowing, one: Filter) -> Narrowing | None:
    values = one.value if isinstance(one, In) else (one.value,) if isinstance(one, EqualTo) else ()
    if not values or not all(isinstance(value, str) for value in values):
        return None
    topics = frozenset(values)
    return left._replace(topics=topics if left.topics is None else topics & left.topics)


def _by_time(left: Narrowing, one: Filter) -> Narrowing | None:
    match one:
        case In():
            values = one.value
        case EqualTo() | GreaterThan() | GreaterThanOrEqual():
            values = (one.value,)
        case _:
            values = ()
    if not values or not all(isinstance(value, datetime) and value.tzinfo is not None for value in values):
        return None
    since_ms = (min(values) - _EPOCH) // timedelta(milliseconds=1)
    return left._replace(since_ms=max(left.since_ms, since_ms))
