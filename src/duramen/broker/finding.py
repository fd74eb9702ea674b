"""Finding a record of a log by its time: the index says which batch may have it, the batch's records which it is."""

from collections.abc import Callable

from duramen.base.errors import DuramenError
from duramen.codec.batch import header, records
from duramen.storage.log import Log
from duramen.storage.reader import Blocked, Slice
from duramen.storage.scanning import read_slice
from duramen.storage.store import Store

__all__ = ["OffsetFound", "TimeSearch"]

OffsetFound = Callable[[int, int, DuramenError | OSError | None], None]
"""Called with (offset, timestamp in ms, None); both are -1 where there is no such record, or with an error."""


class TimeSearch:
    """One search: `done` is called once, at once or when the disk has been read."""

    __slots__ = ("_committed", "_done", "_limit_bytes", "_log", "_store")

    def __init__(self, log: Log, store: Store, limit_bytes: int, done: OffsetFound, *, committed: bool) -> None:
        """`limit_bytes`: how large a batch may become; with `committed` as readers of what is committed see it."""
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
                self.at(newest)

        if newest < 0:
            self._done(-1, -1, None)
        elif self._log.high_watermark < self._log.end_offset:
            self._store.when_synced(synced)  # the newest record may be one that readers do not see yet
        else:
            synced(None)

    def at(self, timestamp: int, first_offset: int = 0) -> None:
        """Look for the first record at or after `timestamp` (ms), from `first_offset` on."""
        first_offset = max(first_offset, self._log.start_offset)

        def retry(error: BaseException | None) -> None:
            if error is not None:
                self._failed(error)
            else:
                self.at(timestamp, first_offset)

        try:
            plan = self._log.plan_time(timestamp, first_offset=first_offset, committed=self._committed)
        except DuramenError as error:
            self._done(-1, -1, error)
            return
        if plan is None:
            self._done(-1, -1, None)
        elif isinstance(plan, Blocked):
            self._store.unblock(plan, retry)
        else:
            self._look_into(plan, timestamp, first_offset)

    def _look_into(self, slice_: Slice, timestamp: int, first_offset: int) -> None:
        following = first_offset

        def found(result: tuple[int, int] | BaseException) -> None:
            if isinstance(result, BaseException):
                self._failed(result)
            elif result[0] < 0:
                # Such records of the batch are let go, or there are none although its header says so.
                self.at(timestamp, following)
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
