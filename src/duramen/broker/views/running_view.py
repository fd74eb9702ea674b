"""The view of one partition at run time: applies committed records in jobs, one at a time; appends never wait."""

from collections.abc import Callable
from typing import TypeVar

from duramen.base.errors import CheckpointInvalid, DuramenError
from duramen.broker.partition import Partition
from duramen.broker.views.applier import ViewApplier
from duramen.broker.views.checkpoints import ViewCheckpoints, ViewOutcomes
from duramen.broker.views.compaction import ViewDecisions
from duramen.broker.views.files import ViewFiles
from duramen.broker.views.floors import ReplicaFloor
from duramen.broker.views.jobs import ViewJobs
from duramen.broker.views.parts import ViewParts, ViewTimes
from duramen.broker.views.retention import SnapshotRetention
from duramen.broker.views.rounds import SnapshotAge
from duramen.broker.views.shown import LiveRecords, ShownRecords
from duramen.broker.views.state import ViewFacts, ViewState
from duramen.broker.views.table import ViewTable
from duramen.broker.views.upkeep import ViewUpkeep
from duramen.broker.views.waiters import SnapshotWaiters
from duramen.keyed.snapshots import SnapshotBounds
from duramen.keyed.view import KeyedView, VisibleRecords

__all__ = ["RunningView"]

T = TypeVar("T")


