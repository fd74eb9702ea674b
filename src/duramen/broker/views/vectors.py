"""Snapshots over several partitions of one or more keyed streams: each has every transaction entirely or not at all."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from duramen.base.errors import SnapshotNotReached
from duramen.base.ports import Clock
from duramen.broker.views.running_view import RunningView
from duramen.keyed.cuts import Aims
from duramen.storage.log.log import Log, LogKey

__all__ = ["SnapshotVectors"]

_MOST_SETS: Final = 64

WhenWhole = Callable[[Collection[Log], Callable[[], None]], Callable[[], None]]


class SnapshotVectors:
    """Takes vectors.

    On a node that is alone the high watermarks of all partitions rise in one step where a transaction ends: at any
    moment that `when_whole` calls at they are a cut between transactions.
    """

    def __init__(self, clock: Clock, when_whole: WhenWhole) -> None:
        self._clock = clock
        self._when_whole = when_whole
        self._aims: dict[tuple[LogKey, ...], Aims] = {}

    def aim(self, views: Sequence[RunningView], done: Callable[[list[int]], None]) -> Callable[[], None]:
        """`done` gets a vector that covers everything committed by now; the result cancels that."""

        def take() -> None:
            vector = [view.partition.log.high_watermark for view in views]
            if _several_marked(views):
                self._remember(views, vector)
            done(vector)

        return self._when_whole([view.partition.log for view in views], take)

    def _remember(self, views: Sequence[RunningView], vector: list[int]) -> None:
        key = _key(views)
        aims = self._aims.pop(key, None) or Aims()
        self._aims[key] = aims
        if len(self._aims) > _MOST_SETS:
            del self._aims[next(iter(self._aims))]
        aims.add(self._clock.monotonic_ms(), vector)

    def newest(self, views: Sequence[RunningView], aimed: Sequence[int] | None) -> list[int]:
        """The newest snapshot that the views can show; `aimed` is the awaited one. Raises SnapshotNotReached."""
        bounds = [view.bounds for view in views]
        reached = [one.position for one in bounds]
        if not _several_marked(views):
            return reached
        if aimed is not None and all(at <= position for at, position in zip(aimed, reached, strict=True)):
            return list(aimed)
        aims = self._aims.get(_key(views))
        found = None if aims is None else aims.newest([one.s0 for one in bounds], reached)
        if found is None:
            raise SnapshotNotReached(
                "the views are behind: no snapshot that they have reached contains every transaction entirely"
            )
        return list(found)


def _key(views: Sequence[RunningView]) -> tuple[LogKey, ...]:
    return tuple(view.partition.log.key for view in views)


def _several_marked(views: Sequence[RunningView]) -> bool:
    """Whether a transaction may have written to more than one of the partitions."""
    return sum(view.partition.log.transactions.marked_offset > 0 for view in views) > 1
