"""The checkpoints of a node's rows: when they are made, which are kept, and their pages for other nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar

from duramen.base.errors import CoordinatorLoading, DuramenError, StateDamaged, StorageFailed
from duramen.base.ids import Position
from duramen.base.ports import StateStore, Worker
from duramen.coordinators.runtime.layout import EMPTY, LogRows, StoredState, all_stored, fits, restorable
from duramen.storage.log.log import Log

__all__ = ["CheckpointPage", "CheckpointedRows", "RowCheckpoints"]

T = TypeVar("T")

_GENERATIONS: Final = 2
_PAGE_BYTES: Final = 128 << 10


class CheckpointPage(NamedTuple):
    """Rows of a log's state in a checkpoint; the next page starts after the key `after`, None: no more pages."""

    checkpoint: str
    position: Position
    rows: list[tuple[bytes, bytes]]
    after: bytes | None


class CheckpointedRows(Protocol):
    """The rows of which checkpoints are made."""

    @property
    def store(self) -> StateStore:
        """The open store. Raises CoordinatorLoading."""

    def run(self, job: Callable[[StateStore], T], done: Callable[[T | DuramenError], None]) -> None:
        """Run a job on the store between changes."""

    def has(self, log: Log, offset: int) -> bool:
        """Whether the rows can be used and have all records of a log below an offset."""


class RowCheckpoints:
    """The checkpoints of `rows`. `kept` is called when they have changed, or when one cannot be made.

    `sync` syncs everything that is written to logs, also with durability=os.
    """

    def __init__(
        self, rows: CheckpointedRows, worker: Worker, report: Callable[[str], None], every_records: int,
        logs: Callable[[], Iterable[Log]], sync: Callable[[Callable[[OSError | None], None]], None],
    ) -> None:  # fmt: skip
        self._rows = rows
        self._worker = worker
        self._report = report
        self._every_records = every_records
        self._logs = logs
        self._sync = sync
        self._checkpoints: list[tuple[str, Mapping[int, StoredState]]] = []
        self._number = 0
        self._applied = 0  # records since the last checkpoint
        self._making = False
        self.damages = 0
        """How many were found damaged since the start."""
        self.is_read: Callable[[], bool] = lambda: False
        """Whether another node reads a checkpoint now: then it is kept."""
        self.kept: Callable[[], None] = lambda: None

    @property
    def names(self) -> Sequence[str]:
        """The names of the checkpoints, the oldest first."""
        return [name for name, _ in self._checkpoints]

    def found(self, checkpoints: Sequence[tuple[str, Mapping[int, StoredState]]]) -> None:
        """The store was opened or restored, and has these."""
        self._checkpoints = [*checkpoints[-_GENERATIONS:]]
        self._number = max([self._number, *(int(name) for name, _ in checkpoints)])

    def floor(self, log: Log, *, leads: bool) -> int:
        """The position of the older checkpoint, 0 without one: the log is needed from there on.

        A leader's position may not be ahead of its log.
        """
        if len(self._checkpoints) < _GENERATIONS:
            return 0
        found = self._checkpoints[0][1].get(log.id, EMPTY)
        return found.offset if fits(found, log, ahead=not leads) else 0

    # -- making -------------------------------------------------------------------------------------

    def count(self, records: int) -> None:
        """Records were applied: make a checkpoint if it is due."""
        self._applied += records
        if self._applied >= self._every_records and not self.is_read():
            self.make_soon()

    def make_missing(self) -> None:
        """Make a checkpoint if there are fewer than are kept."""
        if len(self._checkpoints) < _GENERATIONS:
            self.make_soon()

    def make_soon(self) -> None:
        """Make a checkpoint, unless one is in progress."""
        if not self._making:
            self.make()

    def make(self) -> None:
        """Make a checkpoint of the present rows; the one before it is kept too.

        It replaces an older one once the logs with durability=os have on disk what it has. Otherwise a power failure
        could leave only checkpoints that are ahead of a log.
        """
        self._making, self._applied = True, 0
        self._number += 1
        name = f"{self._number:012d}"

        def job(store: StateStore) -> dict[int, StoredState]:
            store.make_checkpoint(name)
            return all_stored(store)

        def made(found: dict[int, StoredState] | DuramenError) -> None:
            if isinstance(found, DuramenError):
                self._not_made(found)
            elif any(log.durability == "os" and log.id in found for log in self._logs()):
                self._sync(lambda error: self._not_made(error) if error is not None else self._keep(name, found))
            else:
                self._keep(name, found)

        self._rows.run(job, made)

    def _keep(self, name: str, found: dict[int, StoredState]) -> None:
        """A checkpoint replaces an older one, unless it was found damaged meanwhile."""

        def job(store: StateStore) -> bool:
            there, kept = restorable(store), [*self.names, name][-_GENERATIONS:]
            for old in there if name in there else ():
                if old not in kept:
                    store.remove_checkpoint(old)
            return name in there

        def removed(answer: bool | DuramenError) -> None:
            if answer is not True:
                self._not_made("it is damaged" if answer is False else answer)
                return
            self._making = False
            self._checkpoints = [*self._checkpoints, (name, found)][-_GENERATIONS:]
            self.kept()

        self._rows.run(job, removed)

    def _not_made(self, error: DuramenError | OSError | str) -> None:
        self._making = False
        self._report(f"a checkpoint of coordinators' rows cannot be made: {error}")
        self.kept()

    def replace(self, name: str, error: StateDamaged) -> None:
        """A checkpoint is damaged: set it aside, and make another one."""

        def moved(where: str | DuramenError) -> None:
            if isinstance(where, DuramenError):
                self._report(f"checkpoint {name} of coordinators' rows cannot be set aside: {where}")
            elif where:
                self.damages += 1
                self._report(f"checkpoint {name} of coordinators' rows is damaged, and is in {where} now: {error}")
                self._checkpoints = [one for one in self._checkpoints if one[0] != name]
                self.make_soon()
                self.kept()

        if name in self.names:
            self._rows.run(lambda store: store.set_aside(name), moved)

    # -- pages --------------------------------------------------------------------------------------

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
            if wanted in ("", name) and stored.offset >= start_offset and fits(stored, log, ahead=False):
                job = partial(self._read_page, name, log.id, stored, after)
                self._worker.submit("rows", job, partial(self._page_read, name, done))
                return
        if not wanted and self._rows.has(log, max(start_offset, log.start_offset)):
            self.make_soon()
        done(CoordinatorLoading(f"there is no checkpoint {wanted} at or behind offset {start_offset}"))

    def _page_read(
        self, name: str, done: Callable[[CheckpointPage | DuramenError], None], found: CheckpointPage | BaseException
    ) -> None:
        if isinstance(found, StateDamaged):
            self.replace(name, found)
        if isinstance(found, CheckpointPage | DuramenError):
            done(found)
        else:
            done(StorageFailed(f"a checkpoint cannot be read: {found}"))

    def _read_page(self, name: str, log_id: int, stored: StoredState, after: bytes | None) -> CheckpointPage:
        store, rows, size = self._rows.store.open_checkpoint(name), list[tuple[bytes, bytes]](), 0
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
