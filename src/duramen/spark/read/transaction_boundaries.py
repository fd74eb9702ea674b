"""Ends of a read at which it has each transaction entirely or not at all. Pure.

A record of a transaction counts at its commit marker: the offsets `[first, end)` of a partition stand for its
non-transactional records in that range, and for all records, including earlier ones, of the transactions whose commit
marker is in the range. A *cut*, an end for every partition, is sound if no transaction has a marker before the end of
one partition and another marker, present or future, at or after the end of another (docs/adr/transactions-in-spark.md).

The upper ends of a cut were high watermarks before `MarkedUpTo` was requested. So a transaction with a marker below
them was decided by then, and is found open or ended in every other partition that it wrote to.
"""

from collections.abc import Mapping

from duramen.base.cuts import MarkedUpTo, MarkerConstraints
from duramen.client import TopicPartition
from duramen.spark.read.plan import limited

__all__ = ["cut"]

Places = Mapping[TopicPartition, int]


def cut(
    begin: Places, end: Places, marked: Mapping[TopicPartition, MarkedUpTo], most: int | None = None
) -> dict[TopicPartition, int]:
    """The farthest sound cut from `begin` to `end`; with `most`, of about that many offsets.

    It has more of them if there is no other way to advance, because transactions are not split, and equals `begin` if
    nothing can be read yet. `begin` is used unchanged: markers before it do not count. An `end` before it stays.
    """
    seen = {at: min(offset, max(begin[at], marked[at].high_watermark)) for at, offset in end.items()}
    bonds = MarkerConstraints(begin, marked)
    farthest = bonds.lower(seen)
    if most is None or all(farthest[at] <= begin[at] for at in farthest):
        return farthest
    near = bonds.lower(limited(begin, farthest, most))
    if any(near[at] > begin[at] for at in near):
        return near
    return near | bonds.least(begin, farthest)