class RunningView:
    """Assembles the parts of a view, and is its interface. While it is rebuilt, compaction of the log waits."""

    def __init__(
        self,
        partition: Partition,
        stream_id: bytes,
        files: ViewFiles,
        secret: bytes,
        times: ViewTimes,
        parts: ViewParts,
        oldest_held: Callable[[], int | None] = lambda: None,
        floor: ReplicaFloor | None = None,
        oldest_reader: Callable[[], int | None] = lambda: None,
    ) -> None:
        """`oldest_held` is the oldest snapshot that is held open, which S0 does not pass.

        In a cluster `floor` is S0: the view keeps the state for snapshots from the value that the replicas have agreed
        on. Tombstones from `oldest_reader` on are kept for readers of the live topic.
        """
        self.partition = partition
        self.log = partition.log
        self._parts = parts
        self._floor = floor
        self._age = SnapshotAge(parts.clock)
        self._state = state = ViewState(partition)
        self._waiters = SnapshotWaiters(state)
        self._jobs = jobs = ViewJobs(parts.store, state, self._waiters.tell)
        self._retention = SnapshotRetention(state, parts.clock, times, oldest_held, floor, oldest_reader)
        self._table = ViewTable(state, jobs, parts)
        outcomes = ViewOutcomes(self._loaded, self._go_on, self._failed)
        self._checkpoints = ViewCheckpoints(
            state, jobs, files, stream_id, secret, parts, self._retention, floor, outcomes
        )
        self._upkeep = ViewUpkeep(state, jobs, parts, self._retention, self._checkpoints, self._kept_time, self._failed)
        self._applier = ViewApplier(
            state, jobs, parts, self._table, self._checkpoints, self._upkeep, self._waiters, self._failed
        )
        self._shown = ShownRecords(state, jobs, parts.clock, self._retention, self._failed)

    @property
    def facts(self) -> ViewFacts:
        """Those of the last job's end."""
        return self._state.facts

    def start(self) -> None:
        """Restore the view, or build it from the log."""
        log, clock, retention = self.partition.log, self._parts.clock, self._retention
        log.view_floor = log.whole_from
        log.view = ViewDecisions(
            self.ask, log, clock, lambda: retention.times.delete_retention_ms, retention.oldest_reader
        )
        self.partition.waiting[self._advanced] = None
        if self._floor is not None:
            self._floor.floor.was_cut, self._floor.floor.heard = self._was_cut, self._heard
        self._checkpoints.load(anew=False)

    def use(self, times: ViewTimes) -> None:
        """The stream's config is another."""
        self._retention.times = times
        self._jobs.do(self._retention.keep_tombstones, lambda _: None)

    def close(self, *, remove: bool, done: Callable[[], None] = lambda: None) -> None:
        """End, with a checkpoint, or with everything removed where the stream is not keyed any more."""
        if self._state.closed:
            done()
            return
        self.partition.waiting.pop(self._advanced, None)
        self._upkeep.cancel()
        self._applier.cancel()
        if remove:
            self.partition.log.view_floor = self.partition.log.view = None
        self._checkpoints.close(remove=remove, done=done)
        self._state.closed = True
        self._waiters.tell()

    # -- events of the parts ------------------------------------------------------------------------

    def _advanced(self, _: Partition) -> None:
        self._age.moved(self.partition.log.high_watermark, self.facts.position)
        self._applier.advanced()

    def _was_cut(self, end_offset: int) -> None:
        """The applied position may be on a history that the log has truncated: its checkpoint decides."""
        view = self._state.view
        if view is not None and (self._jobs.working or view.reached > end_offset):
            self._state.loaded_once = False
            self._checkpoints.load(anew=False)

    def _heard(self) -> None:
        if self._floor is not None:
            self._floor.save(self._jobs.do)
        self._upkeep.soon()

    def _loaded(self, view: KeyedView) -> None:
        if self._table.fits_memory(view):
            self._table.unfile(view, self._unfiled)
        else:
            self._go_on()

    def _unfiled(self, result: object) -> None:
        if isinstance(result, BaseException):
            self._failed(result)
        self._go_on()

    def _kept_time(self) -> None:
        if self._applier.busy:
            self._upkeep.soon()
        else:
            self._go_on()

    def _go_on(self) -> None:
        self._applier.go_on()

    def _failed(self, error: BaseException) -> None:
        """The view stops for a while; one with damaged pages is rebuilt."""
        if self._state.closed:
            return
        if isinstance(error, CheckpointInvalid):
            self._parts.report(f"a view of {self.partition.stream.name} is rebuilt: {error}")
            self._checkpoints.load(anew=True)
            return
        if not isinstance(error, DuramenError | OSError):
            raise error
        view = self._state.view
        at = "" if view is None else f"snapshots end at {view.position}: "
        self._applier.stand(f"{at}{error}")

    # -- operations ---------------------------------------------------------------------------------

    def ask(self, job: Callable[[KeyedView], T], done: Callable[[T | None], None]) -> None:
        """Run a job on the view; `done` gets None where it is not there or has failed."""

        def run() -> T | None:
            view = self._state.view
            return None if view is None else job(view)

        def ended(result: T | BaseException | None) -> None:
            if isinstance(result, BaseException):
                self._failed(result)
                done(None)
            else:
                done(result)

        if self._state.closed:
            done(None)
        else:
            self._jobs.do(run, ended)

    def step(self, done: Callable[[int], None]) -> None:
        """Check some more of its files, as `Scrubbed` describes. Damaged files are written again."""
        self._checkpoints.step(done)

    def file_table(self) -> bool:
        """Move the table to files; False if it is there, or something else is in progress."""
        return self._applier.file_table()

    def when_reached(self, position: int, action: Callable[[], None]) -> Callable[[], None]:
        """Do `action` once everything below the position is applied; the result cancels that."""
        forget = self._waiters.add(position, action)

        def begin() -> None:
            self._waiters.tell()
            self._go_on()

        self._parts.store.soon(begin)
        return forget

    # -- queries ------------------------------------------------------------------------------------

    @property
    def newest(self) -> int:
        """The least position of a snapshot that is opened now: all committed records, or the end of the last round."""
        return self.facts.position if self.facts.is_filed else self.partition.log.high_watermark

    @property
    def age_ms(self) -> int:
        """How long ago the newest snapshot had all that was committed."""
        facts = self.facts
        return self._age.age_ms(facts.position, facts.sampled_ms) if self.lag else 0

    @property
    def lag(self) -> int:
        """Offsets that are committed and not applied."""
        return max(0, self.partition.log.high_watermark - self.facts.position)

    @property
    def bounds(self) -> SnapshotBounds:
        """Which snapshots there are now."""
        return self._retention.bounds

    @property
    def kept_from(self) -> int:
        """As of this offset and later ones the newest record of each key is in the log of this replica."""
        return max(self.facts.s0, self.log.whole_from)

    def unheld_s0(self, view: KeyedView) -> int:
        """The S0 that would hold if no snapshot were held open."""
        return self._retention.unheld_s0(view)

    def check(self, at: int | None, done: Callable[[int | BaseException], None]) -> None:
        """`done` gets the position of a snapshot that can be opened, `at` or the newest, after all that S0 waits for.

        A caller that announced its hold before then knows that S0 does not pass it. Other results: SnapshotTooOld,
        SnapshotNotReached.
        """
        self._shown.check(at, done)

    def shown(
        self, at: int, since: int | None, first: int, end: int, done: Callable[[VisibleRecords | BaseException], None]
    ) -> None:
        """Which offsets of `[first, end)` the snapshot at `at` has, or of the changes since one, which has all of them.

        `done` gets SnapshotTooOld, SnapshotNotReached or SnapshotStartOver where there is none.
        """
        self._shown.shown(at, since, first, end, done)

    def live_records(
        self, end: int, first: int, size: int, done: Callable[[LiveRecords | BaseException], None]
    ) -> None:
        """The records of a pass of the live topic that ends at `end`, from `first` on, at most `size` offsets.

        The pass ends at the present last stable offset if `end` is -1 or too old. `done` gets SnapshotNotReached if the
        view has no such end yet.
        """
        self._shown.live_records(end, first, size, done)
