"""The states of a node that are rows: applied in jobs, in one store with their positions, and in two checkpoints."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final, NamedTuple, TypeVar, cast

from duramen.base.errors import CoordinatorLoading, DuramenError, StateDamaged, StorageFailed
from duramen.base.ids import Position
from duramen.base.ports import StateRows, StateStore, Worker
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.applying import Done
from duramen.coordinators.runtime.layout import (
    EMPTY,
    LogRows,
    StoredState,
    all_stored,
    count_of,
    count_value,
    installation_key,
    new_generation,
    position_rows,
    restorable,
    row_prefix,
    stored_of,
    sweep,
)
from duramen.coordinators.runtime.recovery import FoundRows, open_rows, recover
from duramen.coordinators.runtime.write_behind import WriteBehind
from duramen.storage.log.log import Log

__all__ = ["CheckpointPage", "MakeChanges", "RowStates"]

T = TypeVar("T")

MakeChanges = Callable[[list[bytes], int, StateRows], tuple[Sequence[DecodedRecord], Mapping[bytes, bytes | None]]]
"""The changes of rows by batches, whose records before an offset they have; and the records, if shards get them."""

_GENERATIONS: Final = 2
_PAGE_BYTES: Final = 128 << 10


class CheckpointPage(NamedTuple):
    """Rows of a log's state in a checkpoint; the next page starts after the key `after`, None: no more pages."""

    checkpoint: str
    position: Position
    rows: list[tuple[bytes, bytes]]
    after: bytes | None


