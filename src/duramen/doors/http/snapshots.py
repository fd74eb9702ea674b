"""Snapshots of keyed streams: which there are, and their records page by page."""

from starlette.responses import Response

from duramen.base import errors
from duramen.broker.streams import Stream
from duramen.broker.views.history import epoch_before
from duramen.broker.views.running import RunningView
from duramen.doors.http.completions import unless_gone
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic
from duramen.doors.http.snapshot_formats import MEDIA_TYPES, PageFormat, answer_in
from duramen.doors.http.snapshot_reads import check_still, count_served, next_of, open_window
from duramen.doors.http.snapshot_records import record_page
from duramen.doors.http.snapshot_vectors import (
    SNAPSHOT_ERRORS,
    any_newer,
    at_most,
    located,
    parse_vector,
    reached,
    views_of,
)
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
    stream = call.topic
    running = views_of(call)
    since = parse_vector(query.newer_than, stream) if query.newer_than else {}

    async def reach() -> None:
        ends = [view.partition.log.high_watermark for view in running]
        if all(end <= since.get(index, -1) for index, end in enumerate(ends)):
            await at_most(query.newer_wait_ms, any_newer(running, since))
        await at_most(query.max_wait_ms, reached(running))  # then the newest that there is

    await unless_gone(call.request, reach())
    return SnapshotInfo(stream.name, [_place(view) for view in views_of(call)])


def _place(view: RunningView) -> SnapshotPartition:
    bounds, partition = view.bounds, view.partition
    bounds.check_snapshot(max(bounds.position, bounds.s0))
    end, epoch = partition.log.high_watermark, epoch_before(partition, bounds.position)
    return SnapshotPartition(partition.index, bounds.position, bounds.s0, bounds.horizon, end, epoch)


async def _read(call: Call, query: SnapshotRecordsQuery) -> SnapshotPage | Response:
    query = await located(call.broker, call.topic, query)
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


ROUTES = (
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot", _open, on_topic(Operation.READ),
        "The newest snapshot of a keyed stream, once it has what was committed before",
        SNAPSHOT_ERRORS,
    ),
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot/records", _read, on_topic(Operation.READ),
        "Records of a snapshot of a keyed stream, or of what became visible since one",
        (
            *SNAPSHOT_ERRORS, errors.SnapshotStartOver, errors.LogDamaged, errors.BatchCorrupt, errors.StorageFailed,
            errors.OffsetOutOfRange, errors.AnswerTypeUnavailable, errors.SnapshotLeaseNotFound,
            errors.SnapshotLeaseExpired, errors.CoordinatorLoading,
        ),
        formats=MEDIA_TYPES,
    ),
)  # fmt: skip
