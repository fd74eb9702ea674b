"""Transactions that ended in a range of a partition, and open ones: for readers that count them at their marker.

Only headers and markers are read, a piece of the log at a time; a log without markers is not read at all.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from duramen.base.errors import CoordinatorLoading, DuramenError, StorageFailed
from duramen.broker.partition import Partition
from duramen.codec.batch import CONTROL, batches
from duramen.codec.markers import decode_marker
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = ["MarkedTransactions", "TransactionEnd", "find_marked"]

_READ_BYTES: Final = 512 * 1024
_MOST_BYTES: Final = 64 * 1024 * 1024


class TransactionEnd(NamedTuple):
    """A marker at `offset`, and the start of its transaction: -1 if it ended nothing.

    `sequence` is the commit sequence, -1 in markers of older versions, whose transactions may start anywhere: their
    `first_offset` is the log's start.
    """

    offset: int
    producer_id: int
    first_offset: int
    sequence: int
    commit: bool


class MarkedTransactions(NamedTuple):
    """The markers below `next_offset`; all else is the state at `high_watermark`, which is above them.

    `open` are (producer id, first offset) of the transactions without a marker below it.
    """

    high_watermark: int
    last_stable_offset: int
    next_offset: int
    open: list[tuple[int, int]]
    ended: list[TransactionEnd]


MarkedDone = Callable[[MarkedTransactions | DuramenError], None]


def find_marked(store: Store, partition: Partition, offset: int, most: int, done: MarkedDone) -> None:
    """The markers from `offset` on, at most `most`; `done` is called now or later.

    Raises NotLeader, or CoordinatorLoading if the open transactions are not known yet. If more markers are left, or
    much was read, `next_offset` is below the high watermark.
    """
    log = partition.log
    partition.check_leads()
    if log.replicated is not None and not log.replicated.settled:
        raise CoordinatorLoading(f"which transactions are open in {partition.log.key} is not known yet")
    high_watermark = log.high_watermark
    unstable = log.transactions.unstable(high_watermark)
    found = MarkedTransactions(high_watermark, log.last_stable_offset, max(offset, log.start_offset), unstable, [])
    _Search(store, partition, found, most, done).go_on(None)


class _Search:
    def __init__(
        self, store: Store, partition: Partition, found: MarkedTransactions, most: int, done: MarkedDone
    ) -> None:
        self._store = store
        self._log = partition.log
        self._found = found
        self._most = most
        self._done = done
        self._offset = found.next_offset
        self._read_bytes = 0

    def go_on(self, error: BaseException | None) -> None:
        if error is not None:
            self._done(error if isinstance(error, DuramenError) else StorageFailed(str(error)))
            return
        end = min(self._found.high_watermark, self._log.transactions.marked_offset)
        if self._offset >= end:
            self._end(max(self._offset, self._found.high_watermark))
        elif len(self._found.ended) >= self._most or self._read_bytes >= _MOST_BYTES:
            self._end(self._offset)
        else:
            self._read()

    def _read(self) -> None:
        self._offset = max(self._offset, self._log.start_offset)
        try:
            plan = self._log.plan_read(self._offset, _READ_BYTES)
        except DuramenError as error:
            self._done(error)
            return
        if isinstance(plan, Blocked):
            self._store.unblock(plan, self.go_on)
        elif plan is None:
            self._end(self._offset)
        else:
            read_slice(self._store, plan, self._take)

    def _end(self, next_offset: int) -> None:
        self._done(self._found._replace(next_offset=next_offset))

    def _take(self, data: bytes | DuramenError | OSError) -> None:
        if not isinstance(data, bytes):
            self.go_on(data)
            return
        self._read_bytes += len(data)
        try:
            self._look(memoryview(data))
        except DuramenError as damaged:
            self._done(damaged)
            return
        # Through the worker: other work can run between two pieces.
        self._store.soon(lambda: self.go_on(None))

    def _look(self, data: memoryview) -> None:
        for position, head in batches(data):
            if head.base_offset >= self._found.high_watermark or len(self._found.ended) >= self._most:
                return
            if head.next_offset <= self._offset:
                continue
            if head.attributes & CONTROL:
                marker = decode_marker(data[position : position + head.size])
                if marker is not None:
                    first = self._log.start_offset if marker.first_offset is None else marker.first_offset
                    self._found.ended.append(
                        TransactionEnd(head.base_offset, head.producer_id, first, marker.sequence, marker.commit)
                    )
            self._offset = head.next_offset
