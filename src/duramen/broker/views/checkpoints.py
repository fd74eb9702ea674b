"""The checkpoints of one view: loads the view from them, saves it, and checks their files."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from duramen.broker.views.files import LoadedView, PreparedCheckpoint, ViewFiles
from duramen.broker.views.floors import ReplicaFloor
from duramen.broker.views.jobs import ViewJobs
from duramen.broker.views.parts import ViewParts
from duramen.broker.views.retention import SnapshotRetention
from duramen.broker.views.state import ViewState
from duramen.keyed.checkpoint import LogPositions
from duramen.keyed.floors import KeptFloor
from duramen.keyed.pagefiles import GENERATIONS, CheckedPart
from duramen.keyed.view import KeyedView

__all__ = ["ViewCheckpoints", "ViewOutcomes"]


class ViewOutcomes(NamedTuple):
    """Called when a job on checkpoints has ended."""

    loaded: Callable[[KeyedView], None]
    saved: Callable[[], None]
    failed: Callable[[BaseException], None]


class ViewCheckpoints:
    """`secret` is that of a view which is built from the log."""

    def __init__(
        self,
        state: ViewState,
        jobs: ViewJobs,
        files: ViewFiles,
        stream_id: bytes,
        secret: bytes,
        parts: ViewParts,
        retention: SnapshotRetention,
        floor: ReplicaFloor | None,
        outcomes: ViewOutcomes,
    ) -> None:
        self._state = state
        self._jobs = jobs
        self._files = files
        self._stream_id = stream_id
        self._secret = secret
        self._parts = parts
        self._retention = retention
        self._floor = floor
        self._outcomes = outcomes
        self._saved = -1
        self._saved_ms = 0

    def _positions(self) -> LogPositions:
        partition, log = self._state.partition, self._state.partition.log
        return LogPositions(self._stream_id, partition.index, log.start_offset, log.end_offset, log.takeovers.epoch_at)

    # -- loading -------------------------------------------------------------------------------------

    def load(self, *, anew: bool) -> None:
        """Restore the view from its newest checkpoint; with `anew`, or without one, from the log's start."""
        self._state.view = None
        self._jobs.do(partial(self._load_files, anew=anew), self._loaded, alone=True)

    def _load_files(self, *, anew: bool) -> tuple[LoadedView, KeptFloor | None]:
        positions = self._positions()
        loaded = self._files.load(self._parts.kernel, positions, self._secret, anew=anew)
        return loaded, None if self._floor is None else self._floor.load(loaded.view, positions)

    def _loaded(self, found: tuple[LoadedView, KeptFloor | None] | BaseException) -> None:
        if isinstance(found, BaseException):
            self._outcomes.failed(found)
            return
        result, kept = found
        if self._floor is not None and kept is not None:
            self._floor.restored(kept)
        for wrong in result.wrong:
            self._parts.report(f"a view of {self._state.partition.stream.name} is rebuilt: {wrong}")
        self._state.view, self._state.loaded_once = result.view, True
        self._retention.restored(result.view)
        self._retention.keep_tombstones()
        self._state.note()
        self._saved = result.view.position
        self._saved_ms = self._parts.clock.monotonic_ms()
        self._outcomes.loaded(result.view)

    # -- saving --------------------------------------------------------------------------------------

    def is_saved(self, view: KeyedView) -> bool:
        """Whether the newest checkpoint has everything that is applied, or is being written with it."""
        return view.position == self._saved

    def is_due(self, view: KeyedView) -> bool:
        """Whether it is time to save the view."""
        limits = self._parts.limits
        many = view.position - self._saved >= limits.save_records
        return not self.is_saved(view) and (many or self._parts.clock.monotonic_ms() - self._saved_ms >= limits.save_ms)

    def begin_save(self, view: KeyedView) -> None:
        """Write a checkpoint of the view; meanwhile newly committed records are applied."""
        self._saved, self._saved_ms = view.position, self._parts.clock.monotonic_ms()
        self._jobs.do(self._prepare_save, self._prepared, alone=True)

    def _prepare_save(self) -> PreparedCheckpoint | None:
        view = self._state.view
        return None if view is None else self._files.prepare(view, self._positions())

    def _prepared(self, result: PreparedCheckpoint | BaseException | None) -> None:
        if isinstance(result, BaseException) or result is None:
            self._was_saved(result)
            return
        self._jobs.write(partial(self._files.write, result), self._was_saved)
        self._outcomes.saved()

    def _was_saved(self, result: object) -> None:
        if isinstance(result, BaseException):
            self._saved = -1
            self._outcomes.failed(result)
        else:
            self._outcomes.saved()

    def _save(self) -> None:
        if self._state.view is not None:
            self._files.save(self._state.view, self._positions())

    def close(self, *, remove: bool, done: Callable[[], None]) -> None:
        """Save the view for the last time, or remove its files."""
        view = self._state.view
        if remove:
            if self._floor is not None:
                self._jobs.do(self._floor.remove, lambda _: None)
            self._jobs.do(self._files.remove, lambda _: done(), alone=True)
        elif view is not None and not self.is_saved(view):
            self._jobs.do(self._save, lambda _: done(), alone=True)
        else:
            self._jobs.do(lambda: None, lambda _: done(), alone=True)

    # -- checking ------------------------------------------------------------------------------------

    def step(self, done: Callable[[int], None]) -> None:
        """Check some more of its files, as `Scrubbed` describes. Damaged files are written again."""

        def ended(result: CheckedPart | BaseException) -> None:
            if isinstance(result, BaseException):
                self._parts.report(f"the files of the view of {self._state.name} cannot be checked: {result}")
                done(0)
                return
            if result.damaged:
                self._mend(result)
            done(0 if result.damaged else result.size)

        if self._state.closed or self._state.view is None:
            done(0)
        else:
            self._jobs.do(self._files.check, ended, alone=True)

    def _mend(self, part: CheckedPart) -> None:
        name = self._state.name
        self._parts.report(f"{part.damaged} does not match its checksum: the view of {name} is written to disk again")
        if part.in_page:
            self.load(anew=True)
            return
        for _ in range(GENERATIONS):
            self._jobs.do(self._save, self._was_saved, alone=True)
