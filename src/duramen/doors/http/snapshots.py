"""Snapshots of keyed streams: which there are, and their records page by page."""

import asyncio
from typing import Final

from starlette.responses import Response

from duramen.base import errors
from duramen.broker.streams import Stream
from duramen.broker.views.running import RunningView
from duramen.doors.http.completions import unless_gone
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic
from duramen.doors.http.snapshot_formats import MEDIA_TYPES, PageFormat, answer_in
from duramen.doors.http.snapshot_reads import check_still, count_served, next_of, open_window
from duramen.doors.http.snapshot_records import record_page
from duramen.doors.http.types.snapshots import (
    SnapshotInfo,
    SnapshotPage,
    SnapshotPartition,
    SnapshotQuery,
    SnapshotRecordsQuery,
)
from duramen.service.authorize import Operation
from duramen.service.broker import Broker

__all__ = ["ROUTES"]


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


async def _read(call: Call, query: SnapshotRecordsQuery) -> SnapshotPage | Response:
    wanted = PageFormat.of(call.request.headers.get("accept", ""))
    if wanted is not PageFormat.JSON:
        return await unless_gone(call.request, answer_in(wanted, call.broker, call.topic, query))
    return await unless_gone(call.request, _page(call.broker, call.topic, query))


async def _page(broker: Broker, stream: Stream, query: SnapshotRecordsQuery) -> SnapshotPage:
    window = await open_window(broker, stream, query)
    page = await record_page(broker, stream, window, query)
    check_still(window.view, query)
    count_served(window.view.partition, len(page.records), page.size)
    return SnapshotPage(page.records, next_of(query, page.next_offset))


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
            errors.OffsetOutOfRange, errors.AnswerTypeUnavailable,
        ),
        formats=MEDIA_TYPES,
    ),
)  # fmt: skip
