"""Consistent ends of a snapshot over several partitions, of one or more keyed streams. Pure."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

__all__ = ["Aims", "Commits", "cut"]

P = TypeVar("P", bound=Hashable)

_ENOUGH: Final = 8
_APART_MS: Final = 100


class Commits(NamedTuple):
    """The commit markers of a partition up to its high watermark: offset and commit sequence."""

    high_watermark: int
    markers: Sequence[tuple[int, int]]


def cut(partitions: Mapping[P, Commits], is_in: Callable[[int], bool]) -> dict[P, int] | None:
    """The newest snapshots with every transaction for which `is_in` is true and no other, by these markers.

    `is_in` gets commit sequences. None if a transaction that is in has its marker after one that is not.
    """
    found = dict[P, int]()
    for at, (high_watermark, markers) in partitions.items():
        end = next((offset for offset, sequence in markers if not is_in(sequence)), high_watermark)
        if any(offset > end and is_in(sequence) for offset, sequence in markers):
            return None
        found[at] = end
    return found


class _Aim(NamedTuple):
    time_ms: int
    vector: Sequence[int]


class Aims:
    """Vectors over some partitions that split no transaction, and that their views had not reached at that time.

    The larger the lag of the views, the fewer are kept per time: about eight in all.
    """

    def __init__(self) -> None:
        self._kept: list[_Aim] = []

    def add(self, now_ms: int, vector: Sequence[int]) -> None:
        """Add a vector taken now; one that follows another too soon is dropped."""
        if self._kept:
            apart_ms = max(_APART_MS, (now_ms - self._kept[0].time_ms) // _ENOUGH)
            if now_ms < self._kept[-1].time_ms + apart_ms:
                return
        self._kept.append(_Aim(now_ms, vector))

    def newest(self, oldest: Sequence[int], reached: Sequence[int]) -> Sequence[int] | None:
        """The newest vector that views at `reached` can show; None without one.

        Snapshots before `oldest` are no longer shown.
        """
        found = next((aim for aim in reversed(self._kept) if _within(aim.vector, reached)), None)
        if found is None:
            return None
        self._kept = [aim for aim in self._kept if aim.time_ms >= found.time_ms]
        return found.vector if _within(oldest, found.vector) else None


def _within(lower: Sequence[int], upper: Sequence[int]) -> bool:
    return all(one <= other for one, other in zip(lower, upper, strict=True))
