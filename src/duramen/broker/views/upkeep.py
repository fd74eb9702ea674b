"""Periodic work of a view: samples its position, raises S0, writes checkpoints."""

from collections.abc import Callable
from functools import partial

from duramen.base.deadlines import Deadline
from duramen.broker.views.checkpoints import ViewCheckpoints
from duramen.broker.views.jobs import ViewJobs
from duramen.broker.views.parts import ViewParts
from duramen.broker.views.retention import SnapshotRetention
from duramen.broker.views.state import ViewState
from duramen.keyed.view import KeyedView

__all__ = ["ViewUpkeep"]


class ViewUpkeep:
    """One deadline at a time: the earliest that was asked for. `kept` is called when nothing is to be saved."""

    def __init__(
        self,
        state: ViewState,
        jobs: ViewJobs,
        parts: ViewParts,
        retention: SnapshotRetention,
        checkpoints: ViewCheckpoints,
        kept: Callable[[], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._state = state
        self._jobs = jobs
        self._parts = parts
        self._retention = retention
        self._checkpoints = checkpoints
        self._kept = kept
        self._failed = failed
        self._deadline: Deadline | None = None
        self._sampled = -1

    def soon(self) -> None:
        """There is something to sample."""
        self._arm(self._parts.limits.sample_ms)

    def settle(self, view: KeyedView) -> None:
        """Everything is applied: the remaining work is done later, if there is any."""
        limits = self._parts.limits
        if view.position != self._sampled or view.reached > view.position:
            self._arm(limits.sample_ms)
        elif view.s0 < view.position:
            retention_ms = self._retention.times.snapshot_retention_ms
            self._arm(max(limits.sample_ms, min(limits.save_ms, retention_ms // 8)))
        elif not self._checkpoints.is_saved(view):
            self._arm(limits.save_ms)

    def cancel(self) -> None:
        """Do nothing any more."""
        if self._deadline is not None:
            self._deadline.cancel()

    def _arm(self, delay_ms: int) -> None:
        at_ms = self._parts.clock.monotonic_ms() + delay_ms
        if self._state.closed or (self._deadline is not None and self._deadline.at_ms <= at_ms):
            return
        self.cancel()
        self._deadline = self._parts.deadlines.at(at_ms, self._tick)

    def _tick(self) -> None:
        self._deadline = None
        if self._state.view is not None:
            retention = self._retention
            job = partial(self._keep_time, retention.oldest_held(), retention.oldest_reader())
            self._jobs.do(job, self._kept_time)

    def _keep_time(self, oldest_held: int | None, oldest_reader: int | None) -> None:
        view, now_ms = self._state.view, self._parts.clock.wall_ms()
        if view is None:
            return  # it is being rebuilt
        view.sample(now_ms)
        self._sampled = view.position
        self._state.superseded = view.prev.superseding()
        self._retention.advance(view, oldest_held, oldest_reader, now_ms)

    def _kept_time(self, result: object) -> None:
        if isinstance(result, BaseException):
            self._failed(result)
            return
        view = self._state.view
        if view is None:
            return
        self._retention.look(self._jobs.do)
        if self._checkpoints.is_due(view):
            self._checkpoints.begin_save(view)
        else:
            self._kept()
