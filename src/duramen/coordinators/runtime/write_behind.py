"""Rows that are applied immediately and written to their store a little later, in order and in whole batches."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import merge
from typing import Final

from duramen.base.errors import StateDamaged
from duramen.base.ports import StateRows, ViewStore, Worker

__all__ = ["WriteBehind"]

_RECENT_ROWS: Final = 4096
_Rows = dict[bytes, bytes | None]
_Done = Callable[[], None]


class WriteBehind(StateRows):
    """Rows on top of a store, and the only access to it. `damaged` is called if the store is too damaged to write.

    The last reads and writes are cached, absent rows included: the same few are read again and again. Rows that cannot
    be written for another reason are read from memory, and written with the next ones.
    """

    def __init__(self, store: ViewStore, worker: Worker, damaged: Callable[[StateDamaged], None]) -> None:
        self._store = store
        self._worker = worker
        self._damaged = damaged
        self._recent: _Rows = {}
        self._written: _Rows = {}  # the rows of the write in progress
        self._next: _Rows = {}  # the rows of the next write
        self._flushes: list[_Done] = []
        self._busy = False
        self._over = False

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`."""
        if key in self._recent:
            return self._recent[key]
        if key in self._next:
            value = self._next[key]
        elif key in self._written:
            value = self._written[key]
        else:
            value = self._store.get(key)
        self._keep({key: value})
        return value

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of `keys`."""
        return [self.get(key) for key in keys]

    def _keep(self, rows: Mapping[bytes, bytes | None]) -> None:
        if len(self._recent) + len(rows) > _RECENT_ROWS:
            self._recent.clear()
        if len(rows) <= _RECENT_ROWS:
            self._recent.update(rows)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `first <= key < end` in order, at the time of this call."""
        over = {key: value for rows in (self._written, self._next) for key, value in rows.items() if first <= key < end}
        if not over:
            return self._store.scan(first, end)
        under = ((key, value) for key, value in self._store.scan(first, end) if key not in over)
        above = sorted((key, value) for key, value in over.items() if value is not None)
        return merge(under, above, key=lambda row: row[0])

    def put(self, changes: Mapping[bytes, bytes | None]) -> None:
        """Write rows with their new values, atomically; None removes one."""
        self._next.update(changes)
        self._keep(changes)
        self._write()

    def flush(self, done: _Done) -> None:
        """Make all earlier writes durable, as far as they can be written; then call `done`."""
        if self._over:
            done()
            return
        self._flushes.append(done)
        self._write()

    def end(self) -> None:
        """The store has other rows: write nothing more."""
        self._over = True
        self._next = {}
        flushes, self._flushes = self._flushes, []
        for done in flushes:
            done()

    def _write(self) -> None:
        if self._busy or self._over or not (self._next or self._flushes):
            return
        self._busy = True
        self._written, self._next = self._next, {}
        flushes, self._flushes = self._flushes, []
        rows = self._written

        def job() -> None:
            if rows:
                puts = [(key, value) for key, value in rows.items() if value is not None]
                self._store.write(puts, [key for key, value in rows.items() if value is None])
            if flushes:
                self._store.flush()

        def ended(result: BaseException | None) -> None:
            self._busy = False
            if result is not None:
                self._next = {**self._written, **self._next}
            self._written = {}
            for done in flushes:
                done()
            if isinstance(result, StateDamaged):
                self._damaged(result)
            elif result is None or self._flushes:
                self._write()

        self._worker.submit("rows", job, ended)
