"""Control frames of the write-ahead log: staged as soon as there is room, each with its completion."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ports import Clock, Worker
from duramen.storage.log.log import Log
from duramen.storage.wal.frames import FrameType
from duramen.storage.wal.wal import Wal

__all__ = ["FRAME_ROOM", "Notes"]

FRAME_ROOM: Final = 256
"""Bytes of the frames that may precede a log's first batch in an epoch, and of any frame without a batch."""

_RETRY_MS: Final = 1000


class _Note(NamedTuple):
    type: FrameType
    log: Log
    payload: bytes
    done: Callable[[DuramenError | None], None]
    staged: Callable[[], None] | None


class Notes:
    """Writes control frames of logs in the order of the calls."""

    def __init__(
        self, wal: Wal, worker: Worker, clock: Clock, deadlines: Deadlines, flush_soon: Callable[[], None]
    ) -> None:
        self._wal = wal
        self._worker = worker
        self._clock = clock
        self._deadlines = deadlines
        self._flush_soon = flush_soon
        self._delayed: deque[_Note] = deque()  # a later frame builds on earlier ones: none overtakes

    def write(
        self,
        type_: FrameType,
        log: Log,
        payload: bytes,
        done: Callable[[DuramenError | None], None],
        staged: Callable[[], None] | None = None,
    ) -> None:
        """Stage a frame as soon as the WAL has room, then call `staged`; `done` once durable, or with an error."""
        note = _Note(type_, log, payload, done, staged)
        if self._delayed or not self._stage(note):
            self._delayed.append(note)
            if len(self._delayed) == 1:
                self._retry_later()

    def _stage(self, note: _Note) -> bool:
        if self._wal.failed is not None:
            self._worker.soon(partial(note.done, self._wal.failed))
            return True
        if not self._wal.room(FRAME_ROOM):
            return False
        self._wal.wait(self._wal.stage(note.type, note.log.id, note.payload), note.done)
        if note.staged is not None:
            note.staged()
        self._flush_soon()
        return True

    def _retry_later(self) -> None:
        self._deadlines.at(self._clock.monotonic_ms() + _RETRY_MS, self._retry)

    def _retry(self) -> None:
        while self._delayed and self._stage(self._delayed[0]):
            self._delayed.popleft()
        if self._delayed:
            self._retry_later()
