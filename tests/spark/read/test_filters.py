"""Filters that Spark hands over: nothing that passes them is left out, and what is said to be exact is."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from duramen.client import TopicPartition
from duramen.spark.read.filters import EVERYTHING, Narrowing, Numbers, narrow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Record(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp: datetime
    value: bytes | None


def moment(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


numbers = st.integers(-3, 12)
moments = st.integers(-5000, 12_000).map(moment)
records = st.builds(
    Record, st.sampled_from("abc"), st.integers(0, 5), st.integers(0, 10),
    # Brokers keep milliseconds.
    st.integers(-3, 12).map(lambda ms: moment(1000 * ms)), st.none() | st.just(b"x"),
)  # fmt: skip

COMPARED: dict[type[Filter], Callable[[Any, Any], bool]] = {
    EqualTo: lambda left, right: left == right,
    EqualNullSafe: lambda left, right: left == right,
    LessThan: lambda left, right: left < right,
    LessThanOrEqual: lambda left, right: left <= right,
    GreaterThan: lambda left, right: left > right,
    GreaterThanOrEqual: lambda left, right: left >= right,
    In: lambda left, right: left in right,
    StringStartsWith: lambda left, right: left.startswith(right),
}


def comparisons(column: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[Filter]:
    kinds = st.sampled_from([one for one in COMPARED if one not in (In, StringStartsWith)])
    return st.builds(lambda kind, value: kind((column,), value), kinds, values) | st.builds(
        In, st.just((column,)), st.lists(values, min_size=1, max_size=3).map(tuple)
    )


compared = (
    comparisons("topic", st.sampled_from("abcd"))
    | comparisons("partition", numbers)
    | comparisons("offset", numbers)
    | comparisons("timestamp", moments)
)
filters = (
    compared
    | compared.map(Not)
    | st.sampled_from(["topic", "offset", "value"]).flatmap(
        lambda name: st.sampled_from([IsNull((name,)), IsNotNull((name,))])
    )
    | st.builds(StringStartsWith, st.just(("topic",)), st.sampled_from(["", "a"]))
)


def passes(record: Record, one: Filter) -> bool:
    match one:
        case Not():
            return not passes(record, one.child)
        case IsNull():
            return getattr(record, one.attribute[0]) is None
        case IsNotNull():
            return getattr(record, one.attribute[0]) is not None
        case _:
            given_: Any = one
            return COMPARED[type(one)](getattr(record, given_.attribute[0]), given_.value)


def left_by(narrowing: Narrowing, log: list[Record]) -> list[Record]:
    """What a reader reads of each partition's records, which lie there in the order of their offsets."""
    left = []
    for record in log:
        at = TopicPartition(record.topic, record.partition)
        mine = [one for one in log if one[:2] == record[:2]]
        since = [one.offset for one in mine if one.timestamp >= moment(1000 * narrowing.since_ms)]
        first, end = narrowing.cut(0, 11)
        if narrowing.since_ms > 0:
            first = max(first, min(since, default=end))
        if narrowing.takes(at) and first <= record.offset < end:
            left.append(record)
    return left


@given(st.lists(filters, max_size=4), st.lists(records, max_size=12, unique_by=lambda one: one[:3]))
def test_nothing_that_passes_is_left_out_and_what_is_taken_over_is_exact(
    given_: list[Filter], log: list[Record]
) -> None:
    narrowing, unmet = narrow(given_)
    left = left_by(narrowing, log)
    assert [record for record in left if all(passes(record, one) for one in unmet)] == [
        record for record in log if all(passes(record, one) for one in given_)
    ]
    assert all(any(one is other for other in given_) for one in unmet)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (EqualTo(("partition",), 3), EVERYTHING._replace(partitions=Numbers(3, 3, frozenset({3})))),
        (LessThan(("offset",), 10), EVERYTHING._replace(offsets=Numbers(0, 9))),
        (GreaterThanOrEqual(("timestamp",), moment(123_456)), EVERYTHING._replace(since_ms=123)),
        # Later offsets may be of an earlier time.
        (LessThan(("timestamp",), moment(1)), EVERYTHING),
        # Without a zone it is no moment; and a column inside another one is not ours.
        (GreaterThan(("timestamp",), datetime(2026, 1, 1)), EVERYTHING),  # noqa: DTZ001
        (EqualTo(("headers", "partition"), 3), EVERYTHING),
        (EqualTo(("partition",), "3"), EVERYTHING),
        (EqualTo(("partition",), True), EVERYTHING),
        (EqualTo(("partition",), None), EVERYTHING),
    ],
)  # fmt: skip
def test_what_follows_from_one(one: Filter, expected: Narrowing) -> None:
    assert narrow([one])[0] == expected


def test_offsets_that_are_named_twice_and_never_meet_leave_none() -> None:
    narrowing, _ = narrow([In(("offset",), (1, 2)), In(("offset",), (5, 6))])
    assert narrowing.cut(0, 100) == (1, 1)
    assert EVERYTHING.cut(5, 5) == (5, 5)
