"""The transactions of a log: open ones with their first offsets, and aborted ones (KIP-98). Pure.

A transaction is *open* from its first batch to its marker, and unstable until its marker is below the high watermark.
Readers of committed records see nothing from the first unstable offset on, and get a list of the aborted transactions
in the records before it.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple, Protocol

from duramen.base.ports import Buffer
from duramen.codec.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, Header
from duramen.codec.batch_filter import body, marker_type
from duramen.storage.log.producers import ProducerTable

__all__ = ["AbortedTransaction", "TransactionTable", "TransactionalWriters", "enter"]

_ABORT: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction: its producer, the offsets of its first batch and of its marker.

    `stable_offset` is the first offset of the other transactions open at its end, or the offset after its marker: no
    transaction that ended later started before it.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    stable_offset: int


class TransactionTable:
    """Transactions of one log. `aborted` are in the order of their markers; all are before `marked_offset`."""

    __slots__ = ("_ending", "_open", "aborted", "marked_offset")

    def __init__(
        self,
        opened: Iterable[tuple[int, int]] = (),
        aborted: Iterable[tuple[int, int, int, int]] = (),
        marked_offset: int = 0,
    ) -> None:
        """`opened` are (producer id, first offset) in the order of the offsets."""
        self._open = dict(opened)
        # (First offset, marker's, producer): may be unstable. Few; an empty deque takes 760 bytes of each log.
        self._ending: list[tuple[int, int, int]] = []
        self.marked_offset = marked_offset
        self.aborted = [AbortedTransaction(*row) for row in aborted] if aborted else []

    @property
    def is_empty(self) -> bool:
        """Whether it has no transactions."""
        return not (self._open or self._ending or self.aborted)

    def add(self, head: Header, batch: Buffer, base_offset: int) -> None:
        """Add a transactional batch that was appended at `base_offset`."""
        if not head.attributes & CONTROL:
            self._open.setdefault(head.producer_id, base_offset)
            return
        self.marked_offset = base_offset + 1
        first_offset = self._open.pop(head.producer_id, None)
        if first_offset is None:
            return
        self._ending.append((first_offset, base_offset, head.producer_id))
        if marker_type(body(batch, head)) == _ABORT:
            stable_offset = next(iter(self._open.values()), base_offset + 1)
            self.aborted.append(AbortedTransaction(head.producer_id, first_offset, base_offset, stable_offset))

    def stable_end(self, high_watermark: int) -> int:
        """The first offset that is not stable: the last stable offset. Call it with increasing high watermarks."""
        ending = self._ending
        if not ending and not self._open:
            return high_watermark
        while ending and ending[0][1] < high_watermark:
            ending.pop(0)
        found = next(iter(self._open.values()), high_watermark)
        for first_offset, *_ in ending:
            found = min(found, first_offset)
        return min(found, high_watermark)

    def first_offset(self, producer_id: int) -> int | None:
        """The first offset of the producer's open transaction in this log; None without one."""
        return self._open.get(producer_id)

    def opened(self) -> list[tuple[int, int]]:
        """(Producer id, first offset) of every open transaction, in the order of the offsets."""
        return list(self._open.items())

    def unstable(self, high_watermark: int) -> list[tuple[int, int]]:
        """Transactions that are open, or whose marker is not below the high watermark: (producer id, first offset)."""
        ending = [(producer_id, first) for first, marker, producer_id in self._ending if marker >= high_watermark]
        return ending + self.opened()

    def aborted_within(self, start: int, end: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in the offsets `start` to `end` (exclusive)."""
        found = []
        for at in range(bisect_left(self.aborted, start, key=lambda one: one.last_offset), len(self.aborted)):
            one = self.aborted[at]
            if one.first_offset < end:
                found.append(one)
            if one.stable_offset >= end:
                break
        return found

    def forget_aborted(self, markers: Collection[int]) -> None:
        """Forget the aborted transactions with these markers: none of their records are left.

        A reader that got them would wait for the markers, and skip later committed records of their producers.
        """
        if markers:
            self.aborted = [one for one in self.aborted if one.last_offset not in markers]

    def cut_start(self, start_offset: int) -> None:
        """Forget the aborted transactions that lie wholly before the log's new start."""
        del self.aborted[: bisect_left(self.aborted, start_offset, key=lambda one: one.last_offset)]

    def left(self, end_offset: int) -> "TransactionTable":
        """The open and ending transactions without the appends at `end_offset` and later.

        No marker there may be below a high watermark given to `stable_end`: those are not remembered.
        """
        opened = [(first, producer_id) for producer_id, first in self._open.items()]
        opened += [(first, producer_id) for first, marker, producer_id in self._ending if marker >= end_offset]
        left = TransactionTable((producer_id, first) for first, producer_id in sorted(opened) if first < end_offset)
        left._ending = [one for one in self._ending if one[1] < end_offset]
        return left

    def clear(self) -> None:
        """Remove all transactions."""
        self._open.clear()
        self._ending.clear()
        self.aborted.clear()

    def cut_end(self, end_offset: int, left: "TransactionTable") -> None:
        """The log ends at `end_offset` now; `left` is built from its remaining batches."""
        del self.aborted[bisect_left(self.aborted, end_offset, key=lambda one: one.last_offset) :]
        self._open = left._open
        self._ending = left._ending

    def rows(self, end_offset: int) -> tuple[list[tuple[int, int]], list[AbortedTransaction]]:
        """Open and aborted transactions as plain values, of a log that ends at `end_offset`."""
        opened = [row for row in self._open.items() if row[1] < end_offset]
        return opened, self.aborted[: bisect_left(self.aborted, end_offset, key=lambda one: one.last_offset)]


class TransactionalWriters(Protocol):
    """The producers and transactions of a log."""

    @property
    def producers(self) -> ProducerTable:
        """Idempotent producers."""

    @property
    def transactions(self) -> TransactionTable:
        """Their transactions."""


def enter(writers: TransactionalWriters, head: Header, batch: Buffer, base_offset: int, now_ms: int) -> None:
    """Update the producer and transaction of a batch appended at `base_offset`, if it has any.

    An empty batch without epoch is the placeholder for records that a restarted log never had: earlier producers may
    have written there too, and become unknown.
    """
    if head.producer_id >= 0:
        writers.producers.add(head, base_offset, now_ms)
        if head.attributes & TRANSACTIONAL:
            writers.transactions.add(head, batch, base_offset)
    elif head.leader_epoch < 0 and head.size == HEADER_BYTES:
        writers.producers.clear()
        writers.transactions.clear()
