"""A view: rows derived from logs by applying their records in order, and the positions it has applied.

Rows and positions go to the store in one atomic batch, so what a crash leaves stands at some position; the rest
is applied again. Until a batch is written its rows are read from memory. A view whose position lies beyond its
log, or on a history that was cut, is discarded as a whole and derived anew.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from heapq import merge
from typing import Final, NamedTuple

from duramen.base.ports import ViewStore, Worker
from duramen.storage.log.log import Log

__all__ = ["Change", "View", "ViewPart"]

_POSITION_PREFIX: Final = b"\x00position"
_POSITION = struct.Struct(">iq")
_FIRST_ROW: Final = b"\x01"

Change = tuple[bytes, bytes | None]
"""A row's key, which begins with a byte above 0, and its new value; None removes it."""


class _Batch(NamedTuple):
    rows: dict[bytes, bytes | None]
    flush: bool
    done: Callable[[BaseException | None], None] | None


class View:
    """Rows and positions over a ViewStore; writes go through the worker's `disk` lane in order."""

    def __init__(self, store: ViewStore, worker: Worker) -> None:
        self._store = store
        self._worker = worker
        self._written: dict[bytes, bytes | None] = {}  # what a job writes now
        self._next: dict[bytes, bytes | None] = {}  # what goes into the next one
        self._flush = False
        self._waiting: list[Callable[[BaseException | None], None]] = []
        self._running = False
        self.failed: BaseException | None = None

    def position(self, log: Log) -> int:
        """The first offset of `log` that has not been applied; 0 before the first."""
        found = self.get(_position_key(log))
        return 0 if found is None else int(_POSITION.unpack(found)[1])

    def fits(self, log: Log) -> bool:
        """Whether what was applied of `log` is a part of the history that it has."""
        found = self.get(_position_key(log))
        if found is None:
            return True
        epoch, offset = map(int, _POSITION.unpack(found))
        if offset > log.end_offset:
            return False
        return offset <= log.start_offset or log.takeovers.epoch_at(offset - 1) == epoch

    def knows(self, log: Log) -> bool:
        """Whether anything of `log` was applied."""
        return self.get(_position_key(log)) is not None

    def belongs_to(self, logs: Iterable[Log]) -> bool:
        """Whether nothing of other logs than these was applied; else the rows are another directory's."""
        known = {_position_key(log) for log in logs}
        return all(key in known for key, _ in self.scan(_POSITION_PREFIX, _FIRST_ROW))

    def get(self, key: bytes) -> bytes | None:
        """The row `key`."""
        for rows in (self._next, self._written):
            if key in rows:
                return rows[key]
        return self._store.get(key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Rows with `first <= key < end`, in order."""
        over = {key: value for rows in (self._written, self._next) for key, value in rows.items() if first <= key < end}
        under = ((key, value) for key, value in self._store.scan(first, end) if key not in over)
        above = sorted((key, value) for key, value in over.items() if value is not None)
        return merge(under, above, key=lambda row: row[0])

    def apply(self, log: Log, next_offset: int, changes: Iterable[Change]) -> None:
        """Take in what the records before `next_offset` of `log`, all below its high watermark, say."""
        self._next.update(changes)
        self._next[_position_key(log)] = _POSITION.pack(log.takeovers.epoch_at(next_offset - 1), next_offset)
        self._write()

    def forget(self, log: Log, rows: Iterable[bytes]) -> None:
        """Take back what was applied of `log`: the rows that came from it, and the position."""
        self._next.update(dict.fromkeys(rows))
        self._next[_position_key(log)] = None
        self._write()

    def flush(self, done: Callable[[BaseException | None], None] | None = None) -> None:
        """Have everything applied so far survive a crash; then `done`."""
        self._flush = True
        if done is not None:
            self._waiting.append(done)
        self._write()

    def when_written(self, done: Callable[[], None]) -> None:
        """Do `done` once the rows applied so far are in the store, where many are found sooner than in memory."""
        if self._running or self._next:
            self._waiting.append(lambda _: done())
            self._write()
        else:
            done()

    def discard(self) -> None:
        """Forget everything. Blocking: for the start of a node."""
        self._next.clear()
        self._store.clear()

    def _write(self) -> None:
        if self._running or not (self._next or self._flush or self._waiting):
            return
        self._running = True
        self._written, self._next = self._next, {}
        flush, self._flush = self._flush, False
        waiting, self._waiting = self._waiting, []
        rows = self._written

        def job() -> None:
            puts = [(key, value) for key, value in rows.items() if value is not None]
            self._store.write(puts, [key for key, value in rows.items() if value is None])
            if flush:
                self._store.flush()

        def done(result: object) -> None:
            self._running = False
            if isinstance(result, BaseException):
                # Reads go on from memory, and the next start derives the rows again from the log.
                self.failed = result
                self._next = {**self._written, **self._next}
            else:
                self.failed = None
                self._written = {}
            for action in waiting:
                action(self.failed)
            if self.failed is None:
                self._write()

        self._worker.submit("disk", job, done)


def _position_key(log: Log) -> bytes:
    return _POSITION_PREFIX + log.id.to_bytes(8, "big")


class ViewPart:
    """A ViewStore in another; `prefix` is no other part's, nor the beginning of one."""

    def __init__(self, store: ViewStore, prefix: bytes) -> None:
        self._store = store
        self._prefix = prefix

    def get(self, key: bytes) -> bytes | None:
        """The value of `key`."""
        return self._store.get(self._prefix + key)

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Entries with `first <= key < end` in order."""
        skipped = len(self._prefix)
        for key, value in self._store.scan(self._prefix + first, self._prefix + end):
            yield key[skipped:], value

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        """Apply the puts, then the deletes, all or none."""
        prefix = self._prefix
        self._store.write([(prefix + key, value) for key, value in puts], [prefix + key for key in deletes])

    def flush(self) -> None:
        """Everything written before this call survives a crash."""
        self._store.flush()

    def clear(self) -> None:
        """Remove everything of this part."""
        end = self._prefix[:-1] + bytes((self._prefix[-1] + 1,))
        self._store.write([], [key for key, _ in self._store.scan(self._prefix, end)])

    def close(self) -> None:
        """The store is closed by whom it belongs to."""
