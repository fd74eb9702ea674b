"""Applies committed records to one view: reads the log piece by piece, and pauses after a failure."""

from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadline
from duramen.base.errors import LogDamaged
from duramen.base.ports import Buffer
from duramen.broker.views.batch_reader import ReadResult, read_batches
from duramen.broker.views.checkpoints import ViewCheckpoints
from duramen.broker.views.jobs import ViewJobs
from duramen.broker.views.parts import ViewParts
from duramen.broker.views.state import ViewState
from duramen.broker.views.table import ViewTable
from duramen.broker.views.upkeep import ViewUpkeep
from duramen.broker.views.waiters import SnapshotWaiters
from duramen.keyed.view import KeyedView

__all__ = ["ViewApplier"]

_RETRY_MS: Final = 60_000
_HELD_BYTES: Final = 1 << 20


class _Needed(Exception):
    """A committed transaction's records are to be read before the view can go on."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(first, end)
        self.first = first
        self.size = min(_HELD_BYTES, (end - first) << 10)


class ViewApplier:
    """`busy` while something is read and applied, or the table is on its way into files or in a round."""

    def __init__(
        self,
        state: ViewState,
        jobs: ViewJobs,
        parts: ViewParts,
        table: ViewTable,
        checkpoints: ViewCheckpoints,
        upkeep: ViewUpkeep,
        waiters: SnapshotWaiters,
        failed: Callable[[BaseException], None],
    ) -> None:
        self._partition = state.partition
        self._state = state
        self._jobs = jobs
        self._parts = parts
        self._table = table
        self._checkpoints = checkpoints
        self._upkeep = upkeep
        self._waiters = waiters
        self._failed = failed
        self.busy = False
        self._woken = False
        self._retry: Deadline | None = None
        self._held: dict[int, bytes] = {}

    # -- when ----------------------------------------------------------------------------------------

    def advanced(self) -> None:
        """More is committed."""
        if not (self._woken or self.busy or self._state.closed):
            self._wake_later()

    def _wake_later(self) -> None:
        """Soon if a request waits, else after a pause."""
        self._woken = True
        pause_ms = self._parts.limits.pause_ms
        if self._waiters or not pause_ms:
            self._parts.store.soon(self._wake)
        else:
            self._parts.deadlines.at(self._parts.clock.monotonic_ms() + pause_ms, self._wake)

    def _wake(self) -> None:
        self._woken = False
        self.go_on()

    def stand(self, problem: str) -> None:
        """Stand still for a while."""
        if self._retry is not None:
            return
        if self._state.facts.problem != problem:
            self._parts.report(f"the view of {self._state.name} has stopped and is retried every minute: {problem}")
        self._state.set_problem(problem)
        self._retry = self._parts.deadlines.at(self._parts.clock.monotonic_ms() + _RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._state.view is None:
            self._checkpoints.load(anew=False)
        else:
            self.go_on()

    def cancel(self) -> None:
        """Do not try again."""
        if self._retry is not None:
            self._retry.cancel()

    def _cannot_begin(self) -> bool:
        return self._state.closed or self.busy or self._retry is not None

    # -- the next step ------------------------------------------------------------------------------

    def go_on(self) -> None:
        """Apply committed records, unless something else comes first."""
        view, log = self._state.view, self._partition.log
        if view is None or self._cannot_begin():
            return
        if self._table.outgrows_memory(view):
            self.file_table()
            return
        ahead = view.reached < log.high_watermark
        crowded = self._parts.crowded() if ahead else ""
        if self._cannot_begin():
            return  # room was made: the table is on its way into files
        if self._table.is_round_due(view, crowded=bool(crowded)):
            self.busy = True
            self._table.begin_round(view, partial(self._end_round, view))
            self._upkeep.soon()
            return
        if not ahead:
            self._upkeep.settle(view)
            return
        if crowded:
            self.stand(crowded)
            return
        self.busy = True
        behind = log.behind_lost(view.reached)
        if behind > view.reached:
            self._pass_over(view, min(behind, log.high_watermark))
        else:
            size = self._parts.limits.read_bytes
            read_batches(self._parts.store, log, view.reached, partial(self._apply, view), size)
        self._upkeep.soon()

    def file_table(self) -> bool:
        """Move the table to files; False if it is there, or something else is in progress."""
        view = self._state.view
        if view is None or view.filed is not None or self._cannot_begin():
            return False
        self.busy = True
        self._parts.report(
            f"the table of keys of {self._state.name} is stored in files from now on: snapshots lag by a round"
        )
        self._table.file(view, partial(self._end_round, view))
        return True

    def _end_round(self, view: KeyedView, result: object) -> None:
        self.busy = False
        if isinstance(result, BaseException):
            self._failed(result)
        elif view is not self._state.view:
            self.go_on()
        else:
            self._state.set_problem("")
            self._checkpoints.begin_save(view)

    # -- a piece of the log --------------------------------------------------------------------------

    def _pass_over(self, view: KeyedView, behind: int) -> None:
        self._parts.report(
            f"the view of {self._state.name} passes over offsets {view.reached} to {behind - 1}, which a start has"
            " lost: snapshots may show older records of the keys that were written there"
        )
        self._jobs.do(partial(view.pass_over, behind), partial(self._applied, view, b""))

    def _apply(self, view: KeyedView, data: ReadResult) -> None:
        if not isinstance(data, bytes):
            self._applied(view, data, data)
            return
        self._jobs.do(partial(self._apply_batches, view, data), partial(self._applied, view, data))

    def _apply_batches(self, view: KeyedView, data: bytes) -> _Needed | None:
        if view is not self._state.view:
            return None  # it is rebuilt from the log's start
        try:
            view.apply(data, self._held_records)
        except _Needed as needed:
            return needed
        finally:
            self._follow_compaction(view)
        return None

    def _held_records(self, first: int, end: int) -> Buffer:
        found = self._held.pop(first, None)
        if found is None:
            raise _Needed(first, end)
        return found

    def _follow_compaction(self, view: KeyedView) -> None:
        """Compacted offsets are as of their end: the log was compacted before this view or since its checkpoint."""
        whole_from = self._partition.log.whole_from
        if view.s0 < whole_from <= view.position:
            view.raise_s0(whole_from)
            view.raise_horizon(whole_from)

    def _applied(self, view: KeyedView, data: ReadResult, result: object) -> None:
        if isinstance(result, BaseException) and not isinstance(result, _Needed):
            self.busy = False
            self._failed(result)
        elif isinstance(result, _Needed):
            take = partial(self._take_held, view, result.first, data)
            read_batches(self._parts.store, self._partition.log, result.first, take, result.size)
        else:
            self.busy = False
            self._state.set_problem("")
            if isinstance(data, bytes) and len(data) > self._parts.limits.read_bytes // 2:
                self._parts.store.soon(self.go_on)  # there is more
            elif not self._woken:
                self._wake_later()

    def _take_held(self, view: KeyedView, first: int, data: ReadResult, found: ReadResult) -> None:
        if isinstance(found, LogDamaged) and self._partition.log.behind_lost(first) > first:
            found = b""
        if isinstance(found, bytes):
            self._held[first] = found
            self._apply(view, data)
        else:
            self._applied(view, data, found)
