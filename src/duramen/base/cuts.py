"""Cuts over partitions that contain each transaction entirely or not at all. Pure.

A record of a transaction counts at its commit marker (docs/adr/transactions-in-spark.md). A *cut* is an end offset for
every partition. It is sound if no transaction has one marker before the end of a partition and another marker, present
or future, at or after the end of another partition.
"""

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping
from typing import Generic, NamedTuple, TypeVar

__all__ = ["EndedAt", "MarkedUpTo", "MarkerConstraints"]

P = TypeVar("P", bound=Hashable)


class EndedAt(NamedTuple):
    """A marker at `offset` that ends a transaction whose first record in the partition is at or after `first_offset`.

    `first_offset` is -1 if nothing was open. `sequence` is the same in all markers of a transaction and increases with
    the transactions of a producer; -1 if unknown.
    """

    offset: int
    producer_id: int
    first_offset: int
    sequence: int
    commit: bool


class MarkedUpTo(NamedTuple):
    """A partition: its markers up to `high_watermark`, and (producer id, first offset) of `open` transactions.

    A transaction is open if it has begun and has no marker below that high watermark.
    """

    high_watermark: int
    open: list[tuple[int, int]]
    ended: list[EndedAt]


class MarkerConstraints(Generic[P]):
    """The markers that constrain the ends from `begin` on: those of transactions that have or may get several.

    An open transaction of a producer may be one that has a marker elsewhere, unless the producer has ended a later one
    since: its transactions are sequential, and their sequences increase.
    """

    def __init__(self, begin: Mapping[P, int], marked: Mapping[P, MarkedUpTo]) -> None:
        doubtful = _doubtful(marked.values())
        places: dict[int, list[tuple[P, int]]] = {}
        for at, found in marked.items():
            for one in found.ended:
                if one.commit and one.sequence >= 0 and one.first_offset >= 0 and one.offset >= begin[at]:
                    places.setdefault(one.sequence, []).append((at, one.offset))
        self._places = {sequence: ats for sequence, ats in places.items() if len(ats) > 1 or sequence in doubtful}
        self._doubtful = doubtful & self._places.keys()
        self._markers: dict[P, list[tuple[int, int]]] = {at: [] for at in marked}
        for sequence, ats in self._places.items():
            for at, offset in ats:
                self._markers[at].append((offset, sequence))
        for markers in self._markers.values():
            markers.sort()

    def lower(self, ends: Mapping[P, int]) -> dict[P, int]:
        """The farthest sound cut at or before `ends`."""
        found = dict(ends)
        inside = {at: bisect_left(self._markers[at], (offset, -1)) for at, offset in found.items()}
        out = [sequence for at in found for _, sequence in self._markers[at][inside[at] :]]
        out += self._doubtful
        seen: set[int] = set()
        while out:
            sequence = out.pop()
            if sequence in seen:
                continue
            seen.add(sequence)
            for at, offset in self._places[sequence]:
                if offset < found[at]:
                    found[at] = offset
                    kept = bisect_left(self._markers[at], (offset, -1))
                    out += [other for _, other in self._markers[at][kept : inside[at]]]
                    inside[at] = kept
        return found

    def least(self, begin: Mapping[P, int], farthest: Mapping[P, int]) -> dict[P, int]:
        """The ends of a small sound cut within `farthest`, if markers at `begin` prevent every other cut.

        It has the oldest of their transactions, and those with markers before one of it. Only for partitions that
        advance.
        """
        first = [
            markers[0][1]
            for at, markers in self._markers.items()
            if markers and begin[at] == markers[0][0] < farthest[at]
        ]
        found = dict(begin)
        done = dict.fromkeys(begin, 0)
        taken, seen = [min(first)], set[int]()
        while taken:
            sequence = taken.pop()
            if sequence in seen:
                continue
            seen.add(sequence)
            for at, offset in self._places[sequence]:
                upto = bisect_left(self._markers[at], (offset + 1, -1))
                taken += [other for _, other in self._markers[at][done[at] : upto]]
                done[at] = max(done[at], upto)
                found[at] = max(found[at], offset + 1)
        return {at: offset for at, offset in found.items() if offset > begin[at]}


def _doubtful(marked: Iterable[MarkedUpTo]) -> set[int]:
    """The sequences of transactions that may have another marker to come."""
    newest: dict[int, int] = {}
    for found in marked:
        for one in found.ended:
            newest[one.producer_id] = max(newest.get(one.producer_id, -1), one.sequence)
    producers = {producer_id for found in marked for producer_id, _ in found.open}
    doubtful = {newest[producer_id] for producer_id in producers & newest.keys()}
    for found in marked:
        # Where it has ended and the same producer has something open behind, that is a later one.
        opened = {producer_id for producer_id, _ in found.open}
        doubtful -= {one.sequence for one in found.ended if one.producer_id in opened}
    return doubtful
