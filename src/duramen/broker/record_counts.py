"""Finds the last N records of a log: control batches and compaction leave offsets without records."""

from functools import partial
from typing import Final

from duramen.base.errors import DuramenError, LogDamaged
from duramen.broker.offset_search import OffsetFound
from duramen.codec.batch import CONTROL, Header, header, records
from duramen.storage.log.log import Log
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = ["LastSearch"]

_AT_ONCE: Final = 200  # headers that are looked at before others get their turn: a few milliseconds


class LastSearch:
    """One search: batch headers in windows of offsets, the last first, until they have enough records."""

    __slots__ = ("_done", "_end", "_found", "_left", "_limit_bytes", "_log", "_size", "_store")

    def __init__(self, log: Log, store: Store, limit_bytes: int, done: OffsetFound) -> None:
        """`limit_bytes`: how large a batch may become. `done` is called once, at once or when the disk was read."""
        self._log = log
        self._store = store
        self._limit_bytes = limit_bytes
        self._done = done
        self._end = 0
        self._left = 0
        self._size = 0
        self._found: list[Header] = []

    def before(self, end_offset: int, count: int) -> None:
        """Look for the offset from which on there are `count` records before `end_offset`; the start if there are less.

        Where the log is damaged, each offset that is left is taken for a record.
        """
        self._end, self._left, self._size = end_offset, count, count
        if count:
            self._look(self._begin())
        else:
            self._finish(end_offset)

    def _begin(self) -> int:
        """Where the next window begins."""
        self._found = []
        return max(self._log.start_offset, self._end - self._size)

    def _look(self, first: int, offset: int = -1) -> None:
        """Gather the headers of the batches from `offset` to the window's end; the window began at `first`."""
        offset = max(first, offset)
        for _ in range(_AT_ONCE):
            if offset >= self._end:
                self._count(first)
                return
            try:
                head = self._log.plan_header(offset)
            except LogDamaged:
                self._finish(self._end - self._left)
                return
            if isinstance(head, Blocked):
                self._store.unblock(head, partial(self._go_on, first, offset))
                return
            if head is None or head.base_offset >= self._end:
                offset = self._end
                continue
            if head.records and not head.attributes & CONTROL:
                self._found.append(head)
            offset = head.next_offset
        self._store.soon(partial(self._look, first, offset))

    def _go_on(self, first: int, offset: int, error: BaseException | None) -> None:
        if error is None:
            self._look(first, offset)
        else:
            self._failed(error)

    def _count(self, first: int) -> None:
        """Count the window's records from its end on."""
        for head in reversed(self._found):
            if head.records < self._left:
                self._left -= head.records
            elif head.records == head.next_offset - head.base_offset:
                self._finish(head.next_offset - self._left)
                return
            else:
                self._look_into(head)
                return
        if first <= self._log.start_offset:
            self._finish(first)
            return
        self._end = min([first, *(head.base_offset for head in self._found[:1])])
        self._size *= 2
        self._look(self._begin())

    def _look_into(self, head: Header) -> None:
        """Compaction removed records of this batch: the remaining records are decoded and counted."""

        def retry(error: BaseException | None) -> None:
            if error is None:
                self._look_into(head)
            else:
                self._failed(error)

        def read(data: bytes | DuramenError | OSError) -> None:
            if isinstance(data, bytes):
                batch = data[: header(data).size]
                self._store.run(lambda: _last_of(batch, self._left, self._limit_bytes), looked)
            else:
                self._failed(data)

        def looked(result: int | BaseException) -> None:
            if isinstance(result, BaseException):
                self._failed(result)
            else:
                self._finish(result)

        try:
            plan = self._log.plan_read(max(head.base_offset, self._log.start_offset), 1)
        except DuramenError as error:
            self._failed(error)
            return
        if isinstance(plan, Blocked):
            self._store.unblock(plan, retry)
        elif plan is None:
            self._finish(head.base_offset)
        else:
            read_slice(self._store, plan, read)

    def _finish(self, offset: int) -> None:
        self._done(max(offset, self._log.start_offset), -1, None)

    def _failed(self, error: BaseException) -> None:
        self._done(-1, -1, error if isinstance(error, DuramenError | OSError) else OSError(str(error)))


def _last_of(batch: bytes, count: int, limit_bytes: int) -> int:
    """The offset of the first of the last `count` records of a batch."""
    offsets = [record.offset for record in records(batch, limit_bytes=limit_bytes)]
    return offsets[-count:][0]
