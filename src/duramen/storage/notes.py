"""Frames of the write-ahead log that are no appends: staged as soon as there is room, each with its completion."""

from collections.abc import Callable
from functools import partial
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ports import Clock, Worker
from duramen.storage.frames import FrameType
from duramen.storage.log import Log
from duramen.storage.wal import Wal

__all__ = ["FRAME_ROOM", "Notes"]

FRAME_ROOM: Final = 256
"""Bytes for the frames that may go before a log's first batch in an epoch, and for any frame that is no append."""

_RETRY_MS: Final = 1000


class Notes:
    """Notes what happens to logs."""

    def __init__(
        self, wal: Wal, worker: Worker, clock: Clock, deadlines: Deadlines, flush_soon: Callable[[], None]
    ) -> None:
        self._wal = wal
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._flush_soon = flush_soon

    def write(
        self,
        type_: FrameType,
        log: Log,
        payload: bytes,
        done: Callable[[DuramenError | None], None],
        staged: Callable[[], None] | None = None,
    ) -> None:
        """Stage a frame as soon as the WAL has room for it, then `staged`; `done` once durable, or with an error."""
        if self._wal.failed is not None:
            self._worker.soon(partial(done, self._wal.failed))
        elif self._wal.room(FRAME_ROOM):
            self._wal.wait(self._wal.stage(type_, log.id, payload), done)
            if staged is not None:
                staged()
            self._flush_soon()
        else:
            retry = partial(self.write, type_, log, payload, done, staged)
            self._deadlines.at(self._clock.monotonic_ms() + _RETRY_MS, retry)
