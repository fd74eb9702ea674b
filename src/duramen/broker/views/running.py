"""The view of one partition at work: it applies what is committed, in jobs, one at a time; nobody's append waits."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.errors import CheckpointInvalid, DuramenError, LogDamaged, SnapshotNotReached
from duramen.base.ports import Buffer, Clock
from duramen.broker.partition import Partition
from duramen.broker.views.dropping import ViewDecisions
from duramen.broker.views.files import LoadedView, PreparedCheckpoint, ViewFiles
from duramen.broker.views.floors import ReplicaFloor
from duramen.broker.views.reading import read_batches
from duramen.broker.views.rounds import RoundSchedule, SnapshotAge, round_bytes
from duramen.keyed.checkpoint import LogPositions
from duramen.keyed.dropping import next_s0
from duramen.keyed.floors import KeptFloor
from duramen.keyed.kernel import Kernel
from duramen.keyed.pagefiles import GENERATIONS, CheckedPart
from duramen.keyed.prev import PAGE_RECORDS
from duramen.keyed.snapshots import SnapshotBounds
from duramen.keyed.view import KeyedView, VisibleRecords
from duramen.storage.store import Store

__all__ = ["LiveRecords", "RunningView", "ViewFacts", "ViewLimits", "ViewParts", "ViewTimes"]

_RETRY_MS: Final = 60_000
_HELD_BYTES: Final = 1 << 20
_SHOWN: Final = 4  # windows of bits that are kept for the next page, 1 MiB each for snapshots

T = TypeVar("T")


class ViewTimes(NamedTuple):
    """`snapshot.retention.ms` and `delete.retention.ms` of the stream, and whether it has a live topic."""

    snapshot_retention_ms: int
    delete_retention_ms: int
    live: bool = False


class ViewLimits(NamedTuple):
    """How many records a page of `prev` has, how much is applied at once, and how often a view is sampled and saved.

    `pause_ms` is how long a view waits for more to apply where nobody waits for it: what is committed one record after
    another is applied together. Tables of more than `table_bytes` lie in files: then what was committed waits for
    `round_ms` at least, unless much of it does.
    """

    page_records: int = PAGE_RECORDS
    read_bytes: int = 4 << 20
    pause_ms: int = 10
    sample_ms: int = 1000
    save_ms: int = 60_000
    save_records: int = 5_000_000
    table_bytes: int = 1 << 62
    round_ms: int = 10_000


class ViewParts(NamedTuple):
    """What a view needs of its node."""

    store: Store
    clock: Clock
    deadlines: Deadlines
    kernel: Kernel
    report: Callable[[str], None]
    crowded: Callable[[], str]
    """Why no view may grow now; empty where there is room."""
    limits: ViewLimits
    limit_bytes: int = 1 << 62
    """Memory of all views."""


class ViewFacts(NamedTuple):
    """What is said of a view: offsets, how many keys it knows, its records above S0, memory, and why it stands.

    `superseded`, of those records, was counted when time was kept last. `file_bytes` are those of a table that lies in
    files; `sampled_ms` is when the position was reached, about.
    """

    position: int = 0
    s0: int = 0
    horizon: int = 0
    keys: int = 0
    records: int = 0
    memory_bytes: int = 0
    problem: str = ""
    superseded: int = 0
    table_bytes: int = 0
    file_bytes: int = 0
    is_filed: bool = False
    sampled_ms: int = 0

    @property
    def bytes_per_key(self) -> float:
        """Memory of the table and all else, by keys."""
        return self.memory_bytes / self.keys if self.keys else 0.0


class LiveRecords(NamedTuple):
    """Of a pass that ends at `end`, which was chosen or kept at the view's `position`, what is shown below `stop`."""

    end: int
    position: int
    visible: VisibleRecords
    stop: int


class _Needed(Exception):
    """A committed transaction's records are to be read before the view can go on."""

    def __init__(self, first: int, end: int) -> None:
        super().__init__(first, end)
        self.first = first
        self.size = min(_HELD_BYTES, (end - first) << 10)


