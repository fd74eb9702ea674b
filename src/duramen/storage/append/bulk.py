"""Bulk appends to logs, which wait until their segments are synced.

Batches for a follower that is far behind are written once, directly to its segments, and synced in pieces. The
write-ahead log makes small appends durable quickly; here it would only make the disk write everything twice.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from duramen.base.errors import DuramenError, StorageFailed
from duramen.storage.log.log import Log
from duramen.storage.maintenance.segment_rewrite import holds
from duramen.storage.segment.segment import Segment
from duramen.storage.wal.wal import Wal

__all__ = ["Bulk"]

Done = Callable[[DuramenError | None], None]


class Bulk:
    """The callbacks that wait for a sync, by log."""

    def __init__(self, wal: Wal, flush_soon: Callable[[], None]) -> None:
        self._wal = wal
        self._flush_soon = flush_soon
        self._waiting: dict[Log, deque[tuple[int, Done]]] = {}

    def wait(self, log: Log, end_offset: int, done: Done) -> None:
        """Call `done` once the log is durable up to `end_offset`, or never will be."""
        self._waiting.setdefault(log, deque()).append((end_offset, done))

    def copied(self, log: Log, end_offset: int, active: Segment) -> None:
        """The log's segments are synced up to `end_offset`, when `active` was the last one.

        Recovery accepts them once the WAL frames of their epochs are durable.
        """
        self._wal.wait(self._wal.end, partial(self._durable, log, end_offset, active))
        self._flush_soon()

    def _durable(self, log: Log, end_offset: int, active: Segment, error: DuramenError | None) -> None:
        if error is not None:
            self.fail(log, error)
        elif holds(log, active):  # else the log was truncated meanwhile, and may have other records there
            log.synced_to(end_offset)
            log.notify()
            self.settle(log)

    def settle(self, log: Log) -> None:
        """Call those that wait for offsets that are synced by now, or truncated."""
        waiting = self._waiting.get(log)
        if waiting is None:
            return
        while waiting and waiting[0][0] <= log.synced_offset:
            waiting.popleft()[1](None)
        while waiting and waiting[-1][0] > log.end_offset:
            waiting.pop()[1](None)
        if not waiting:
            self._waiting.pop(log, None)

    def give_up(self, log: Log) -> None:
        """The log accepts no more writes."""
        self.fail(log, StorageFailed(log.failed))

    def fail(self, log: Log, error: DuramenError) -> None:
        """Fail all callbacks that wait for the log."""
        for _, done in self._waiting.pop(log, ()):
            done(error)
