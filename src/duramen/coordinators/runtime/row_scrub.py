"""Checks the rows of a node and their checkpoints for the scrubber, part by part."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError, StateDamaged
from duramen.base.ports import StateStore, ViewStore, Worker
from duramen.coordinators.runtime.layout import ALL_ROWS, HELD
from duramen.coordinators.runtime.rows import RowStates

__all__ = ["RowScrub"]

_PART_BYTES: Final = 256 << 10
_COPY: Final = f"{HELD}scrub"


class _Part(NamedTuple):
    """The size of the rows that were read, and the key from which to go on; None: there are no more."""

    size: int
    following: bytes | None


class _Source:
    """An open checkpoint, and the key up to which it was read."""

    def __init__(self, name: str, rows: ViewStore) -> None:
        self.name = name
        self.rows = rows
        self.at = ALL_ROWS[0]

    def read(self) -> _Part:
        """Blocking."""
        size = 0
        for key, value in self.rows.scan(self.at, ALL_ROWS[1]):
            if size >= _PART_BYTES:
                return _Part(size, key)
            size += len(key) + len(value)
        return _Part(size, None)


class RowScrub:
    """Reads a copy of the rows, of which no block is in memory, then each checkpoint. Damage starts the fall-back."""

    def __init__(self, states: RowStates, worker: Worker, report: Callable[[str], None]) -> None:
        self._states = states
        self._worker = worker
        self._report = report
        self._left: list[str] | None = None  # what is left in this round, the next one last
        self._source: _Source | None = None

    def step(self, done: Callable[[int], None]) -> None:
        """Check the next part; `done` gets the number of bytes, 0 at the end."""
        if self._source is not None:
            self._worker.submit("read", self._source.read, partial(self._read, self._source, done))
        elif not self._states.available:
            self._end(done)
        elif self._left is None:
            self._left = [*self._states.checkpoints.names, _COPY]
            self._next(done)
        else:
            self._next(done)

    def _end(self, done: Callable[[int], None]) -> None:
        self._left = None
        done(0)

    def _next(self, done: Callable[[int], None]) -> None:
        if not self._left:
            self._end(done)
            return
        name = self._left.pop()

        def open_source(store: StateStore) -> _Source | StateDamaged | None:
            if name == _COPY:
                store.make_checkpoint(name)  # damaged rows are restored if this fails
            elif name not in store.checkpoints():
                return None  # a newer one has replaced it
            try:
                return _Source(name, store.open_checkpoint(name))
            except StateDamaged as error:
                return error

        def opened(found: _Source | DuramenError | None) -> None:
            if isinstance(found, _Source):
                self._source = found
                self.step(done)
            elif isinstance(found, StateDamaged):
                self._damaged(name, found, done)
            elif isinstance(found, DuramenError):
                self._failed(name, found, done)
            else:
                self._next(done)

        self._states.run(open_source, opened)

    def _read(self, source: _Source, done: Callable[[int], None], found: _Part | BaseException) -> None:
        if isinstance(found, _Part) and found.following is not None:
            source.at = found.following
            done(found.size)
            return
        self._source = None

        def close(store: StateStore) -> None:
            source.rows.close()
            if source.name == _COPY:
                store.remove_checkpoint(source.name)

        def closed(_: object) -> None:
            if isinstance(found, StateDamaged):
                self._damaged(source.name, found, done)
            elif isinstance(found, BaseException):
                self._failed(source.name, found, done)
            elif found.size:
                done(found.size)
            else:
                self._next(done)

        self._states.run(close, closed)

    def _damaged(self, name: str, error: StateDamaged, done: Callable[[int], None]) -> None:
        if name == _COPY:
            self._states.restore(error, partial(self._end, done))
        else:
            self._states.checkpoints.replace(name, error)
            self._next(done)

    def _failed(self, name: str, error: BaseException, done: Callable[[int], None]) -> None:
        which = "the rows" if name == _COPY else f"checkpoint {name} of the rows"
        self._report(f"{which} of coordinators cannot be checked: {error}")
        self._next(done)
