"""Where a snapshot over several partitions, of one keyed stream or of several, is cut. Pure."""

from collections.abc import Hashable, Mapping
from typing import TypeVar

from duramen.base.cuts import Bonds, MarkedUpTo

__all__ = ["cut"]

P = TypeVar("P", bound=Hashable)


def cut(oldest: Mapping[P, int], wanted: Mapping[P, int], marked: Mapping[P, MarkedUpTo]) -> dict[P, int]:
    """The newest snapshots at or before `wanted` that have each transaction wholly or not at all.

    `marked` has the markers from `oldest`, the S0 of each partition, on; the wanted positions were high watermarks
    before it was asked for. A partition whose position would have to be below its S0 stays there: then its snapshot
    is at S0, where every transaction that ended before counts.
    """
    reached = {at: min(position, max(oldest[at], marked[at].high_watermark)) for at, position in wanted.items()}
    return Bonds(oldest, marked).lower(reached)
