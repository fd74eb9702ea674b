"""Where a snapshot over several partitions, of one keyed stream or of several, is cut. Pure."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from duramen.base.cuts import Bonds, MarkedUpTo

__all__ = ["Aims", "cut"]

P = TypeVar("P", bound=Hashable)

_ENOUGH: Final = 8
_APART_MS: Final = 100


def cut(oldest: Mapping[P, int], wanted: Mapping[P, int], marked: Mapping[P, MarkedUpTo]) -> dict[P, int]:
    """The newest snapshots at or before `wanted` that have each transaction wholly or not at all.

    `marked` has the markers from `oldest`, the S0 of each partition, on; the wanted positions were high watermarks
    before it was asked for. A partition whose position would have to be below its S0 stays there: then its snapshot
    is at S0, where every transaction that ended before counts.
    """
    reached = {at: min(position, max(oldest[at], marked[at].high_watermark)) for at, position in wanted.items()}
    return Bonds(oldest, marked).lower(reached)


class _Aim(NamedTuple):
    time_ms: int
    vector: Sequence[int]


class Aims:
    """Vectors over some partitions that cut no transaction, and that their views had not reached when they were taken.

    The further the views are behind, the fewer of a time are kept: about eight of all that time.
    """

    def __init__(self) -> None:
        self._kept: list[_Aim] = []

    def add(self, now_ms: int, vector: Sequence[int]) -> None:
        """A vector that was taken now; one that follows another too soon is not kept."""
        if self._kept:
            apart_ms = max(_APART_MS, (now_ms - self._kept[0].time_ms) // _ENOUGH)
            if now_ms < self._kept[-1].time_ms + apart_ms:
                return
        self._kept.append(_Aim(now_ms, vector))

    def newest(self, oldest: Sequence[int], reached: Sequence[int]) -> Sequence[int] | None:
        """The newest one that views which have come to `reached` can show; None where there is none.

        Snapshots before `oldest` are not shown any more.
        """
        found = next((aim for aim in reversed(self._kept) if _within(aim.vector, reached)), None)
        if found is None:
            return None
        self._kept = [aim for aim in self._kept if aim.time_ms >= found.time_ms]
        return found.vector if _within(oldest, found.vector) else None


def _within(lower: Sequence[int], upper: Sequence[int]) -> bool:
    return all(one <= other for one, other in zip(lower, upper, strict=True))
