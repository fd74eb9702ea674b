"""A page of a snapshot's records as JSON."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from duramen.broker.streams import Stream
from duramen.codec.batch import DecodedRecord, batches, records
from duramen.doors.http.reads import record_info, record_size
from duramen.doors.http.snapshots.reads import ShownBatches, ShownWindow, read_shown, run_job
from duramen.doors.http.types.records import RecordInfo
from duramen.doors.http.types.snapshots import LARGEST_JSON_BYTES, SnapshotRecordsQuery
from duramen.keyed.view import VisibleRecords, next_shown
from duramen.service.broker import Broker

__all__ = ["RecordsOfPage", "record_page", "records_of"]

_MOST_READS = 16  # of a page: then it ends with the records found so far


class RecordsOfPage(NamedTuple):
    """Records in the order of their offsets, their size in bytes, and the offset after the last one looked at."""

    records: list[RecordInfo]
    size: int
    next_offset: int


async def record_page(
    broker: Broker, stream: Stream, window: ShownWindow, query: SnapshotRecordsQuery
) -> RecordsOfPage:
    """As many records as the query allows. Raises LogDamaged, BatchCorrupt, StorageFailed."""
    page = _Page(stream, query)
    offset = window.offset
    for _ in range(_MOST_READS):
        offset = min(next_shown(window.visible, offset), window.end)
        if offset >= window.end or page.full:
            break
        data, following = await read_shown(broker.store, window, offset, page.left_bytes)
        offset = await run_job(broker.store, partial(page.take, data, offset, following, window.visible, window.end))
    return RecordsOfPage(page.found, page.size, offset)


async def records_of(
    broker: Broker, stream: Stream, found: ShownBatches, query: SnapshotRecordsQuery
) -> RecordsOfPage:  # fmt: skip
    """As many records of these batches as the query allows."""
    page, visible = _Page(stream, query), VisibleRecords(found.base, found.bits)
    take = partial(page.take, found.batches, found.first, found.next_offset, visible, found.next_offset)
    next_offset = await run_job(broker.store, take)
    return RecordsOfPage(page.found, page.size, next_offset)


class _Page:
    """Collects records up to the limits of a page."""

    def __init__(self, stream: Stream, query: SnapshotRecordsQuery) -> None:
        self.found: list[RecordInfo] = []
        self.size = 0
        self.full = False
        self._stream = stream
        self._query = query
        self._most_bytes = min(query.max_bytes, LARGEST_JSON_BYTES)

    @property
    def left_bytes(self) -> int:
        """The remaining bytes."""
        return max(1, self._most_bytes - self.size)

    def take(self, data: bytes, offset: int, following: int, visible: VisibleRecords, end: int) -> int:
        """Take the visible records of the batches; returns the offset to continue at. Always takes the first record."""
        for record in self._shown(memoryview(data), offset, visible, end):
            more = record_size(record)
            if len(self.found) >= self._query.limit or (self.found and self.size + more > self._most_bytes):
                self.full = True
                return record.offset
            self.size += more
            self.found.append(record_info(record, self._stream.name, self._query.partition))
        self.full = len(self.found) >= self._query.limit
        return following

    def _shown(
        self, data: memoryview, offset: int, visible: VisibleRecords, end: int
    ) -> Iterator[DecodedRecord]:  # fmt: skip
        base, bits = visible
        for at, head in batches(data):
            for record in records(data[at : at + head.size], limit_bytes=self._stream.decoded_limit_bytes):
                place = record.offset - base
                shown = 0 <= place < 8 * len(bits) and bits[place >> 3] >> (place & 7) & 1
                if shown and offset <= record.offset < end:
                    yield record
