"""Reading a log from an offset to its high watermark, batch by batch, without waiting anywhere."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError
from duramen.codec.batch import Header, batches
from duramen.storage.log import Log
from duramen.storage.reader import Blocked, Slice
from duramen.storage.store import Store

__all__ = ["OnBatch", "read_slice", "scan_log"]

OnBatch = Callable[[Header, bytes], None]

_READ_BYTES = 1024 * 1024


def scan_log(
    store: Store, log: Log, offset: int, on_batch: OnBatch, done: Callable[[DuramenError | OSError | None], None]
) -> None:
    """Call `on_batch` with each batch from the one that holds `offset` to the high watermark as it is now.

    Then `done(None)`; or `done(error)` where the log or the disk is damaged.
    """
    _Scan(store, log, max(offset, log.start_offset), on_batch, done).go_on(None)


def read_slice(
    store: Store,
    slice_: Slice,
    done: Callable[[bytes | DuramenError | OSError], None],
    parts: list[bytes] | None = None,
) -> None:
    """Call `done` with all bytes of a slice, or with what kept them from being read."""
    parts = [] if parts is None else parts
    while len(slice_):
        try:
            piece = slice_.piece(_READ_BYTES)
        except DuramenError as error:
            done(error)
            return
        if isinstance(piece, Blocked):
            store.unblock(piece, partial(_resume, store, slice_, done, parts))
            return
        parts += map(bytes, piece)
    done(b"".join(parts))


def _resume(
    store: Store,
    slice_: Slice,
    done: Callable[[bytes | DuramenError | OSError], None],
    parts: list[bytes],
    error: BaseException | None,
) -> None:
    if error is not None:
        done(error if isinstance(error, OSError) else OSError(str(error)))
    else:
        read_slice(store, slice_, done, parts)


class _Scan:
    def __init__(
        self,
        store: Store,
        log: Log,
        offset: int,
        on_batch: OnBatch,
        done: Callable[[DuramenError | OSError | None], None],
    ) -> None:
        self._store = store
        self._log = log
        self._offset = offset
        self._end = log.high_watermark
        self._on_batch = on_batch
        self._done = done

    def go_on(self, error: BaseException | None) -> None:
        """Read on until something has to be waited for or the end is reached."""
        if error is not None:
            self._done(error if isinstance(error, DuramenError | OSError) else OSError(str(error)))
            return
        try:
            plan = self._log.plan_read(self._offset, _READ_BYTES) if self._offset < self._end else None
        except DuramenError as damaged:
            self._done(damaged)
            return
        if plan is None:
            self._done(None)
        elif isinstance(plan, Blocked):
            self._store.unblock(plan, self.go_on)
        else:
            read_slice(self._store, plan, self._take)

    def _take(self, data: bytes | DuramenError | OSError) -> None:
        if not isinstance(data, bytes):
            self.go_on(data)
            return
        try:
            for position, found in batches(data):
                if found.next_offset > self._offset:
                    self._on_batch(found, data[position : position + found.size])
                    self._offset = found.next_offset
        except DuramenError as damaged:
            self._done(damaged)
            return
        # Through the worker, so that a long log is not one deep recursion.
        self._store.soon(lambda: self.go_on(None))