class RowStates:
    """Rows and positions by log. `logs` are the existing ones; `open_store` blocks, and raises StorageFailed.

    The store is opened when the first state needs it. `restored` is called if the rows may have changed, and when a
    restore starts; `kept` after a checkpoint; `not_opened` if opening or a restore fails.
    """

    def __init__(
        self, open_store: Callable[[], StateStore], worker: Worker, report: Callable[[str], None],
        checkpoint_records: int, logs: Callable[[], Iterable[Log]],
        sync: Callable[[Callable[[OSError | None], None]], None] = lambda done: done(None),
    ) -> None:  # fmt: skip
        """`sync` syncs everything that is written to logs, also with durability=os."""
        self._open = open_store
        self._store: StateStore | None = None
        self._behind: WriteBehind | None = None
        self._opens = False  # whether a job opens or restores the rows
        self._usable = False
        self._restores = list[Callable[[], None]]()  # callbacks after the restore in progress
        self._cause = ""  # the reason of the last restore
        self._told = ""  # the last failure that was reported
        self._worker = worker
        self._report = report
        self._checkpoint_records = checkpoint_records
        self._logs = logs
        self._sync = sync
        self._stored: dict[int, StoredState] = {}
        self._checkpoints: list[tuple[str, Mapping[int, StoredState]]] = []
        self._number = 0
        self._applied = 0
        self._making = False
        self._sweeps = 0  # requests since the sweep in progress started, including its own
        self._in_flight = Counter[int]()  # writes by log
        self._readers = list[tuple[frozenset[int], Callable[[], None]]]()
        self._deferred = list[Callable[[], None]]()  # writes that wait for readers
        self.damage: Mapping[int, str] = {}
        """Why the last restore found no rows of these logs."""
        self.damages = 0
        """How often damage was found since the start."""
        self.is_foreign = False
        """While `restored` is called: whether newly opened rows belong to logs that do not exist."""
        self.is_read: Callable[[], bool] = lambda: False
        """Whether another node reads a checkpoint now: then it is kept."""
        self.restored: Callable[[], None] = lambda: None
        self.kept: Callable[[], None] = lambda: None
        self.not_opened: Callable[[DuramenError], None] = lambda _: None

    # -- queries ------------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the store and find the rows and the checkpoints, unless that is done or in progress.

        `restored` is called once the rows can be used, `not_opened` if that fails. If a restore has failed, it is tried
        again.
        """
        if not (self._opens or self._usable):
            self._find()

    def _find(self, *, rewrite: bool = False) -> None:
        self._opens, logs, store = True, [log.id for log in self._logs()], self._store
        if store is None:
            self._worker.submit("rows", lambda: open_rows(self._open, logs), self._opened)
        else:
            self._worker.submit("rows", lambda: recover(store, logs, rewrite=rewrite), self._opened)

    def _opened(self, result: FoundRows | BaseException) -> None:
        self._opens, first = False, self._store is None
        waiting, self._restores = self._restores, []
        if isinstance(result, BaseException):
            error = StorageFailed(f"rows of coordinators cannot be opened: {result}")
            if str(error) != self._told:
                self._told = str(error)
                self._report(self._told)
            for one in waiting:
                one()
            self.not_opened(error)
            return
        self._store, checkpoints, self._stored, self.damage, reports = result
        self._told, self._usable = "", True
        for text in reports:
            self._report(text)
        self._behind = self._over(self._store)
        self._checkpoints = [*checkpoints[-_GENERATIONS:]]
        self._number = max([self._number, *(int(name) for name, _ in checkpoints)])
        for one in waiting:
            one()
        if first:
            self.damages += bool(reports)
            self.is_foreign = bool(self._stored.keys() - {log.id for log in self._logs()})
            self.sweep()
        if reports and self._stored and len(checkpoints) < _GENERATIONS:
            self._checkpoint_soon()
        self.restored()
        self.is_foreign = False

    def _over(self, store: StateStore) -> WriteBehind:
        return WriteBehind(store, self._worker, lambda error: self.restore(error, lambda: None))

    @property
    def available(self) -> bool:
        """Whether the rows match their positions: not before they are opened, nor while they are being restored."""
        return self._usable

    @property
    def _rows(self) -> StateStore:
        if self._store is None:
            raise CoordinatorLoading("the rows are not open yet")
        return self._store

    def stored(self, log: Log, *, leads: bool) -> StoredState:
        """The position of a log's state; the beginning if the applied history is not the log's.

        A follower's state may be ahead of its log, a leader's may not.
        """
        found = self._stored.get(log.id, EMPTY)
        return found if _fits(found, log, ahead=not leads) else EMPTY

    def misfits(self, log: Log) -> bool:
        """Whether applied records are not part of the log's history, or may not be.

        Newly opened rows with some of a log that does not exist may be those of another directory.
        """
        stored = self._stored.get(log.id, EMPTY)
        return stored is not EMPTY and (self.is_foreign or not _fits(stored, log, ahead=False))

    def discard(self, log: Log) -> None:
        """Discard the state of a log that has all its records."""
        self._stored.pop(log.id, None)

    def floor(self, log: Log, *, leads: bool) -> int:
        """The position of the older checkpoint, 0 without one: the log is needed from there on.

        As of `stored`, a leader's may not be ahead of its log.
        """
        if len(self._checkpoints) < _GENERATIONS:
            return 0
        found = self._checkpoints[0][1].get(log.id, EMPTY)
        return found.offset if _fits(found, log, ahead=not leads) else 0

    def source(self, log: Log) -> tuple[object, ...]:
        """Identifies the source of a log's rows: it differs if the rows may have changed."""
        generation = self._stored.get(log.id, EMPTY).generation
        return log, generation, self._behind, log.start_offset, log.cleaned_offset

    def rows(self, log: Log, stored: StoredState, *, at_once: bool = False) -> LogRows:
        """The rows of a generation: as written, or as applied `at_once`."""
        return LogRows(self._applied_rows if at_once else self._rows, log.id, stored.generation)

    @property
    def _applied_rows(self) -> WriteBehind:
        if self._behind is None:
            raise CoordinatorLoading("the rows are not open yet")
        return self._behind

    # -- several logs together ------------------------------------------------------------------------

    def version(self) -> object:
        """Reads between two equal versions saw the same rows of all logs."""
        return self._rows.version() if self.available else None

    def is_quiet(self, logs: Collection[int]) -> bool:
        """Whether no write to the rows of these logs is in flight."""
        return not any(self._in_flight[log] for log in logs)

    def when_quiet(self, logs: Collection[int], act: Callable[[], None]) -> None:
        """Call `act` once no write to the rows of these logs is in flight; later writes to them wait for it."""
        self._readers.append((frozenset(logs), act))
        self._run_readers()

    def _run_readers(self) -> None:
        ready = [one for one in self._readers if self.is_quiet(one[0])]
        if not ready:
            return
        self._readers = [one for one in self._readers if one not in ready]
        for _, act in ready:
            act()
        if not self._readers:
            deferred, self._deferred = self._deferred, []
            for begin in deferred:
                begin()

    # -- jobs ---------------------------------------------------------------------------------------

    def _run(self, job: Callable[[], T], done: Callable[[T | DuramenError], None]) -> None:
        """Run a job in the lane of all changes.

        If rows turn out to be damaged, they are restored before `done` is called.
        """

        def ended(result: T | BaseException) -> None:
            if isinstance(result, StateDamaged):
                self.restore(result, partial(done, result))
            elif isinstance(result, BaseException) and not isinstance(result, DuramenError):
                done(StorageFailed(f"rows of coordinators cannot be written: {result}"))
            else:
                done(result)

        self._worker.submit("rows", job, ended)

    def restore(self, error: DuramenError, done: Callable[[], None]) -> None:
        """Rows turned out to be damaged: restore what can be read of them and of their checkpoints.

        Rows that can all be read stay. If the same error comes again, they are written to new files.
        """
        if not self._usable and not self._opens:
            done()  # the restore is tried again
            return
        self._restores.append(done)
        if self._opens:
            return
        self._usable = False
        self._applied_rows.end()
        self.damages += 1
        self._report(f"rows of coordinators are damaged and are being restored: {error}")
        again, self._cause = str(error) == self._cause, str(error)
        self._find(rewrite=again)
        self.restored()

    def replace_checkpoint(self, name: str, error: StateDamaged) -> None:
        """A checkpoint is damaged: set it aside, and make another one."""

        def moved(where: str | DuramenError) -> None:
            if isinstance(where, DuramenError):
                self._report(f"checkpoint {name} of coordinators' rows cannot be set aside: {where}")
            elif where:
                self.damages += 1
                self._report(f"checkpoint {name} of coordinators' rows is damaged, and is in {where} now: {error}")
                self._checkpoints = [one for one in self._checkpoints if one[0] != name]
                self._checkpoint_soon()
                self.kept()

        if name in self.checkpoints:
            self._run(lambda: self._rows.set_aside(name), moved)

    @property
    def checkpoints(self) -> Sequence[str]:
        """The names of the checkpoints, the oldest first."""
        return [name for name, _ in self._checkpoints]

    def _write(self, log_id: int, job: Callable[[], StoredState | None], done: Done) -> None:
        """Run a job that writes and returns the new position.

        The job returns None if the store's position is not the expected one.
        """

        def write() -> tuple[StoredState, bool]:
            written = job()
            return (stored_of(self._rows, log_id), False) if written is None else (written, True)

        def written(result: tuple[StoredState, bool] | DuramenError) -> None:
            self._in_flight[log_id] -= 1
            if isinstance(result, DuramenError):
                done(result)
            else:
                self._stored[log_id], well = result
                done(None if well else CoordinatorLoading("the rows are others than before"))
            self._run_readers()

        def begin() -> None:
            self._in_flight[log_id] += 1
            self._run(write, written)

        if any(log_id in logs for logs, _ in self._readers):
            self._deferred.append(begin)
        else:
            begin()

    def apply(
        self, log: Log, make: MakeChanges, base: StoredState, found: list[bytes], next_offset: int,
        done: Done, tell: Callable[[Sequence[DecodedRecord]], None] | None = None,
        changed: Callable[[Collection[bytes]], None] | None = None,
    ) -> None:  # fmt: skip
        """Apply the records of these batches that `base` lacks; with an empty `base`, as a new generation.

        Before `done` is called, `tell` gets the applied records, and `changed` the keys of rows: later decisions must
        know them.
        """
        log_id, expected = log.id, self._stored.get(log.id, EMPTY)
        epoch = log.takeovers.epoch_at(next_offset - 1)
        new: Sequence[DecodedRecord] = ()
        changes: Mapping[bytes, bytes | None] = {}

        def job() -> StoredState | None:
            nonlocal new, changes
            if stored_of(self._rows, log_id) != expected:
                return None
            generation = base.generation or new_generation(self._rows, log_id)
            rows = LogRows(self._rows, log_id, generation)
            new, changes = make(found, base.offset, rows)
            stored, prefix = StoredState(epoch, next_offset, generation), row_prefix(log_id, generation)
            deleted = [key for key, value in changes.items() if value is None] if None in changes.values() else []
            kept = {key: value for key, value in changes.items() if value is not None} if deleted else changes
            # Rows may be many: prefixes are added without a step of Python for each.
            puts = zip(map(prefix.__add__, kept), cast("Iterable[bytes]", kept.values()), strict=True)
            self._rows.write(chain(puts, position_rows(log_id, stored)), map(prefix.__add__, deleted))
            return stored

        def applied(error: DuramenError | None) -> None:
            if error is None:
                self._applied += next_offset - base.offset
                self._checkpoint_if_due()
                if base.generation == 0:
                    self.sweep()  # rows of the previous generation, or of the replaced log
                if tell is not None:
                    tell(new)
                if changed is not None:
                    changed(changes.keys())
            done(error)

        self._write(log_id, job, applied)

    # -- at once --------------------------------------------------------------------------------------

    def apply_at_once(
        self, log: Log, base: StoredState, next_offset: int,
        make: Callable[[StateRows], Mapping[bytes, bytes | None]],
    ) -> None:  # fmt: skip
        """Apply the result of `make` on the rows; with an empty `base`, as a new generation. It is written later.

        Raises StateDamaged if rows are damaged.
        """
        rows, log_id = self._applied_rows, log.id
        generation = base.generation or new_generation(rows, log_id)
        changes = make(LogRows(rows, log_id, generation))
        stored = StoredState(log.takeovers.epoch_at(next_offset - 1), next_offset, generation)
        prefix = row_prefix(log_id, generation)
        rows.put({prefix + key: value for key, value in changes.items()} | dict(position_rows(log_id, stored)))
        self._stored[log_id] = stored
        if base.generation == 0:
            rows.flush(self.sweep)  # rows of the previous generation, or of the replaced log

    def flush(self, done: Callable[[], None]) -> None:
        """Write the rows that were applied at once: less is applied again after a crash."""
        if self._behind is None:
            done()
        else:
            self._behind.flush(done)

    # -- checkpoints --------------------------------------------------------------------------------

    def _checkpoint_if_due(self) -> None:
        if self._applied >= self._checkpoint_records and not self.is_read():
            self._checkpoint_soon()

    def _checkpoint_soon(self) -> None:
        """Make a checkpoint, unless one is in progress."""
        if not self._making:
            self.make_checkpoint()

    def make_checkpoint(self) -> None:
        """Make a checkpoint of the present rows; the one before it is kept too.

        It replaces an older one once the logs with durability=os have on disk what it has. Otherwise a power failure
        could leave only checkpoints that are ahead of a log.
        """
        self._making, self._applied = True, 0
        self._number += 1
        name = f"{self._number:012d}"

        def job() -> dict[int, StoredState]:
            self._rows.make_checkpoint(name)
            return all_stored(self._rows)

        def made(found: dict[int, StoredState] | DuramenError) -> None:
            if isinstance(found, DuramenError):
                self._not_made(found)
            elif any(log.durability == "os" and log.id in found for log in self._logs()):
                self._sync(lambda error: self._not_made(error) if error is not None else self._keep(name, found))
            else:
                self._keep(name, found)

        self._run(job, made)

    def _keep(self, name: str, found: dict[int, StoredState]) -> None:
        """A checkpoint replaces an older one, unless it was found damaged meanwhile."""

        def job() -> bool:
            there, kept = restorable(self._rows), [*(one for one, _ in self._checkpoints), name][-_GENERATIONS:]
            for old in there if name in there else ():
                if old not in kept:
                    self._rows.remove_checkpoint(old)
            return name in there

        def removed(answer: bool | DuramenError) -> None:
            if answer is not True:
                self._not_made("it is damaged" if answer is False else answer)
                return
            self._making = False
            self._checkpoints = [*self._checkpoints, (name, found)][-_GENERATIONS:]
            self.kept()

        self._run(job, removed)

    def _not_made(self, error: DuramenError | OSError | str) -> None:
        self._making = False
        self._report(f"a checkpoint of coordinators' rows cannot be made: {error}")
        self.kept()

    def run(self, job: Callable[[StateStore], T], done: Callable[[T | DuramenError], None]) -> None:
        """Run a job on the store between changes."""
        self._run(lambda: job(self._rows), done)

    def unchanged(self, stored: Mapping[int, StoredState]) -> bool:
        """Whether the positions of all states are equal to these."""
        return self.available and stored == self._stored

    # -- rows for others, and of others -------------------------------------------------------------

    def page(
        self,
        log: Log,
        wanted: str,
        start_offset: int,
        after: bytes | None,
        done: Callable[[CheckpointPage | DuramenError], None],
    ) -> None:
        """A page of a log's rows in the checkpoint `wanted`, or, if that is empty, in the newest.

        `done` gets CoordinatorLoading if no checkpoint of the log's history is at `start_offset` or later. If the rows
        themselves are, a checkpoint is made: there may never be more records to apply.
        """
        for name, positions in reversed(self._checkpoints):
            stored = positions.get(log.id, EMPTY)
            if wanted in ("", name) and stored.offset >= start_offset and _fits(stored, log, ahead=False):
                job = partial(self._read_page, name, log.id, stored, after)
                self._worker.submit("rows", job, partial(self._page_read, name, done))
                return
        if not wanted and self.available and self.stored(log, leads=True).offset >= max(start_offset, log.start_offset):
            self._checkpoint_soon()
        done(CoordinatorLoading(f"there is no checkpoint {wanted} at or behind offset {start_offset}"))

    def _page_read(
        self, name: str, done: Callable[[CheckpointPage | DuramenError], None], found: CheckpointPage | BaseException
    ) -> None:
        if isinstance(found, StateDamaged):
            self.replace_checkpoint(name, found)
        if isinstance(found, CheckpointPage | DuramenError):
            done(found)
        else:
            done(StorageFailed(f"a checkpoint cannot be read: {found}"))

    def _read_page(self, name: str, log_id: int, stored: StoredState, after: bytes | None) -> CheckpointPage:
        store, rows, size = self._rows.open_checkpoint(name), list[tuple[bytes, bytes]](), 0
        position = Position(stored.leader_epoch, stored.offset)
        try:
            for key, value in LogRows(store, log_id, stored.generation).all(after):
                if size >= _PAGE_BYTES:
                    return CheckpointPage(name, position, rows, rows[-1][0])
                rows.append((key, value))
                size += len(key) + len(value)
            return CheckpointPage(name, position, rows, None)
        finally:
            store.close()

    def begin_installation(self, log: Log, done: Callable[[int | DuramenError], None]) -> None:
        """Start the installation of rows of another node's checkpoint: `done` gets their generation."""
        log_id = log.id

        def job() -> int:
            generation = new_generation(self._rows, log_id)
            self._rows.write([(installation_key(log_id, generation), count_value(0))], ())
            return generation

        def begun(generation: int | DuramenError) -> None:
            self.sweep()  # rows of a failed installation
            done(generation)

        self._run(job, begun)

    def install(
        self, log: Log, generation: int, number: int, rows: list[tuple[bytes, bytes]], position: Position | None,
        done: Done,
    ) -> None:  # fmt: skip
        """Install rows after the first `number` rows.

        With `position`, they become the state, on disk when `done` is called. `done` gets CoordinatorLoading if the
        store was restored meanwhile, or has a newer state.
        """
        log_id, key = log.id, installation_key(log.id, generation)

        def job() -> StoredState | None:
            before = stored_of(self._rows, log_id)
            count = self._rows.get(key)
            if count is None or count_of(count) != number or before.generation > generation:
                return None
            prefix = row_prefix(log_id, generation)
            puts = [(prefix + row, value) for row, value in rows]
            if position is None:
                self._rows.write([*puts, (key, count_value(number + len(rows)))], ())
                return before
            stored = StoredState(*position, generation)
            self._rows.write([*puts, *position_rows(log_id, stored)], [key])
            self._rows.flush()
            return stored

        def installed(error: DuramenError | None) -> None:
            if error is None and position is not None:
                self._checkpoint_soon()  # no log on this node has the records of these rows
            done(error)

        self._write(log_id, job, installed)

    # -- rows that do not count any more -----------------------------------------------------------

    def sweep(self) -> None:
        """Remove rows of deleted logs and of obsolete generations, in steps."""
        if self._store is None:
            return  # the sweep runs after the opening
        self._sweeps += 1
        if self._sweeps == 1:
            self._sweep()

    def _sweep(self) -> None:
        asked, logs = self._sweeps, {log.id for log in self._logs()}

        def swept(found: bool | DuramenError) -> None:
            if found is True:
                self._sweep()
                return
            for log_id in self._stored.keys() - {log.id for log in self._logs()}:
                del self._stored[log_id]
            again = self._sweeps > asked and found is False
            self._sweeps = 0
            if again:
                self.sweep()

        self._run(partial(sweep, self._rows, logs), swept)


def _fits(stored: StoredState, log: Log, *, ahead: bool) -> bool:
    """Whether the applied records are part of the log's history, or, if it may be `ahead`, possibly are."""
    if stored.offset > log.end_offset:
        return ahead
    return stored.offset <= log.start_offset or log.takeovers.epoch_at(stored.offset - 1) == stored.leader_epoch
