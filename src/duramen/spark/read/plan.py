"""Plans one read: shares of a limit, and offset ranges for Spark's tasks. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from duramen.client import TopicPartition

__all__ = ["SnapshotRange", "Span", "limited", "split"]

Span = tuple[TopicPartition, int, int]
"""A partition, its first offset to read, and the one after the last."""

_NO_LIMIT: Final = 1 << 62


class SnapshotRange(NamedTuple):
    """The range of a partition: records below `end` that the snapshot at `at` shows, or changes since another."""

    first: int
    end: int
    at: int
    since: int | None = None


def limited(
    begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """The ends from `begin` towards `end` for at most `most` offsets, shared in proportion to the backlogs.

    A partition never moves back; at least one advances if there is anything to read.
    """
    there = {at: max(0, end[at] - begin[at]) for at in end}
    total = sum(there.values())
    if total <= most:
        return {at: end[at] for at in end}
    shares = {at: most * count // total for at, count in there.items()}
    # The rounding remainder goes to the longest, one each, so that no partition starves.
    left = most - sum(shares.values())
    for at in sorted(there, key=lambda one: (-(most * there[one] % total), one)):
        if left and shares[at] < there[at]:
            shares[at] += 1
            left -= 1
    return {at: begin[at] + shares[at] if there[at] else end[at] for at in end}


def split(spans: Iterable[Span], at_least: int | None, most_records: int | None) -> list[Span]:
    """Non-empty spans, split so that there are `at_least` and none has more than `most_records`."""
    whole = [span for span in spans if span[2] > span[1]]
    longest = most_records or _NO_LIMIT
    if at_least is not None and whole and len(whole) < at_least:
        total = sum(end - first for _, first, end in whole)
        longest = min(longest, max(1, total // at_least))
    return [piece for span in whole for piece in _cut(span, longest)]


def _cut(span: Span, longest: int) -> Sequence[Span]:
    at, first, end = span
    count = math.ceil((end - first) / longest)
    edges = [first + (end - first) * index // count for index in range(count + 1)]
    return [(at, edges[index], edges[index + 1]) for index in range(count)]
