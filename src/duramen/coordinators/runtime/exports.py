"""Exports: the rows of a node at one point in time, in their own checkpoints, for full reads."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from duramen.base.deadlines import Alarm, Deadlines
from duramen.base.errors import DuramenError, ExportExpired, StorageFailed
from duramen.base.ids import Position
from duramen.base.ports import Clock, StateRows, StateStore, ViewStore, Worker
from duramen.coordinators.runtime.layout import EMPTY, HELD, LogRows, StoredState, all_stored
from duramen.coordinators.runtime.rows import RowStates
from duramen.storage.log.log import Log

__all__ = ["EXPORT_MS", "Exports"]

T = TypeVar("T")

EXPORT_MS: Final = 600_000
"""The period for which an export is kept after its last read."""
_MOST: Final = 32


class _Held(NamedTuple):
    """An open checkpoint, and the positions of all logs' states in it."""

    name: str
    rows: ViewStore
    stored: dict[int, StoredState]


class _Export:
    """An export, the time of its last use, and the number of its readers."""

    def __init__(self, held: _Held) -> None:
        self.held = held
        self.used_ms = 0
        self.reads = 0
        self.over = False


class Exports:
    """The exports of a node. An unused one expires; if there are too many, the least recently used one ends."""

    def __init__(
        self, states: RowStates, worker: Worker, clock: Clock, deadlines: Deadlines, node_epoch: int
    ) -> None:  # fmt: skip
        """`node_epoch` differs after each start: export names are unique."""
        self._node_epoch = node_epoch
        self._states = states
        self._worker = worker
        self._clock = clock
        self._alarm = Alarm(deadlines, self._expire)
        self._number = 0
        self._exports: dict[str, _Export] = {}

    def open(self, done: Callable[[str | DuramenError], None]) -> None:
        """Export the present rows; `done` gets the export's name, the newest one's if nothing has changed."""
        newest = next(reversed(self._exports.values()), None)
        if newest is not None and self._states.unchanged(newest.held.stored):
            self._used(newest)
            done(newest.held.name)
            return
        self._number += 1
        name = f"{HELD}{self._node_epoch}-{self._number}"

        def hold(store: StateStore) -> _Held:
            store.make_checkpoint(name)
            rows = store.open_checkpoint(name)
            return _Held(name, rows, all_stored(rows))

        def held(found: _Held | DuramenError) -> None:
            if isinstance(found, DuramenError):
                done(found)
                return
            export = self._exports[name] = _Export(found)
            self._used(export)
            for other in sorted(self._exports.values(), key=lambda one: one.used_ms)[:-_MOST]:
                self.close(other.held.name)
            done(name)

        self._states.run(hold, held)

    def position(self, name: str, log: Log) -> Position:
        """The position of a log's rows in an export. Raises ExportExpired."""
        stored = self._find(name).held.stored.get(log.id, EMPTY)
        return Position(max(0, stored.leader_epoch), stored.offset)

    def read(
        self, name: str, log: Log, job: Callable[[StateRows], T], done: Callable[[T | DuramenError], None]
    ) -> None:
        """`done` gets the result of `job` on the rows of a log, off the event loop. Raises ExportExpired."""
        export = self._find(name)
        stored = export.held.stored.get(log.id, EMPTY)
        rows = LogRows(export.held.rows, log.id, stored.generation)
        export.reads += 1
        self._used(export)

        def ended(found: T | BaseException) -> None:
            export.reads -= 1
            self._used(export)
            self._release(export)
            if isinstance(found, BaseException) and not isinstance(found, DuramenError):
                done(StorageFailed(f"an export cannot be read: {found}"))
            else:
                done(found)

        self._worker.submit("read", partial(job, rows), ended)

    def close(self, name: str) -> None:
        """The export is no longer read."""
        export = self._exports.pop(name, None)
        if export is not None:
            export.over = True
            self._release(export)

    def _find(self, name: str) -> _Export:
        export = self._exports.get(name)
        if export is None:
            raise ExportExpired(f"the export {name[:40]} does not exist, or has expired")
        return export

    def _used(self, export: _Export) -> None:
        export.used_ms = self._clock.monotonic_ms()
        self._move_alarm()

    def _move_alarm(self) -> None:
        oldest_ms = min((one.used_ms for one in self._exports.values()), default=None)
        self._alarm.move(None if oldest_ms is None else oldest_ms + EXPORT_MS)

    def _expire(self) -> None:
        now_ms = self._clock.monotonic_ms()
        for export in list(self._exports.values()):
            if export.used_ms + EXPORT_MS <= now_ms:
                self.close(export.held.name)
        self._move_alarm()

    def _release(self, export: _Export) -> None:
        """Remove the checkpoint of an ended export, once it has no readers."""
        if not export.over or export.reads:
            return

        def remove(store: StateStore) -> None:
            export.held.rows.close()
            store.remove_checkpoint(export.held.name)

        self._states.run(remove, lambda _: None)
