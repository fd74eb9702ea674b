"""What clients of a cluster sent, were told and have read, partition by partition: judged as it comes, and at the end.

Nothing acknowledged with acks=all is lost, nothing is at two places, nothing is read that nobody sent, all who read an
offset read the same, and what an idempotent producer sent is there once and in its order.
"""

from duramen.codec.batch import batches
from duramen.controller.partitions import PartitionId
from duramen.sim.trace import BrokenPromise

__all__ = ["Book", "Page", "Sent"]


class Sent:
    """A batch that a producer has sent, once or again. `sequence` is -1 where it is not idempotent."""

    __slots__ = ("acks_all", "crc", "data", "number", "offset", "producer_id", "records", "sendings", "sequence")

    def __init__(
        self, number: int, data: bytes, crc: int, records: int, *, acks_all: bool, producer_id: int, sequence: int
    ) -> None:
        self.number = number
        self.data = data
        self.crc = crc
        self.records = records
        self.acks_all = acks_all
        self.producer_id = producer_id
        self.sequence = sequence
        self.sendings = 0
        self.offset: int | None = None  # where it is, if that is settled


class Page:
    """One partition."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.trimmed_offset = 0  # up to where somebody wanted records deleted
        self.acknowledged = 0
        self.read_records = 0
        self._sent: dict[int, Sent] = {}  # by CRC
        self._at: dict[int, Sent] = {}
        self._must: dict[int, Sent] = {}

    def _broken(self, what: str) -> BrokenPromise:
        return BrokenPromise(f"{self.name}: {what}")

    def sent(self, batch: Sent) -> None:
        """A batch is sent."""
        self._sent[batch.crc] = batch
        batch.sendings += 1

    def acknowledged_at(self, batch: Sent, offset: int) -> None:
        """A producer was told that its batch is at that offset."""
        self.acknowledged += 1
        if batch.acks_all:
            self._place(batch, offset, "acknowledged")
            self._must[offset] = batch

    def _place(self, batch: Sent, offset: int, how: str) -> None:
        there = self._at.setdefault(offset, batch)
        if there is not batch:
            raise self._broken(f"batch {batch.number} is {how} at offset {offset}, where batch {there.number} is")
        if batch.offset not in (None, offset) and (batch.sequence >= 0 or batch.sendings == 1):
            raise self._broken(f"batch {batch.number} is {how} at {offset} and is at {batch.offset}")
        batch.offset = offset

    def read(self, offset: int, data: bytes) -> int:
        """A consumer who asked for `offset` got these bytes; the offset behind them."""
        expected, end = -1, 0
        for position, found in batches(data):
            end = position + found.size
            if (expected < 0 and not found.base_offset <= offset < found.next_offset) or expected not in (
                -1,
                found.base_offset,
            ):
                raise self._broken(f"a read of {offset} got {found.base_offset}, and {expected} was to come")
            expected = found.next_offset
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

    def whole(self, start_offset: int, data: bytes) -> int:
        """All that there is, from the log's start on, at the end of the run: how many batches."""
        if start_offset > self.trimmed_offset:
            raise self._broken(f"it begins at {start_offset}; nobody wanted more deleted than {self.trimmed_offset}")
        found = {head.base_offset: head.crc for _, head in batches(data)}
        if data:
            self.read(start_offset, data)
        for offset, batch in self._must.items():
            if offset >= start_offset and found.get(offset) != batch.crc:
                raise self._broken(f"batch {batch.number} was acknowledged at {offset} and is lost")
        self._check_sequences(list(found.values()))
        return len(found)

    def _check_sequences(self, crcs: list[int]) -> None:
        last: dict[int, int] = {}
        for crc in crcs:
            batch = self._sent[crc]
            if batch.sequence >= 0:
                if batch.sequence <= last.get(batch.producer_id, -1):
                    raise self._broken(f"batch {batch.number} of producer {batch.producer_id} is there out of order")
                last[batch.producer_id] = batch.sequence


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
