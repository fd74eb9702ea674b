"""A page of a snapshot's records, one by one, as JSON has them."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from duramen.broker.streams import Stream
from duramen.codec.batch import DecodedRecord, batches, records
from duramen.doors.http.reads import record_info, record_size
from duramen.doors.http.snapshot_reads import ShownWindow, next_shown, read_data, run_job
from duramen.doors.http.types.snapshots import LARGEST_JSON_BYTES, SnapshotRecordsQuery
from duramen.doors.http.types.types import RecordInfo
from duramen.keyed.kernel import Kernel
from duramen.keyed.native import kernel
from duramen.keyed.view import VisibleRecords
from duramen.service.broker import Broker

__all__ = ["RecordsOfPage", "record_page"]

_MOST_READS = 16  # of a page: then what was found is answered


class RecordsOfPage(NamedTuple):
    """Records in the order of their offsets, their bytes, and the offset behind what was looked at."""

    records: list[RecordInfo]
    size: int
    next_offset: int


async def record_page(
    broker: Broker, stream: Stream, window: ShownWindow, query: SnapshotRecordsQuery
) -> RecordsOfPage:
    """As many records as the query allows. Raises LogDamaged, BatchCorrupt, StorageFailed."""
    found: list[RecordInfo] = []
    offset, size, most_bytes = window.offset, 0, min(query.max_bytes, LARGEST_JSON_BYTES)
    for _ in range(_MOST_READS):
        offset = min(next_shown(window.visible, offset), window.end)
        if offset >= window.end:
            break
        wanted = _Wanted(
            stream.name, query.partition, window.visible, window.end, query.limit - len(found), most_bytes - size,
            stream.decoded_limit_bytes,
        )  # fmt: skip
        data = await read_data(broker.store, window.log, offset)
        more = await run_job(broker.store, partial(_decoded, kernel(), data, offset, wanted, alone=not found))
        found += more.records
        size += more.size
        offset = more.next_offset
        if more.full or len(found) >= query.limit:
            break
    return RecordsOfPage(found, size, offset)


class _Wanted(NamedTuple):
    """Of `visible` the offsets `[first, end)`; as many records as a page takes."""

    topic: str
    partition: int
    visible: VisibleRecords
    end: int
    limit: int
    max_bytes: int
    decoded_limit_bytes: int


class _Found(NamedTuple):
    records: list[RecordInfo]
    size: int
    next_offset: int
    full: bool


def _decoded(loops: Kernel, data: bytes, offset: int, wanted: _Wanted, *, alone: bool) -> _Found:
    """The records from `offset` on that are shown; `alone`: the first one comes whatever its size."""
    found: list[RecordInfo] = []
    size, next_offset = 0, offset
    for record in _visible(loops, data, offset, wanted):
        more = record_size(record)
        crowded = size + more > wanted.max_bytes and not (alone and not found)
        if crowded or len(found) >= wanted.limit:
            return _Found(found, size, record.offset, full=True)
        size += more
        next_offset = record.offset + 1
        found.append(record_info(record, wanted.topic, wanted.partition))
    # What is shown may not be there: a tombstone that compaction has dropped.
    reached = max((head.next_offset for _, head in batches(data)), default=wanted.end)
    return _Found(found, size, max(next_offset, min(reached, wanted.end)), full=False)


def _visible(loops: Kernel, data: bytes, offset: int, wanted: _Wanted) -> Iterator[DecodedRecord]:
    """Of whole batches the records from `offset` on that are shown; batches without one are not decoded."""
    base, bits = wanted.visible
    view, position, begun = memoryview(data), 0, -1
    while begun < position < len(data):
        begun = position
        position, places = loops.filter(data, position, offset, wanted.end, bits, base)
        for first, last in places:
            for at, head in batches(view[first:last]):
                start = first + at
                for record in records(view[start : start + head.size], limit_bytes=wanted.decoded_limit_bytes):
                    place = record.offset - base
                    shown = 0 <= place < 8 * len(bits) and bits[place >> 3] >> (place & 7) & 1
                    if shown and offset <= record.offset < wanted.end:
                        yield record
