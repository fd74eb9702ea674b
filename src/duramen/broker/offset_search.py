"""Finds a record of a log by its time: the index gives the batch, the batch's records give the offset."""

from collections.abc import Callable
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError
from duramen.base.units import MIB
from duramen.codec.batch import batches, header, records
from duramen.storage.log.log import Log
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked, Slice
from duramen.storage.store import Store

__all__ = ["OffsetFound", "TimeSearch"]

OffsetFound = Callable[[int, int, DuramenError | OSError | None], None]
"""Called with (offset, timestamp in ms, None); both are -1 where there is no such record, or with an error."""

_SCANNED_BYTES: Final = MIB


class _Newest(NamedTuple):
    """The largest timestamp below `next_offset`; -1 where no record has one."""

    timestamp: int
    next_offset: int


class TimeSearch:
    """One search: `done` is called once, at once or when the disk has been read."""

    __slots__ = ("_committed", "_done", "_limit_bytes", "_log", "_store")

    def __init__(self, log: Log, store: Store, limit_bytes: int, done: OffsetFound, *, committed: bool) -> None:
        """`limit_bytes` bounds the decompressed size of a batch; `committed` as for read_committed."""
        self._log = log
        self._store = store
        self._limit_bytes = limit_bytes
        self._done = done
        self._committed = committed

    def newest(self) -> None:
        """Look for the record with the largest timestamp."""
        newest = max((segment.max_timestamp for segment in self._log.segments if segment.size), default=-1)

        def synced(error: DuramenError | None) -> None:
            if error is not None:
                self._done(-1, -1, error)
            else:
                self.at(newest, otherwise=lambda: self._scan(_Newest(-1, self._log.start_offset)))

        if newest < 0:
            self._done(-1, -1, None)
        elif self._log.high_watermark < self._log.end_offset:
            self._store.when_synced(synced)  # the newest record may be one that readers do not see yet
        else:
            synced(None)

    def _scan(self, newest: _Newest) -> None:
        """Search the rest if the record with a segment's largest timestamp is deleted or not visible."""
        log, offset = self._log, max(newest.next_offset, self._log.start_offset)
        ahead = (one for one in log.segments if one.size and not 0 <= one.end_offset <= offset)
        offset = next((max(offset, one.base_offset) for one in ahead if one.max_timestamp > newest.timestamp), -1)

        def retry(error: BaseException | None) -> None:
            if error is not None:
                self._failed(error)
            else:
                self._scan(newest)

        def scan(data: bytes | DuramenError | OSError) -> None:
            if isinstance(data, bytes):
                limit_bytes = self._limit_bytes
                self._store.run(lambda: _newest_in(data, newest.timestamp, log.start_offset, limit_bytes), found)
            else:
                self._failed(data)

        def found(result: _Newest | BaseException) -> None:
            if isinstance(result, BaseException):
                self._failed(result)
            else:
                self._scan(result)

        try:
            plan = None if offset < 0 else log.plan_read(offset, _SCANNED_BYTES, committed=self._committed)
        except DuramenError as error:
            self._failed(error)
            return
        if isinstance(plan, Blocked):
            self._store.unblock(plan, retry)
        elif plan is not None:
            read_slice(self._store, plan, scan)
        elif newest.timestamp < 0:
            self._done(-1, -1, None)
        else:
            self.at(newest.timestamp)

    def at(self, timestamp: int, first_offset: int = 0, otherwise: Callable[[], None] | None = None) -> None:
        """Look for the first record at or after `timestamp` (ms) from `first_offset` on; if none is, `otherwise`."""
        first_offset = max(first_offset, self._log.start_offset)

        def retry(error: BaseException | None) -> None:
            if error is not None:
                self._failed(error)
            else:
                self.at(timestamp, first_offset, otherwise)

        try:
            plan = self._log.plan_time(timestamp, first_offset=first_offset, committed=self._committed)
        except DuramenError as error:
            self._done(-1, -1, error)
            return
        if isinstance(plan, Blocked):
            self._store.unblock(plan, retry)
        elif plan is not None:
            self._look_into(plan, timestamp, first_offset, otherwise)
        elif otherwise is not None:
            otherwise()
        else:
            self._done(-1, -1, None)

    def _look_into(
        self, slice_: Slice, timestamp: int, first_offset: int, otherwise: Callable[[], None] | None
    ) -> None:
        following = first_offset

        def found(result: tuple[int, int] | BaseException) -> None:
            if isinstance(result, BaseException):
                self._failed(result)
            elif result[0] < 0:
                # Such records of the batch are compacted away, or there are none although its header indicates some.
                self.at(timestamp, following, otherwise)
            else:
                self._done(*result, None)

        def decode(data: bytes | DuramenError | OSError) -> None:
            nonlocal following
            if isinstance(data, bytes):
                following = header(data).next_offset
                # Off the caller's side: a compressed batch can take long.
                limit_bytes = self._limit_bytes
                self._store.run(lambda: _first_at(data, timestamp, first_offset, limit_bytes), found)
            else:
                self._done(-1, -1, data)

        read_slice(self._store, slice_, decode)

    def _failed(self, error: BaseException) -> None:
        self._done(-1, -1, error if isinstance(error, DuramenError | OSError) else OSError(str(error)))


def _first_at(batch: bytes, timestamp: int, first_offset: int, limit_bytes: int) -> tuple[int, int]:
    for record in records(batch, limit_bytes=limit_bytes):
        if record.timestamp >= timestamp and record.offset >= first_offset:
            return record.offset, record.timestamp
    return -1, -1


def _newest_in(data: bytes, newest: int, first_offset: int, limit_bytes: int) -> _Newest:
    """The largest timestamp of the records of `data` from `first_offset` on, or `newest` where none is larger."""
    found = list(batches(data))
    for position, head in sorted(found, key=lambda one: one[1].max_timestamp, reverse=True):
        if head.max_timestamp <= newest:
            break
        batch = data[position : position + head.size]
        for record in records(batch, limit_bytes=limit_bytes):
            if record.offset >= first_offset:
                newest = max(newest, record.timestamp)
    return _Newest(newest, found[-1][1].next_offset)
