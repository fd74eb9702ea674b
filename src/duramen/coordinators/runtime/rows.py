"""The states of a node that are rows: applied in jobs, and kept in one store with their positions."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TypeVar, cast

from duramen.base.errors import CoordinatorLoading, DuramenError, StateDamaged, StorageFailed
from duramen.base.ports import StateRows, StateStore, Worker
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.runtime.applying import Done
from duramen.coordinators.runtime.checkpoints import RowCheckpoints
from duramen.coordinators.runtime.layout import (
    EMPTY,
    LogRows,
    StoredState,
    fits,
    new_generation,
    position_rows,
    row_prefix,
    stored_of,
    sweep,
)
from duramen.coordinators.runtime.recovery import FoundRows, open_rows, recover
from duramen.coordinators.runtime.write_behind import WriteBehind
from duramen.coordinators.runtime.write_gate import WriteGate
from duramen.storage.log.log import Log

__all__ = ["MakeChanges", "RowStates"]

T = TypeVar("T")

MakeChanges = Callable[[list[bytes], int, StateRows], tuple[Sequence[DecodedRecord], Mapping[bytes, bytes | None]]]
"""The changes of rows by batches, whose records before an offset they have; and the records, if shards get them."""


class RowStates:
    """Rows and positions by log. `logs` are the existing ones; `open_store` blocks, and raises StorageFailed.

    The store is opened when the first state needs it. `restored` is called if the rows may have changed, and when a
    restore starts; `not_opened` if opening or a restore fails.
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
        self._reported = ""  # the last failure that was reported
        self._worker = worker
        self._report = report
        self._logs = logs
        self._stored: dict[int, StoredState] = {}
        self._damages = 0
        self._sweeps = 0  # requests since the sweep in progress started, including its own
        self.checkpoints = RowCheckpoints(self, worker, report, checkpoint_records, logs, sync)
        self.writes = WriteGate()
        self.damage: Mapping[int, str] = {}
        """Why the last restore found no rows of these logs."""
        self.is_foreign = False
        """While `restored` is called: whether newly opened rows belong to logs that do not exist."""
        self.restored: Callable[[], None] = lambda: None
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
            if str(error) != self._reported:
                self._reported = str(error)
                self._report(self._reported)
            for one in waiting:
                one()
            self.not_opened(error)
            return
        self._store, checkpoints, self._stored, self.damage, reports = result
        self._reported, self._usable = "", True
        for text in reports:
            self._report(text)
        self._behind = self._over(self._store)
        self.checkpoints.found(checkpoints)
        for one in waiting:
            one()
        if first:
            self._damages += bool(reports)
            self.is_foreign = bool(self._stored.keys() - {log.id for log in self._logs()})
            self.sweep()
        if reports and self._stored:
            self.checkpoints.make_missing()
        self.restored()
        self.is_foreign = False

    def _over(self, store: StateStore) -> WriteBehind:
        return WriteBehind(store, self._worker, lambda error: self.restore(error, lambda: None))

    @property
    def available(self) -> bool:
        """Whether the rows match their positions: not before they are opened, nor while they are being restored."""
        return self._usable

    @property
    def damages(self) -> int:
        """How often damage was found since the start."""
        return self._damages + self.checkpoints.damages

    @property
    def store(self) -> StateStore:
        """The open store. Raises CoordinatorLoading."""
        if self._store is None:
            raise CoordinatorLoading("the rows are not open yet")
        return self._store

    def stored(self, log: Log, *, leads: bool) -> StoredState:
        """The position of a log's state; the beginning if the applied history is not the log's.

        A follower's state may be ahead of its log, a leader's may not.
        """
        found = self._stored.get(log.id, EMPTY)
        return found if fits(found, log, ahead=not leads) else EMPTY

    def has(self, log: Log, offset: int) -> bool:
        """Whether the rows can be used and have all records of a log below an offset, as those of its leader."""
        return self.available and self.stored(log, leads=True).offset >= offset

    def misfits(self, log: Log) -> bool:
        """Whether applied records are not part of the log's history, or may not be.

        Newly opened rows with some of a log that does not exist may be those of another directory.
        """
        stored = self._stored.get(log.id, EMPTY)
        return stored is not EMPTY and (self.is_foreign or not fits(stored, log, ahead=False))

    def discard(self, log: Log) -> None:
        """Discard the state of a log that has all its records."""
        self._stored.pop(log.id, None)

    def source(self, log: Log) -> tuple[object, ...]:
        """Identifies the source of a log's rows: it differs if the rows may have changed."""
        generation = self._stored.get(log.id, EMPTY).generation
        return log, generation, self._behind, log.start_offset, log.cleaned_offset

    def rows(self, log: Log, stored: StoredState, *, at_once: bool = False) -> LogRows:
        """The rows of a generation: as written, or as applied `at_once`."""
        return LogRows(self._applied_rows if at_once else self.store, log.id, stored.generation)

    @property
    def _applied_rows(self) -> WriteBehind:
        if self._behind is None:
            raise CoordinatorLoading("the rows are not open yet")
        return self._behind

    def version(self) -> object:
        """Reads between two equal versions saw the same rows of all logs."""
        return self.store.version() if self.available else None

    def unchanged(self, stored: Mapping[int, StoredState]) -> bool:
        """Whether the positions of all states are equal to these."""
        return self.available and stored == self._stored

    # -- jobs ---------------------------------------------------------------------------------------

    def run(self, job: Callable[[StateStore], T], done: Callable[[T | DuramenError], None]) -> None:
        """Run a job on the store between changes.

        If rows turn out to be damaged, they are restored before `done` is called.
        """

        def ended(result: T | BaseException) -> None:
            if isinstance(result, StateDamaged):
                self.restore(result, partial(done, result))
            elif isinstance(result, BaseException) and not isinstance(result, DuramenError):
                done(StorageFailed(f"rows of coordinators cannot be written: {result}"))
            else:
                done(result)

        self._worker.submit("rows", lambda: job(self.store), ended)

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
        self._damages += 1
        self._report(f"rows of coordinators are damaged and are being restored: {error}")
        again, self._cause = str(error) == self._cause, str(error)
        self._find(rewrite=again)
        self.restored()

    def write(self, log_id: int, job: Callable[[StateStore], StoredState | None], done: Done) -> None:
        """Run a job that writes and returns the new position of a log's state.

        The job returns None if the store's position is not the expected one.
        """

        def write(store: StateStore) -> tuple[StoredState, bool]:
            written = job(store)
            return (stored_of(store, log_id), False) if written is None else (written, True)

        def finish(result: tuple[StoredState, bool] | DuramenError) -> None:
            if isinstance(result, DuramenError):
                done(result)
            else:
                self._stored[log_id], well = result
                done(None if well else CoordinatorLoading("the rows are others than before"))

        def ended(result: tuple[StoredState, bool] | DuramenError) -> None:
            self.writes.ended(log_id, partial(finish, result))

        self.writes.start(log_id, partial(self.run, write, ended))

    def apply(
        self, log: Log, make: MakeChanges, base: StoredState, found: list[bytes], next_offset: int,
        done: Done, on_records: Callable[[Sequence[DecodedRecord]], None] | None = None,
        on_keys: Callable[[Collection[bytes]], None] | None = None,
    ) -> None:  # fmt: skip
        """Apply the records of these batches that `base` lacks; with an empty `base`, as a new generation.

        Before `done` is called, `on_records` gets the applied records, and `on_keys` the keys of rows: later decisions
        must know them.
        """
        log_id, expected = log.id, self._stored.get(log.id, EMPTY)
        epoch = log.takeovers.epoch_at(next_offset - 1)
        new: Sequence[DecodedRecord] = ()
        changes: Mapping[bytes, bytes | None] = {}

        def job(store: StateStore) -> StoredState | None:
            nonlocal new, changes
            if stored_of(store, log_id) != expected:
                return None
            generation = base.generation or new_generation(store, log_id)
            rows = LogRows(store, log_id, generation)
            new, changes = make(found, base.offset, rows)
            stored, prefix = StoredState(epoch, next_offset, generation), row_prefix(log_id, generation)
            deleted = [key for key, value in changes.items() if value is None] if None in changes.values() else []
            kept = {key: value for key, value in changes.items() if value is not None} if deleted else changes
            # Rows may be many: prefixes are added without a step of Python for each.
            puts = zip(map(prefix.__add__, kept), cast("Iterable[bytes]", kept.values()), strict=True)
            store.write(chain(puts, position_rows(log_id, stored)), map(prefix.__add__, deleted))
            return stored

        def applied(error: DuramenError | None) -> None:
            if error is None:
                self.checkpoints.count(next_offset - base.offset)
                if base.generation == 0:
                    self.sweep()  # rows of the previous generation, or of the replaced log
                if on_records is not None:
                    on_records(new)
                if on_keys is not None:
                    on_keys(changes.keys())
            done(error)

        self.write(log_id, job, applied)

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

    # -- rows that do not count any more -----------------------------------------------------------

    def sweep(self) -> None:
        """Remove rows of deleted logs and of obsolete generations, in steps."""
        if self._store is None:
            return  # the sweep runs after the opening
        self._sweeps += 1
        if self._sweeps == 1:
            self._sweep()

    def _sweep(self) -> None:
        requests, logs = self._sweeps, {log.id for log in self._logs()}

        def swept(found: bool | DuramenError) -> None:
            if found is True:
                self._sweep()
                return
            for log_id in self._stored.keys() - {log.id for log in self._logs()}:
                del self._stored[log_id]
            again = self._sweeps > requests and found is False
            self._sweeps = 0
            if again:
                self.sweep()

        self.run(lambda store: sweep(store, logs), swept)
