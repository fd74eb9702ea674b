"""Reading a log from an offset to its high watermark, batch by batch, without waiting anywhere."""

from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError, LogDamaged
from duramen.base.ports import Buffer
from duramen.codec.batch import Header, batches
from duramen.storage.log.log import Log
from duramen.storage.segment.reader import Blocked, Slice
from duramen.storage.store import Store

__all__ = ["OnBatch", "OnDamage", "read_slice", "scan_log"]

OnBatch = Callable[[Header, bytes], None]
OnDamage = Callable[[int, int, DuramenError], None]
"""Called with the first and the last unreadable offset, and the reason."""

_READ_BYTES = 1024 * 1024


def scan_log(
    store: Store,
    log: Log,
    offset: int,
    on_batch: OnBatch,
    done: Callable[[DuramenError | OSError | None], None],
    on_damage: OnDamage | None = None,
) -> None:
    """Call `on_batch` with each batch from the one with `offset` to the present high watermark.

    Then call `done(None)`; or `done(error)` if the log or the disk is damaged. `on_damage`, if given, is called with
    each damaged range of the log, and the scan continues after it.
    """
    _Scan(store, log, max(offset, log.start_offset), on_batch, done, on_damage).go_on(None)


def read_slice(
    store: Store,
    slice_: Slice,
    done: Callable[[bytes | DuramenError | OSError], None],
    parts: list[Buffer] | None = None,
) -> None:
    """Call `done` with all bytes of a slice, or with the error."""
    parts = [] if parts is None else parts
    while len(slice_):
        try:
            piece = slice_.piece(_READ_BYTES)
        except DuramenError as error:
            done(error)
            return
        if isinstance(piece, Blocked):
            # Bytes in memory may have changed by then.
            store.unblock(piece, partial(_resume, store, slice_, done, [b"".join(parts)]))
            return
        parts += piece
    done(b"".join(parts))


def _resume(
    store: Store,
    slice_: Slice,
    done: Callable[[bytes | DuramenError | OSError], None],
    parts: list[Buffer],
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
        on_damage: OnDamage | None,
    ) -> None:
        self._store = store
        self._log = log
        self._offset = offset
        self._end = log.high_watermark
        self._on_batch = on_batch
        self._done = done
        self._on_damage = on_damage
        self._read_bytes = _READ_BYTES  # one batch at a time after damage, so that no intact record is lost with it
        self._lost: tuple[int, DuramenError] | None = None  # the start of the present damage, and its cause

    def go_on(self, error: BaseException | None) -> None:
        """Continue until something has to be waited for or the end is reached."""
        if error is not None:
            self._end_with(error if isinstance(error, DuramenError | OSError) else OSError(str(error)))
            return
        try:
            plan = self._log.plan_read(self._offset, self._read_bytes) if self._offset < self._end else None
        except DuramenError as damaged:
            self._skip(damaged)
            return
        if plan is None:
            self._end_with(None)
        elif isinstance(plan, Blocked):
            self._store.unblock(plan, self.go_on)
        else:
            read_slice(self._store, plan, self._take)

    def _end_with(self, error: DuramenError | OSError | None) -> None:
        self._name_lost()
        self._done(error)

    def _take(self, data: bytes | DuramenError | OSError) -> None:
        if not isinstance(data, bytes):
            self._failed(data)
            return
        self._name_lost()
        self._read_bytes = min(2 * self._read_bytes, _READ_BYTES)
        try:
            for position, found in batches(data):
                if found.next_offset > self._offset:
                    self._on_batch(found, data[position : position + found.size])
                    self._offset = found.next_offset
        except DuramenError as damaged:
            self._end_with(damaged)
            return
        # Through the worker, so that a long log is not one deep recursion.
        self._store.soon(lambda: self.go_on(None))

    # -- round damage -------------------------------------------------------------------------------

    def _failed(self, error: DuramenError | OSError) -> None:
        if self._read_bytes > 1 and self._on_damage is not None and isinstance(error, LogDamaged):
            self._read_bytes = 1
            self._store.soon(lambda: self.go_on(None))
        else:
            self._skip(error)

    def _skip(self, error: DuramenError | OSError) -> None:
        if self._on_damage is None or not isinstance(error, LogDamaged):
            self._end_with(error)
            return
        plan = self._log.plan_skip(self._offset)
        if isinstance(plan, Blocked):
            self._store.unblock(plan, lambda failed: self._skip(error) if failed is None else self.go_on(failed))
            return
        if self._lost is None:
            self._lost = self._offset, error
        self._offset = min(plan, self._end)
        self._read_bytes = 1
        self._store.soon(lambda: self.go_on(None))

    def _name_lost(self) -> None:
        lost, self._lost = self._lost, None
        if lost is not None and self._on_damage is not None:
            self._on_damage(lost[0], self._offset - 1, lost[1])
