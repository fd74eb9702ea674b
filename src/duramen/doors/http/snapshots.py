"""Snapshots of keyed streams: which there are, and their records page by page."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple, TypeVar

from duramen.base import errors
from duramen.base.errors import StorageFailed
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.broker.views.running import RunningView
from duramen.codec.batch import DecodedRecord, batches, records
from duramen.doors.http.completions import unless_gone
from duramen.doors.http.reads import record_info, record_size
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic
from duramen.doors.http.types.snapshots import (
    SnapshotInfo,
    SnapshotPage,
    SnapshotPartition,
    SnapshotQuery,
    SnapshotRecordsQuery,
)
from duramen.doors.http.types.types import RecordInfo
from duramen.keyed.kernel import Kernel
from duramen.keyed.native import kernel
from duramen.keyed.view import VisibleRecords
from duramen.service.authorize import Operation
from duramen.service.broker import Broker
from duramen.storage.log.log import Log
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = ["ROUTES"]

_WINDOW: Final = 1 << 23  # offsets whose bits are worked out at once: 1 MiB of them
_READ_BYTES: Final = 1 << 20
_MOST_READS: Final = 16  # of a page: then what was found is answered
_STEP: Final = 1 << 16

_T = TypeVar("_T")


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


async def _open(call: Call, query: SnapshotQuery) -> SnapshotInfo:
    stream, views = call.topic, call.broker.views
    running = [views.get(stream, partition.index) for partition in stream.partitions]

    async def reach() -> None:
        await asyncio.gather(*(_reached(view) for view in running))

    try:
        async with asyncio.timeout(query.max_wait_ms / 1000):
            await unless_gone(call.request, reach())
    except TimeoutError:
        pass  # the newest that there is
    return SnapshotInfo(stream.name, [_place(view) for view in running])


async def _reached(view: RunningView) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    forget = view.when_reached(
        view.partition.log.high_watermark, lambda: None if future.done() else future.set_result(None)
    )
    try:
        await future
    finally:
        forget()


def _place(view: RunningView) -> SnapshotPartition:
    bounds, log = view.bounds, view.partition.log
    bounds.check_snapshot(max(bounds.position, bounds.s0))
    return SnapshotPartition(view.partition.index, bounds.position, bounds.s0, bounds.horizon, log.high_watermark)


async def _read(call: Call, query: SnapshotRecordsQuery) -> SnapshotPage:
    return await unless_gone(call.request, _page(call.broker, call.topic, query))


async def _page(broker: Broker, stream: Stream, query: SnapshotRecordsQuery) -> SnapshotPage:
    view = broker.views.get(stream, query.partition)
    log = view.partition.log
    offset = max(query.offset, log.start_offset)
    first, end = 0, query.at
    if query.since is None:
        first = offset // _WINDOW * _WINDOW
        end = min(query.at, first + _WINDOW)
    visible: VisibleRecords = await _called(lambda done: view.shown(query.at, query.since, first, end, done))
    found: list[RecordInfo] = []
    size = 0
    for _ in range(_MOST_READS):
        offset = min(_next_visible(visible, offset), end)
        if offset >= end:
            break
        wanted = _Wanted(
            stream.name, query.partition, visible, end, query.limit - len(found), query.max_bytes - size,
            stream.decoded_limit_bytes,
        )  # fmt: skip
        data = await _data(broker.store, log, offset)
        more = await _job(broker.store, partial(_decoded, kernel(), data, offset, wanted, alone=not found))
        found += more.records
        size += more.size
        offset = more.next_offset
        if more.full or len(found) >= query.limit:
            break
    _check_still(view, query)
    _count(view.partition, found, size)
    return SnapshotPage(found, offset if offset < query.at else None)


def _check_still(view: RunningView, query: SnapshotRecordsQuery) -> None:
    """What was read is whole only where compaction was still held back from it."""
    bounds = view.bounds
    if query.since is None:
        bounds.check_snapshot(query.at)
    else:
        bounds.check_changes(query.since, query.at)


def _count(partition: Partition, found: list[RecordInfo], size: int) -> None:
    partition.stream.records_out.value += len(found)
    partition.stream.bytes_out.value += size


def _next_visible(visible: VisibleRecords, offset: int) -> int:
    """The first offset from this one on that is shown; one behind all of them where none is."""
    bits, place = visible.bits, max(0, offset - visible.base)
    at = place >> 3
    if at < len(bits) and bits[at] >> (place & 7):
        byte = bits[at] >> (place & 7)
        return visible.base + place + (byte & -byte).bit_length() - 1
    at += 1
    while at < len(bits):
        step = bits[at : at + _STEP]
        skipped = len(step) - len(step.lstrip(b"\0"))
        if skipped < len(step):
            byte = step[skipped]
            return visible.base + 8 * (at + skipped) + (byte & -byte).bit_length() - 1
        at += len(step)
    return visible.base + 8 * len(bits)


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


async def _data(store: Store, log: Log, offset: int) -> bytes:
    while True:
        plan = log.plan_read(offset, _READ_BYTES)
        if plan is None:
            return b""
        if not isinstance(plan, Blocked):
            break
        await _unblocked(store, plan)
    slice_ = plan
    return await _called(lambda done: read_slice(store, slice_, done))


async def _unblocked(store: Store, blocked: Blocked) -> None:
    def ask(done: Callable[[bool | BaseException], None]) -> None:
        store.unblock(blocked, lambda error: done(True if error is None else error))

    await _called(ask)


async def _job(store: Store, job: Callable[[], _T]) -> _T:
    return await _called(lambda done: store.run(job, done))


async def _called(ask: Callable[[Callable[[_T | BaseException], None]], object]) -> _T:
    """What a callback is told. Raises the error that it is told."""
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

    def done(result: _T | BaseException) -> None:
        if future.done():
            return
        if isinstance(result, OSError):
            future.set_exception(StorageFailed(f"reading failed: {result}"))
        elif isinstance(result, BaseException):
            future.set_exception(result)
        else:
            future.set_result(result)

    ask(done)
    return await future


_SNAPSHOTS: Final = (
    errors.StreamNotFound, errors.StreamNotKeyed, errors.SnapshotTooOld, errors.SnapshotNotReached, errors.NodeStopping,
)  # fmt: skip

ROUTES = (
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot", _open, on_topic(Operation.READ),
        "The newest snapshot of a keyed stream, once it has what was committed before",
        _SNAPSHOTS,
    ),
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot/records", _read, on_topic(Operation.READ),
        "Records of a snapshot of a keyed stream, or of what became visible since one",
        (
            *_SNAPSHOTS, errors.SnapshotStartOver, errors.LogDamaged, errors.BatchCorrupt, errors.StorageFailed,
            errors.OffsetOutOfRange,
        ),
    ),
)  # fmt: skip
