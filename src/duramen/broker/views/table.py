"""The table of keys of one view: moves it into files and back, and rewrites the files in rounds."""

from collections.abc import Callable
from functools import partial

from duramen.broker.views.jobs import ViewJobs
from duramen.broker.views.parts import ViewParts
from duramen.broker.views.rounds import RoundSchedule, round_bytes
from duramen.broker.views.state import ViewState
from duramen.keyed.view import KeyedView

__all__ = ["ViewTable"]

_Ended = Callable[[object], None]
"""Gets an exception where the job has failed. The view may be another by then."""


class ViewTable:
    """Jobs of the view on its table."""

    def __init__(self, state: ViewState, jobs: ViewJobs, parts: ViewParts) -> None:
        self._state = state
        self._jobs = jobs
        self._parts = parts
        self._rounds = RoundSchedule(parts.clock, parts.limits.round_ms, round_bytes(parts.limit_bytes))

    def outgrows_memory(self, view: KeyedView) -> bool:
        """Whether the table is in memory and too large for it."""
        return view.filed is None and view.latest.size_bytes > self._parts.limits.table_bytes

    def fits_memory(self, view: KeyedView) -> bool:
        """Whether the table is in files and, by a wide margin, small enough for memory."""
        room = min(self._parts.limit_bytes // 2, self._parts.limits.table_bytes)
        return view.filed is not None and 2 * view.filed.file_bytes < room

    def is_round_due(self, view: KeyedView, *, crowded: bool) -> bool:
        """Whether a round is in progress or due."""
        return self._rounds.is_due(view, crowded=crowded)

    def unfile(self, view: KeyedView, ended: _Ended) -> None:
        """Bring the table into memory."""
        self._jobs.do(partial(self._out_of_files, view), ended)

    def file(self, view: KeyedView, ended: _Ended) -> None:
        """Bring the table into files, with a first round."""
        self._jobs.do(partial(self._into_files, view), partial(self._filed, view, ended))

    def begin_round(self, view: KeyedView, ended: _Ended) -> None:
        """Rewrite the table with the gathered changes, in steps."""
        self._rounds.begin()
        self._jobs.do(partial(self._step, view), partial(self._stepped, view, ended))

    def _out_of_files(self, view: KeyedView) -> None:
        if view is self._state.view:
            view.unfile_table()

    def _into_files(self, view: KeyedView) -> None:
        if view is self._state.view:
            view.file_table()

    def _filed(self, view: KeyedView, ended: _Ended, result: object) -> None:
        if isinstance(result, BaseException) or view is not self._state.view:
            ended(result)
        else:
            self.begin_round(view, ended)

    def _step(self, view: KeyedView) -> bool:
        return view is self._state.view and view.step()

    def _stepped(self, view: KeyedView, ended: _Ended, more: bool | BaseException) -> None:
        if view is not self._state.view or isinstance(more, BaseException):
            ended(more)
        elif more:
            self._jobs.do(partial(self._step, view), partial(self._stepped, view, ended))
        else:
            self._jobs.do(partial(self._finish, view), partial(self._finished, view, ended))

    def _finish(self, view: KeyedView) -> None:
        if view is self._state.view:
            view.end_round()

    def _finished(self, view: KeyedView, ended: _Ended, result: object) -> None:
        if view is self._state.view and not isinstance(result, BaseException):
            self._rounds.end()
        ended(result)
