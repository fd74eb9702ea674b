"""Snapshot reads of one view: whether a snapshot can be opened, and its records."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from duramen.base.errors import CheckpointInvalid, SnapshotNotReached
from duramen.base.ports import Clock
from duramen.broker.views.jobs import ViewJobs
from duramen.broker.views.retention import SnapshotRetention
from duramen.broker.views.state import ViewState
from duramen.keyed.view import VisibleRecords

__all__ = ["LiveRecords", "ShownRecords"]

T = TypeVar("T")

_SHOWN: Final = 4  # windows of bits that are kept for the next page, 1 MiB each for snapshots


class LiveRecords(NamedTuple):
    """The records below `stop` of a pass that ends at `end`, which was chosen or kept at the view's `position`."""

    end: int
    position: int
    visible: VisibleRecords
    stop: int


class ShownRecords:
    """The last few answers are kept."""

    def __init__(
        self,
        state: ViewState,
        jobs: ViewJobs,
        clock: Clock,
        retention: SnapshotRetention,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._state = state
        self._jobs = jobs
        self._clock = clock
        self._retention = retention
        self._failed = failed
        self._shown: deque[tuple[tuple[int, int | None, int, int], VisibleRecords]] = deque(maxlen=_SHOWN)

    def check(self, at: int | None, done: Callable[[int | BaseException], None]) -> None:
        """As `RunningView.check`."""

        def job() -> int:
            bounds = self._retention.opened(self._state.loaded_view().bounds)
            found = max(bounds.position, bounds.s0) if at is None else at
            bounds.check_snapshot(found)
            return found

        self._jobs.do(job, done)

    def shown(
        self, at: int, since: int | None, first: int, end: int, done: Callable[[VisibleRecords | BaseException], None]
    ) -> None:
        """As `RunningView.shown`."""
        oldest_reader = self._retention.oldest_reader()

        def job() -> VisibleRecords:
            view, asked = self._state.loaded_view(), (at, since, first, end)
            self._retention.raise_horizon(view, self._clock.wall_ms(), oldest_reader)
            if since is None:
                self._retention.opened(view.bounds).check_snapshot(at)
            else:
                self._retention.opened(view.bounds).check_changes(since, at)
            for known, found in self._shown:
                if known == asked:
                    return found
            found = view.snapshot(at, first, end) if since is None else view.changes(since, at)
            self._shown.append((asked, found))
            return found

        self._jobs.do(job, partial(self._ended, done))

    def live_records(
        self, end: int, first: int, size: int, done: Callable[[LiveRecords | BaseException], None]
    ) -> None:
        """As `RunningView.live_records`."""

        def job() -> LiveRecords:
            view, whole_from = self._state.loaded_view(), self._state.partition.log.whole_from
            oldest, at = max(view.s0, whole_from), end
            if at < oldest:
                at = view.live_end
            if not oldest <= at:
                raise SnapshotNotReached(f"the view of {self._state.name} no longer has states before {oldest}")
            stop = max(first, min(at, first + size))
            return LiveRecords(at, view.position, view.live_records(at, first, stop), stop)

        self._jobs.do(job, partial(self._ended, done))

    def _ended(self, done: Callable[[T | BaseException], None], result: T | BaseException) -> None:
        if isinstance(result, CheckpointInvalid):
            self._failed(result)
            result = SnapshotNotReached(
                f"the view of {self._state.name} is rebuilt, because one of its files is damaged"
            )
        done(result)
