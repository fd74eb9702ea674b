"""Reads a snapshot's records from the log: the visible offsets, and batches with their records."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, TypeVar

from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.broker.views.running_view import RunningView
from duramen.doors.http.completions import call_back
from duramen.doors.http.snapshots.vectors import at_most, come_to
from duramen.doors.http.types.snapshots import SnapshotRecordsQuery
from duramen.keyed.kernel import Kernel
from duramen.keyed.native import kernel
from duramen.keyed.view import VisibleRecords, cut_bits, next_shown
from duramen.service.broker import Broker
from duramen.storage.log.log import Log
from duramen.storage.scan import read_slice
from duramen.storage.segment.reader import Blocked
from duramen.storage.store import Store

__all__ = [
    "ShownBatches",
    "ShownWindow",
    "check_still",
    "count_served",
    "next_of",
    "open_window",
    "read_shown",
    "run_job",
    "shown_batches",
]

_WINDOW: Final = 1 << 23  # offsets whose bits are worked out at once: 1 MiB of them
_VIEW_MS: Final = 5000
_READ_BYTES: Final = 1 << 20
_MOST_READ_BYTES: Final = 2 << 20
_MOST_READS: Final = 32  # of a page: then it ends with the records found so far

_T = TypeVar("_T")


class ShownWindow(NamedTuple):
    """The source of a page: the offsets `[offset, end)`, of which those in `visible` are shown."""

    view: RunningView
    visible: VisibleRecords
    offset: int
    end: int

    @property
    def log(self) -> Log:
        """The log of the records."""
        return self.view.partition.log


class ShownBatches(NamedTuple):
    """Batches from `Extract` with the visible records of `[first, next_offset)`, which `bits` mark.

    `bits` begin at the offset `base`.
    """

    batches: bytes
    first: int
    next_offset: int
    base: int
    bits: bytearray


async def open_window(broker: Broker, stream: Stream, query: SnapshotRecordsQuery) -> ShownWindow:
    """The source of the requested page. Raises SnapshotTooOld, SnapshotNotReached, SnapshotStartOver.

    Waits for a view that has not reached the snapshot yet.
    """
    view = broker.views.get(stream, query.partition)
    if view.bounds.position < query.at:
        await at_most(_VIEW_MS, come_to(view, query.at))
    offset = max(query.offset, view.partition.log.start_offset)
    first, end = 0, query.at
    if query.since is None:
        first = offset // _WINDOW * _WINDOW
        end = min(query.at, first + _WINDOW)
    visible: VisibleRecords = await call_back(lambda done: view.shown(query.at, query.since, first, end, done))
    return ShownWindow(view, visible, offset, min(end, query.end))


def next_of(query: SnapshotRecordsQuery, next_offset: int) -> int | None:
    """The offset at which reading continues; None if this was the last page."""
    return next_offset if next_offset < min(query.at, query.end) else None


async def shown_batches(store: Store, window: ShownWindow, max_bytes: int) -> ShownBatches:
    """About `max_bytes` of batches, at least one if any record is visible. Raises LogDamaged, StorageFailed …"""
    pieces, size = list[bytes](), 0
    offset = begun = min(next_shown(window.visible, window.offset), window.end)
    ahead = _ReadAhead(store, window)
    try:
        for _ in range(_MOST_READS):
            if offset >= window.end or size >= max_bytes:
                break
            data = await ahead.read(offset, more=2 * size < max_bytes)
            found, offset = await _shown_of(store, window, data, offset, max_bytes - size)
            pieces.append(found)
            size += len(found)
            offset = min(next_shown(window.visible, offset), window.end)
    finally:
        ahead.end()
    base = begun & ~7
    low = max(0, base - window.visible.base >> 3)
    base = max(base, window.visible.base)
    bits = bytearray(window.visible.bits[low : low + max(0, offset - base + 7 >> 3)])
    first = max(begun, base)
    cut_bits(bits, base, first, min(offset, base + 8 * len(bits)))
    return ShownBatches(b"".join(pieces), first, max(first, offset), base, bits)


async def read_shown(store: Store, window: ShownWindow, offset: int, max_bytes: int) -> tuple[bytes, int]:
    """Batches from `Extract` with the visible records from `offset` on, and the offset to continue at."""
    data, _ = await _read_data(store, window.log, offset, _READ_BYTES)
    return await _shown_of(store, window, data, offset, max_bytes)


async def _shown_of(
    store: Store, window: ShownWindow, data: bytes, offset: int, max_bytes: int
) -> tuple[bytes, int]:  # fmt: skip
    if not data:
        return b"", window.end
    return await run_job(store, partial(_extracted, kernel(), data, offset, window, max_bytes))


def _extracted(loops: Kernel, data: bytes, offset: int, window: ShownWindow, max_bytes: int) -> tuple[bytes, int]:
    base, bits = window.visible
    found = loops.extract(data, 0, offset, window.end, memoryview(bits).toreadonly(), base, max_bytes)
    # A visible record may be missing: a tombstone that compaction has dropped.
    return found.batches, max(found.next_offset, offset + 1 if found.position == len(data) else offset)


def check_still(view: RunningView, query: SnapshotRecordsQuery) -> None:
    """A read is complete only if compaction was held back until its end."""
    bounds = view.bounds
    if query.since is None:
        bounds.check_snapshot(query.at)
    else:
        bounds.check_changes(query.since, query.at)


def count_served(partition: Partition, records: int, size: int) -> None:
    """Count what a response contains."""
    partition.stream.records_out.value += records
    partition.stream.bytes_out.value += size


class _ReadAhead:
    """Reads the next batches while the previous ones are decoded."""

    def __init__(self, store: Store, window: ShownWindow) -> None:
        self._store = store
        self._window = window
        self._size = _READ_BYTES
        self._offset = -1
        self._reading: asyncio.Task[tuple[bytes, int]] | None = None

    async def read(self, offset: int, *, more: bool) -> bytes:
        """Whole batches from the one that contains `offset` on; with `more` the next ones are read ahead."""
        if self._offset != offset:
            self.end()
        reading, self._reading, self._offset = self._reading, None, -1
        if reading is None:
            data, following = await _read_data(self._store, self._window.log, offset, self._size)
        else:
            data, following = await reading
        self._size = min(2 * self._size, _MOST_READ_BYTES)
        known, following = following >= 0, min(next_shown(self._window.visible, following), self._window.end)
        if more and known and data and following < self._window.end:
            self._offset = following
            self._reading = asyncio.ensure_future(
                _read_data(self._store, self._window.log, following, self._size)
            )  # fmt: skip
        return data

    def end(self) -> None:
        """Discard the prefetched pages."""
        if self._reading is not None:
            self._reading.cancel()
            self._reading.add_done_callback(_look)
            self._reading = None


def _look(reading: "asyncio.Task[tuple[bytes, int]]") -> None:
    if not reading.cancelled():
        reading.exception()  # no other request waits


async def _read_data(store: Store, log: Log, offset: int, size: int) -> tuple[bytes, int]:
    """Whole batches from the one that contains `offset` on, and the offset after them, -1 if it is unknown.

    Raises LogDamaged, OffsetOutOfRange, StorageFailed.
    """
    while True:
        plan = log.plan_read(offset, size)
        if plan is None:
            return b"", offset
        if not isinstance(plan, Blocked):
            break
        await _unblocked(store, plan)
    slice_ = plan
    following = slice_.next_offset
    return await call_back(lambda done: read_slice(store, slice_, done)), following


async def _unblocked(store: Store, blocked: Blocked) -> None:
    def ask(done: Callable[[bool | BaseException], None]) -> None:
        store.unblock(blocked, lambda error: done(True if error is None else error))

    await call_back(ask)


async def run_job(store: Store, job: Callable[[], _T]) -> _T:
    """The result of a job that runs off the event loop."""
    return await call_back(lambda done: store.run(job, done))