class RunningView:
    """`facts` are those of the last job's end. While it is being built, compaction of the log waits."""

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
        """`oldest_held` is the oldest snapshot that somebody holds open, which S0 does not pass.

        In a cluster `floor` is S0: the view keeps what snapshots need from as far back as replicas have agreed on.
        Tombstones of what counts from `oldest_reader` on are kept for readers of the live topic.
        """
        self.partition = partition
        self.log = partition.log
        self.facts = ViewFacts()
        self._stream_id = stream_id
        self._files = files
        self._secret = secret
        self._times = times
        self._parts = parts
        self._oldest_held = oldest_held
        self._floor = floor
        self._unheld = -1
        self._oldest_reader = oldest_reader
        self._view: KeyedView | None = None
        self._loaded_once = False
        self._jobs: deque[tuple[bool, Callable[[], None]]] = deque()
        self._writing = False
        self._working = False
        self._reading = False
        self._woken = False
        self._closed = False
        self._deadline: Deadline | None = None
        self._retry: Deadline | None = None
        self._sampled = self._saved = -1
        self._superseded = 0
        self._saved_ms = 0
        self._held: dict[int, bytes] = {}
        self._shown: deque[tuple[tuple[int, int | None, int, int], VisibleRecords]] = deque(maxlen=_SHOWN)
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        limits = parts.limits
        self._rounds = RoundSchedule(parts.clock, limits.round_ms, round_bytes(parts.limit_bytes))
        self._age = SnapshotAge(parts.clock)

    @property
    def _name(self) -> str:
        return f"partition {self.partition.index} of {self.partition.stream.name}"

    def start(self) -> None:
        """Restore the view, or build it from the log."""
        self.partition.log.view_floor = self.partition.log.whole_from
        log, clock = self.partition.log, self._parts.clock
        log.view = ViewDecisions(self.ask, log, clock, lambda: self._times.delete_retention_ms, self._oldest_reader)
        self.partition.waiting[self._advanced] = None
        if self._floor is not None:
            self._floor.floor.was_cut, self._floor.floor.heard = self._was_cut, self._heard
        self._load(anew=False)

    def _was_cut(self, end_offset: int) -> None:
        """What the view has applied may be of a history that the log has no more: its checkpoint says."""
        view = self._view
        if view is not None and (self._working or view.reached > end_offset):
            self._loaded_once = False
            self._load(anew=False)

    def _heard(self) -> None:
        if self._floor is not None:
            self._floor.save(self._do)
        self._arm(self._parts.limits.sample_ms)

    def use(self, times: ViewTimes) -> None:
        """The stream's config is another."""
        self._times = times
        self._do(self._keep_tombstones, lambda _: None)

    def close(self, *, remove: bool, done: Callable[[], None] = lambda: None) -> None:
        """End, with a checkpoint, or with everything removed where the stream is not keyed any more."""
        if self._closed:
            done()
            return
        self.partition.waiting.pop(self._advanced, None)
        for deadline in (self._deadline, self._retry):
            if deadline is not None:
                deadline.cancel()
        if remove:
            self.partition.log.view_floor = self.partition.log.view = None
            if self._floor is not None:
                self._do(self._floor.remove, lambda _: None)
            self._do(self._files.remove, lambda _: done(), alone=True)
        elif self._view is not None and self._view.position != self._saved:
            self._do(self._save, lambda _: done(), alone=True)
        else:
            self._do(lambda: None, lambda _: done(), alone=True)
        self._closed = True
        self._tell_waiting(everybody=True)

    # -- jobs, one at a time -------------------------------------------------------------------------

    def _do(self, job: Callable[[], T], done: Callable[[T | BaseException], None], *, alone: bool = False) -> None:
        """Run a job behind those there are; one that is `alone` not while a checkpoint is written."""
        if self._closed:
            return

        def run() -> None:
            self._parts.store.run(job, partial(self._ended, done))

        self._jobs.append((alone, run))
        self._next()

    def _next(self) -> None:
        if self._working or not self._jobs or (self._writing and self._jobs[0][0]):
            return
        self._working = True
        self._jobs.popleft()[1]()

    def _ended(self, done: Callable[[T | BaseException], None], result: T | BaseException) -> None:
        self._working = False
        self._note()
        done(result)
        self._tell_waiting(everybody=False)
        self._next()

    def _note(self) -> None:
        """What others are told is what the last job left."""
        view = self._view
        if view is None:
            return
        table_bytes, filed = view.latest.size_bytes, view.filed
        self.facts = ViewFacts(
            view.position, view.s0, view.horizon, view.keys, view.prev.records, view.memory_bytes,
            self.facts.problem, self._superseded, table_bytes, 0 if filed is None else filed.file_bytes,
            filed is not None, view.samples.at(view.position).time_ms,
        )  # fmt: skip
        if not self._closed:
            self.partition.log.view_floor = view.s0

    def _keyed_view(self) -> KeyedView:
        if self._view is None:
            raise SnapshotNotReached("the view is being built")
        return self._view

    # -- loading and saving --------------------------------------------------------------------------

    def _positions(self) -> LogPositions:
        log = self.partition.log
        return LogPositions(
            self._stream_id, self.partition.index, log.start_offset, log.end_offset, log.takeovers.epoch_at
        )

    def _load(self, *, anew: bool) -> None:
        self._view = None
        self._do(partial(self._load_files, anew=anew), self._loaded, alone=True)

    def _load_files(self, *, anew: bool) -> tuple[LoadedView, KeptFloor | None]:
        positions = self._positions()
        loaded = self._files.load(self._parts.kernel, positions, self._secret, anew=anew)
        return loaded, None if self._floor is None else self._floor.load(loaded.view, positions)

    def _loaded(self, found: tuple[LoadedView, KeptFloor | None] | BaseException) -> None:
        if isinstance(found, BaseException):
            self._failed(found)
            return
        result, kept = found
        if self._floor is not None and kept is not None:
            self._floor.restored(kept)
        for wrong in result.wrong:
            self._parts.report(f"a view of {self.partition.stream.name} is built anew: {wrong}")
        self._view, self._loaded_once = result.view, True
        self._view.keep_tombstones(self._times.delete_retention_ms)
        self._note()
        self._saved = result.view.position
        self._saved_ms = self._parts.clock.monotonic_ms()
        filed, limits = result.view.filed, self._parts.limits
        if filed is not None and 2 * filed.file_bytes < min(self._parts.limit_bytes // 2, limits.table_bytes):
            self._do(partial(self._out_of_files, result.view), self._unfiled)
        else:
            self._go_on()

    def _out_of_files(self, view: KeyedView) -> None:
        if view is self._view:
            view.unfile_table()

    def _unfiled(self, result: object) -> None:
        if isinstance(result, BaseException):
            self._failed(result)
        self._go_on()

    def _save(self) -> None:
        if self._view is not None:
            self._files.save(self._view, self._positions())

    def _begin_save(self) -> None:
        """Write a checkpoint of the view as it is now; what is committed meanwhile is applied."""
        self._do(self._prepare_save, self._prepared, alone=True)

    def _prepare_save(self) -> PreparedCheckpoint | None:
        return None if self._view is None else self._files.prepare(self._view, self._positions())

    def _prepared(self, result: PreparedCheckpoint | BaseException | None) -> None:
        if isinstance(result, BaseException) or result is None:
            self._was_saved(result)
            return
        self._writing = True
        self._parts.store.run(partial(self._files.write, result), self._written)
        self._go_on()

    def _written(self, result: object) -> None:
        self._writing = False
        self._was_saved(result)
        self._next()

    # -- applying ------------------------------------------------------------------------------------

    def _advanced(self, _: Partition) -> None:
        self._age.moved(self.partition.log.high_watermark, self.facts.position)
        if not (self._woken or self._reading or self._closed):
            self._wake_later()

    def _wake_later(self) -> None:
        """Soon where somebody waits, else after a pause."""
        self._woken = True
        pause_ms = self._parts.limits.pause_ms
        if self._waiting or not pause_ms:
            self._parts.store.soon(self._wake)
        else:
            self._parts.deadlines.at(self._parts.clock.monotonic_ms() + pause_ms, self._wake)

    def _wake(self) -> None:
        self._woken = False
        self._go_on()

    def _is_busy(self) -> bool:
        return self._closed or self._reading or self._retry is not None

    def _go_on(self) -> None:
        view, log = self._view, self.partition.log
        if view is None or self._is_busy():
            return
        if view.filed is None and view.latest.size_bytes > self._parts.limits.table_bytes:
            self.file_table()
            return
        ahead = view.reached < log.high_watermark
        crowded = self._parts.crowded() if ahead else ""
        if self._is_busy():
            return  # room was made: the table is on its way into files
        if self._rounds.is_due(view, crowded=bool(crowded)):
            self._reading = True
            self._begin_round(view)
            self._arm(self._parts.limits.sample_ms)
            return
        if not ahead:
            self._settle(view)
            return
        if crowded:
            self._stand(crowded)
            return
        self._reading = True
        behind = log.behind_lost(view.reached)
        if behind > view.reached:
            self._pass_over(view, min(behind, log.high_watermark))
        else:
            size = self._parts.limits.read_bytes
            read_batches(self._parts.store, log, view.reached, partial(self._apply, view), size)
        self._arm(self._parts.limits.sample_ms)

    def _pass_over(self, view: KeyedView, behind: int) -> None:
        self._parts.report(
            f"the view of {self._name} passes over offsets {view.reached} to {behind - 1}, which a start has lost:"
            " snapshots may show older records of the keys that were written there"
        )
        self._do(partial(view.pass_over, behind), partial(self._applied, view, b""))

    def _apply(self, view: KeyedView, data: bytes | DuramenError | OSError) -> None:
        if not isinstance(data, bytes):
            self._applied(view, data, data)
            return
        self._do(partial(self._apply_batches, view, data), partial(self._applied, view, data))

    def _apply_batches(self, view: KeyedView, data: bytes) -> _Needed | None:
        if view is not self._view:
            return None  # it is built anew, from the log's start on
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
        """What compaction has cleaned is there as of its end only: before this view was, or since its checkpoint."""
        whole_from = self.partition.log.whole_from
        if view.s0 < whole_from <= view.position:
            view.raise_s0(whole_from)
            view.raise_horizon(whole_from)

    def _applied(self, view: KeyedView, data: bytes | DuramenError | OSError, result: object) -> None:
        if isinstance(result, BaseException) and not isinstance(result, _Needed):
            self._reading = False
            self._failed(result)
        elif isinstance(result, _Needed):
            take = partial(self._take_held, view, result.first, data)
            read_batches(self._parts.store, self.partition.log, result.first, take, result.size)
        else:
            self._reading = False
            self.facts = self.facts._replace(problem="")
            if isinstance(data, bytes) and len(data) > self._parts.limits.read_bytes // 2:
                self._parts.store.soon(self._go_on)  # there is more
            elif not self._woken:
                self._wake_later()

    def _take_held(
        self,
        view: KeyedView,
        first: int,
        data: bytes | DuramenError | OSError,
        found: bytes | DuramenError | OSError,
    ) -> None:
        if isinstance(found, LogDamaged) and self.partition.log.behind_lost(first) > first:
            found = b""
        if isinstance(found, bytes):
            self._held[first] = found
            self._apply(view, data)
        else:
            self._applied(view, data, found)

    def _failed(self, error: BaseException) -> None:
        """The view stands still for a while; one whose pages are damaged is built anew."""
        if self._closed:
            return
        if isinstance(error, CheckpointInvalid):
            self._parts.report(f"a view of {self.partition.stream.name} is built anew: {error}")
            self._load(anew=True)
            return
        if not isinstance(error, DuramenError | OSError):
            raise error
        at = "" if self._view is None else f"snapshots end at {self._view.position}: "
        self._stand(f"{at}{error}")

    def _stand(self, problem: str) -> None:
        if self._retry is not None:
            return
        if self.facts.problem != problem:
            self._parts.report(f"the view of {self._name} stands still, and is tried again each minute: {problem}")
        self.facts = self.facts._replace(problem=problem)
        self._retry = self._parts.deadlines.at(self._parts.clock.monotonic_ms() + _RETRY_MS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None
        if self._view is None:
            self._load(anew=False)
        else:
            self._go_on()

    # -- the table in files --------------------------------------------------------------------------

    def file_table(self) -> bool:
        """Have the table lie in files from now on; False where it does, or something else is being done."""
        view = self._view
        if view is None or view.filed is not None or self._is_busy():
            return False
        self._reading = True
        self._parts.report(f"the table of keys of {self._name} lies in files from now on: snapshots lag by a round")
        self._do(partial(self._into_files, view), partial(self._filed, view))
        return True

    def _into_files(self, view: KeyedView) -> None:
        if view is self._view:
            view.file_table()

    def _filed(self, view: KeyedView, result: object) -> None:
        if isinstance(result, BaseException) or view is not self._view:
            self._end_round(view, result)
        else:
            self._begin_round(view)

    def _begin_round(self, view: KeyedView) -> None:
        self._rounds.begin()
        self._do(partial(self._step, view), partial(self._stepped, view))

    def _step(self, view: KeyedView) -> bool:
        return view is self._view and view.step()

    def _finish(self, view: KeyedView) -> None:
        if view is self._view:
            view.end_round()

    def _stepped(self, view: KeyedView, more: bool | BaseException) -> None:
        if more is True and view is self._view:
            self._do(partial(self._step, view), partial(self._stepped, view))
        elif more is False and view is self._view:
            self._do(partial(self._finish, view), partial(self._end_round, view))
        else:
            self._end_round(view, more)

    def _end_round(self, view: KeyedView, result: object) -> None:
        self._reading = False
        if isinstance(result, BaseException):
            self._failed(result)
        elif view is not self._view:
            self._go_on()
        else:
            self._rounds.end()
            self.facts = self.facts._replace(problem="")
            self._saved, self._saved_ms = view.position, self._parts.clock.monotonic_ms()
            self._begin_save()

    # -- time ----------------------------------------------------------------------------------------

    def _settle(self, view: KeyedView) -> None:
        """Nothing is left to apply: what is left to do is done later, and nothing where there is nothing."""
        limits = self._parts.limits
        if view.position != self._sampled or view.reached > view.position:
            self._arm(limits.sample_ms)
        elif view.s0 < view.position:
            self._arm(max(limits.sample_ms, min(limits.save_ms, self._times.snapshot_retention_ms // 8)))
        elif view.position != self._saved:
            self._arm(limits.save_ms)

    def _arm(self, delay_ms: int) -> None:
        at_ms = self._parts.clock.monotonic_ms() + delay_ms
        if self._closed or (self._deadline is not None and self._deadline.at_ms <= at_ms):
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = self._parts.deadlines.at(at_ms, self._tick)

    def _tick(self) -> None:
        self._deadline = None
        if self._view is not None:
            self._do(partial(self._keep_time, self._oldest_held(), self._oldest_reader()), self._kept_time)

    def _keep_time(self, oldest_held: int | None, oldest_reader: int | None) -> None:
        view, now_ms = self._view, self._parts.clock.wall_ms()
        if view is None:
            return  # it is built anew meanwhile
        view.sample(now_ms)
        self._sampled = view.position
        self._superseded = view.prev.superseding()
        self._unheld = self.unheld_s0(view)
        if self._floor is None:
            view.raise_s0(next_s0(view.s0, self._unheld, oldest_held, view.position))
        else:
            view.raise_s0(min(self._floor.agreed, view.position))
        self._raise_horizon(view, now_ms, oldest_reader)
        view.samples.drop_before(now_ms - max(self._times[:2]))

    def unheld_s0(self, view: KeyedView) -> int:
        """Where S0 would be if nobody held a snapshot open."""
        oldest_ms = self._parts.clock.wall_ms() - self._times.snapshot_retention_ms
        found = view.samples.as_of(oldest_ms).position
        # A pass of a live topic ends at the last stable offset, which has to be a snapshot that there is.
        return min(found, view.live_end) if self._times.live else found

    def _raise_horizon(self, view: KeyedView, now_ms: int, oldest_reader: int | None) -> None:
        """Compaction drops a tombstone once it was cleaned, below what was S0, `delete.retention.ms` ago."""
        later = view.samples.after(now_ms - self._times.delete_retention_ms)
        bound = view.s0 if later is None else min(view.s0, later.position)
        view.raise_horizon(bound if oldest_reader is None else min(bound, oldest_reader))

    def _keep_tombstones(self) -> None:
        if self._view is not None:
            self._view.keep_tombstones(self._times.delete_retention_ms)

    def _kept_time(self, result: object) -> None:
        if isinstance(result, BaseException):
            self._failed(result)
            return
        view, now_ms, limits = self._view, self._parts.clock.monotonic_ms(), self._parts.limits
        if view is None:
            return
        if self._floor is not None:
            self._floor.look(self.facts.position, self._unheld, self._do)
        many = view.position - self._saved >= limits.save_records
        if view.position != self._saved and (many or now_ms - self._saved_ms >= limits.save_ms):
            self._saved, self._saved_ms = view.position, now_ms
            self._begin_save()
        elif self._reading:
            self._arm(limits.sample_ms)
        else:
            self._go_on()

    def _was_saved(self, result: object) -> None:
        if isinstance(result, BaseException):
            self._saved = -1
            self._failed(result)
        else:
            self._go_on()

    # -- what others do with it ----------------------------------------------------------------------

    def ask(self, job: Callable[[KeyedView], T], done: Callable[[T | None], None]) -> None:
        """Run a job on the view; `done` gets None where it is not there or has failed."""

        def run() -> T | None:
            return None if self._view is None else job(self._view)

        def ended(result: T | BaseException | None) -> None:
            if isinstance(result, BaseException):
                self._failed(result)
                done(None)
            else:
                done(result)

        if self._closed:
            done(None)
        else:
            self._do(run, ended)

    def step(self, done: Callable[[int], None]) -> None:
        """Check some more of its files, as `Scrubbed` says it. Those that are damaged are written anew."""

        def ended(result: CheckedPart | BaseException) -> None:
            if isinstance(result, BaseException):
                self._parts.report(f"the files of the view of {self._name} cannot be checked: {result}")
                done(0)
                return
            if result.damaged:
                self._mend(result)
            done(0 if result.damaged else result.size)

        if self._closed or self._view is None:
            done(0)
        else:
            self._do(self._files.check, ended, alone=True)

    def _mend(self, part: CheckedPart) -> None:
        self._parts.report(f"{part.damaged} does not match its checksum: the view of {self._name} is written again")
        if part.in_page:
            self._load(anew=True)
            return
        for _ in range(GENERATIONS):
            self._do(self._save, self._was_saved, alone=True)

    # -- what is asked -------------------------------------------------------------------------------

    def when_reached(self, position: int, action: Callable[[], None]) -> Callable[[], None]:
        """Do `action` once everything below the position is applied; what is returned takes that back."""
        entry = position, action
        self._waiting.append(entry)

        def begin() -> None:
            self._tell_waiting(everybody=self._closed)
            self._go_on()

        self._parts.store.soon(begin)
        return lambda: self._waiting.remove(entry) if entry in self._waiting else None

    def _tell_waiting(self, *, everybody: bool) -> None:
        # As `bounds` tells it: a job that is under way may be further.
        position = -1 if self._view is None else self.facts.position
        for entry in [entry for entry in self._waiting if everybody or entry[0] <= position]:
            self._waiting.remove(entry)
            entry[1]()

    @property
    def newest(self) -> int:
        """What a snapshot has at least that is opened now: all that is committed, or where the last round ended."""
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
        facts, whole_from = self.facts, self.partition.log.whole_from
        horizon = facts.horizon if facts.s0 >= whole_from else whole_from
        position = facts.position if self._loaded_once else -1
        return self._opened(SnapshotBounds(max(facts.s0, whole_from), position, horizon))

    def _opened(self, bounds: SnapshotBounds) -> SnapshotBounds:
        return bounds if self._floor is None else self._floor.bounds(bounds)

    def check(self, at: int | None, done: Callable[[int | BaseException], None]) -> None:
        """`done` gets the position of a snapshot that can be opened, `at` or the newest, behind all that S0 waits for.

        Who has said before what is to be held knows then that S0 does not pass it. Else it gets SnapshotTooOld or
        SnapshotNotReached.
        """

        def job() -> int:
            view = self._keyed_view()
            bounds = self._opened(view.bounds)
            found = max(bounds.position, bounds.s0) if at is None else at
            bounds.check_snapshot(found)
            return found

        self._do(job, done)

    def shown(
        self, at: int, since: int | None, first: int, end: int, done: Callable[[VisibleRecords | BaseException], None]
    ) -> None:
        """Which offsets of `[first, end)` the snapshot at `at` has, or of the changes since one, which has all of them.

        `done` gets SnapshotTooOld, SnapshotNotReached or SnapshotStartOver where there is none.
        """
        oldest_reader = self._oldest_reader()

        def job() -> VisibleRecords:
            view, asked = self._keyed_view(), (at, since, first, end)
            self._raise_horizon(view, self._parts.clock.wall_ms(), oldest_reader)
            if since is None:
                self._opened(view.bounds).check_snapshot(at)
            else:
                self._opened(view.bounds).check_changes(since, at)
            for known, found in self._shown:
                if known == asked:
                    return found
            found = view.snapshot(at, first, end) if since is None else view.changes(since, at)
            self._shown.append((asked, found))
            return found

        def ended(result: VisibleRecords | BaseException) -> None:
            if isinstance(result, CheckpointInvalid):
                self._failed(result)
                result = SnapshotNotReached(f"the view of {self._name} is built anew: a file of it is damaged")
            done(result)

        self._do(job, ended)

    def live_records(
        self, end: int, first: int, size: int, done: Callable[[LiveRecords | BaseException], None]
    ) -> None:
        """What a pass of the live topic shows that ends at `end`, from `first` on, at most `size` offsets.

        It ends at what is the last stable offset by now where `end` is -1, or where that is too old. `done` gets
        SnapshotNotReached where the view has no such end yet.
        """

        def job() -> LiveRecords:
            view, whole_from = self._keyed_view(), self.partition.log.whole_from
            oldest, at = max(view.s0, whole_from), end
            if at < oldest:
                at = view.live_end
            if not oldest <= at:
                raise SnapshotNotReached(f"the view of {self._name} shows no state before {oldest} any more")
            stop = max(first, min(at, first + size))
            return LiveRecords(at, view.position, view.live_records(at, first, stop), stop)

        def ended(result: LiveRecords | BaseException) -> None:
            if isinstance(result, CheckpointInvalid):
                self._failed(result)
                result = SnapshotNotReached(f"the view of {self._name} is built anew: a file of it is damaged")
            done(result)

        self._do(job, ended)
