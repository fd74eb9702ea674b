"""The input of a task that reads its offsets according to `transaction_boundaries`: start, and omitted transactions.

Pure.

A *floor* is the start of a query. At a named floor, no record below it is shown. At the earliest or latest offset, no
transaction that began below it in any partition is shown, so that none is shown in part. A named end is also used as
given: of a committed transaction that it splits, the records before it are shown.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from duramen.client import TopicPartition
from duramen.client.transaction_states import EndedAt, MarkedUpTo

__all__ = ["NEVER", "Ends", "Floors", "ReadSplit", "behind_tables", "floors_left", "passed_over", "reached", "share"]


class Floors(NamedTuple):
    """The floors that still matter: `named` ones, and those above which transactions are `whole`."""

    named: Mapping[TopicPartition, int] = {}
    whole: Mapping[TopicPartition, int] = {}


Ends = Mapping[TopicPartition, tuple[int, int]]
"""Named ends, with the offset from which on markers in the log may release records before them."""


class ReadSplit(NamedTuple):
    """The reading plan of a task: from `base` on, without records below `floor` or of the markers `skipped`.

    Records that the markers `behind`, at or after the end of these offsets, release are shown if they are before that
    end.
    """

    base: int
    floor: int = 0
    skipped: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()


_NO_MARKERS: Final[Collection[int]] = frozenset()
NEVER: Final = (1 << 63) - 1
"""After every offset."""


def behind_tables(
    floors: Floors, tables: Mapping[TopicPartition, int], upserted: Mapping[TopicPartition, int]
) -> Floors:
    """The floors of the log after tables, which have everything below theirs.

    An `upserted` table has the rest of transactions that started before it.
    """
    named = dict(floors.named)
    for at, floor in (*tables.items(), *upserted.items()):
        named[at] = max(floor, named.get(at, 0))
    whole = {at: floor for at, floor in floors.whole.items() if at not in upserted}
    return Floors(named, whole)


def floors_left(
    floors: Floors, ends: Mapping[TopicPartition, int], marked: Mapping[TopicPartition, MarkedUpTo]
) -> Floors:
    """The floors that matter after `ends`: a transaction from below one is open, or its marker is not read yet."""

    def left(one: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {at: floor for at, floor in one.items() if at in marked and _matters(floor, ends[at], marked[at])}

    return Floors(left(floors.named), left(floors.whole))


def _matters(floor: int, end: int, marked: MarkedUpTo) -> bool:
    ahead = any(one.commit and one.offset >= end and 0 <= one.first_offset < floor for one in marked.ended)
    return ahead or any(first < floor for _, first in marked.open)


def passed_over(
    floors: Floors,
    begin: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    marked: Mapping[TopicPartition, MarkedUpTo],
) -> dict[TopicPartition, set[int]]:
    """The commit markers between `begin` and `end` of transactions that started below a floor somewhere."""
    early: set[int] = set()
    found: dict[TopicPartition, set[int]] = {}
    for at, floor in floors.whole.items():
        for one in _commits(marked[at].ended, begin[at], end[at]) if at in marked else ():
            if one.first_offset < floor:
                early.add(one.sequence)
                found.setdefault(at, set()).add(one.offset)
    early.discard(-1)  # a transaction without a sequence is unknown elsewhere
    for at in marked if early else ():
        found.setdefault(at, set()).update(
            one.offset for one in _commits(marked[at].ended, begin[at], end[at]) if one.sequence in early
        )
    return found


def share(
    first: int,
    end: int,
    marked: MarkedUpTo,
    floor: int,
    skipped: Collection[int] = _NO_MARKERS,
    *,
    late_from: int = NEVER,
) -> ReadSplit | None:
    """The plan to read `[first, end)` of a partition; None without transactional records in it.

    With a named end, markers from `late_from` on release records before it.
    """
    commits = [one for one in _commits(marked.ended, first, end) if one.offset not in skipped]
    cut = [
        one for one in _commits(marked.ended, late_from, NEVER) if one.first_offset < end and one.offset not in skipped
    ]
    if not commits and not cut and not _touched(first, end, marked):
        return None
    base = min([first, *(one.first_offset for one in (*commits, *cut))])
    over = tuple(sorted(one for one in skipped if first <= one < end))
    return ReadSplit(max(base, min(floor, first)), floor, over, tuple(one.offset for one in cut))


def reached(
    spans: Iterable[tuple[TopicPartition, int, int]], marked: Mapping[TopicPartition, MarkedUpTo], floors: Floors
) -> dict[TopicPartition, int]:
    """The starts of reads for spans with transactions that started before them."""
    shares = {at: (first, share(first, end, marked[at], floors.named.get(at, 0))) for at, first, end in spans}
    return {at: one.base for at, (first, one) in shares.items() if one is not None and one.base < first}


def _commits(ended: list[EndedAt], first: int, end: int) -> Iterable[EndedAt]:
    low = bisect_left(ended, first, key=lambda one: one.offset)
    high = bisect_left(ended, end, key=lambda one: one.offset)
    return (one for one in ended[low:high] if one.commit and one.first_offset >= 0)


def _touched(first: int, end: int, marked: MarkedUpTo) -> bool:
    """Whether there may be a transactional record."""
    if any(opened < end for _, opened in marked.open):
        return True
    low = bisect_left(marked.ended, first, key=lambda one: one.offset)
    return any(0 <= one.first_offset < end for one in marked.ended[low:])
