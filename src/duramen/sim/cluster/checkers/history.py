"""Requests, responses and reads of a cluster's clients, by partition: checked as they come, and at the end.

No record acknowledged with acks=all is lost. No record has two offsets. Readers see only sent records, and the same
record at an offset. Records of an idempotent producer are stored once and in order, under any epochs. A transaction is
committed in every partition that it wrote to, or in none.
"""

from collections.abc import Sequence
from typing import Final

from duramen.codec.batch import CONTROL, TRANSACTIONAL, batches, header
from duramen.codec.batch_filter import body, marker_type
from duramen.metadata.partitions import PartitionId
from duramen.sim.checkers.transaction import SimulatedTransaction, decided
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["Book", "Page", "SentBatch"]

_COMMIT: Final = 1


class SentBatch:
    """A batch that a producer has sent, once or again. `sequence` is -1 where it is not idempotent."""

    __slots__ = (
        "acks_all", "crc", "data", "number", "offset", "producer", "records", "sendings", "sequence", "transaction",
    )  # fmt: skip

    def __init__(
        self, number: int, data: bytes, crc: int, records: int, *, acks_all: bool, producer_id: int, sequence: int,
        producer_epoch: int = 0, transaction: SimulatedTransaction | None = None,
    ) -> None:  # fmt: skip
        self.number = number
        self.data = data
        self.crc = crc
        self.records = records
        self.acks_all = acks_all
        self.producer = producer_id, producer_epoch
        self.sequence = sequence
        self.transaction = transaction
        self.sendings = 0
        self.offset: int | None = None  # where it is, if that is settled


class Page:
    """One partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trimmed_offset = 0  # up to which a client requested deletions
        self.acknowledged = 0
        self.read_records = 0
        self._sent: dict[int, SentBatch] = {}  # by CRC
        self._at: dict[int, SentBatch] = {}
        self._must: dict[int, SentBatch] = {}

    def _broken(self, what: str) -> BrokenPromise:
        return BrokenPromise(f"{self.name}: {what}")

    def sent(self, batch: SentBatch) -> None:
        """A batch is sent."""
        self._sent[batch.crc] = batch
        batch.sendings += 1

    def acknowledged_at(self, batch: SentBatch, offset: int) -> None:
        """A producer's batch is acknowledged at that offset."""
        self.acknowledged += 1
        if batch.acks_all:
            self._place(batch, offset, "acknowledged")
            self._must[offset] = batch

    def _place(self, batch: SentBatch, offset: int, how: str) -> None:
        there = self._at.setdefault(offset, batch)
        if there is not batch:
            raise self._broken(f"batch {batch.number} is {how} at offset {offset}, where batch {there.number} is")
        moved = batch.offset is not None and batch.offset != offset and batch.offset >= self.trimmed_offset
        if moved and (batch.sequence >= 0 or batch.sendings == 1):
            raise self._broken(f"batch {batch.number} is {how} at {offset} and is at {batch.offset}")
        batch.offset = offset

    def read(self, offset: int, data: bytes) -> int:
        """A consumer's fetch at `offset` returned these bytes; the next offset."""
        expected, end = -1, 0
        for position, found in batches(data):
            end = position + found.size
            if (expected < 0 and not found.base_offset <= offset < found.next_offset) or expected not in (
                -1,
                found.base_offset,
            ):
                raise self._broken(f"a read of {offset} got {found.base_offset}, and {expected} was to come")
            expected = found.next_offset
            if found.attributes & CONTROL:
                continue
            batch = self._sent.get(found.crc)
            if batch is None:
                raise self._broken(f"what is read at {found.base_offset} was never sent")
            if batch.records != found.next_offset - found.base_offset:
                raise self._broken(f"batch {batch.number} was sent with {batch.records} records, and is another")
            self._place(batch, found.base_offset, "read")
            self.read_records += batch.records
        if end != len(data) or expected < 0:
            raise self._broken(f"a read of {offset} got {len(data)} bytes, {end} of them whole batches")
        return expected

    def read_committed(self, data: bytes, aborted: Sequence[tuple[int, int]]) -> None:
        """A read_committed consumer read the same bytes, with `aborted` transactions among them."""
        for batch, committed in decided(data, aborted):
            self._seen(header(batch).crc, committed=committed)

    def _seen(self, crc: int, *, committed: bool) -> None:
        transaction = self._sent[crc].transaction
        if transaction is None:
            raise self._broken(f"batch {self._sent[crc].number} is in a transaction, and was in none")
        transaction.seen(self.name, committed=committed)

    def _check_transactions(self, data: bytes) -> None:
        """The markers of the log agree on each of its transactions."""
        opened: dict[int, list[int]] = {}  # CRCs, by producer id
        for position, found in batches(data):
            if found.attributes & CONTROL:
                type_ = marker_type(body(data[position : position + found.size], found))
                for crc in opened.pop(found.producer_id, ()):
                    self._seen(crc, committed=type_ == _COMMIT)
            elif found.attributes & TRANSACTIONAL:
                opened.setdefault(found.producer_id, []).append(found.crc)

    def whole(self, start_offset: int, data: bytes) -> int:
        """All that there is, from the log's start on, at the end of the run: how many batches."""
        if start_offset > self.trimmed_offset:
            raise self._broken(f"it begins at {start_offset}; nobody wanted more deleted than {self.trimmed_offset}")
        found = {head.base_offset: head.crc for _, head in batches(data) if not head.attributes & CONTROL}
        if data:
            self.read(start_offset, data)
            self._check_transactions(data)
        for offset, batch in self._must.items():
            if offset >= start_offset and found.get(offset) != batch.crc:
                raise self._broken(f"batch {batch.number} was acknowledged at {offset} and is lost")
        self._check_sequences(list(found.values()))
        return len(found)

    def _check_sequences(self, crcs: list[int]) -> None:
        last: dict[tuple[int, int], int] = {}
        stored: dict[int, tuple[int, int]] = {}  # producers, by the numbers of their batches
        for crc in crcs:
            batch = self._sent[crc]
            if batch.sequence >= 0:
                before = stored.setdefault(batch.number, batch.producer)
                if before != batch.producer:
                    raise self._broken(f"batch {batch.number} is there twice, of {before} and of {batch.producer}")
                if batch.sequence <= last.get(batch.producer, -1):
                    raise self._broken(f"batch {batch.number} of producer {batch.producer} is there out of order")
                last[batch.producer] = batch.sequence


class Book:
    """All partitions."""

    def __init__(self) -> None:
        self.pages: dict[PartitionId, Page] = {}

    def page(self, place: PartitionId) -> Page:
        """The page of a partition."""
        found = self.pages.get(place)
        if found is None:
            found = self.pages[place] = Page(f"partition {place.partition} of {str(place.stream_id)[-4:]}")
        return found
