"""Snapshots of keyed streams: find them, and read their records page by page."""

import asyncio
from collections.abc import Sequence
from functools import partial
from itertools import chain, islice
from typing import Final

import msgspec
from starlette.responses import Response

from duramen.base import errors
from duramen.broker.views.history import epoch_before
from duramen.broker.views.running_view import RunningView
from duramen.doors.http.completions import unless_gone
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic, topics_named
from duramen.doors.http.snapshots.formats import MEDIA_TYPES, PageFormat, answer_in, page_of
from duramen.doors.http.snapshots.forwarding import FindRequest, find, find_together, is_plain
from duramen.doors.http.snapshots.reads import next_of
from duramen.doors.http.snapshots.vectors import (
    SNAPSHOT_ERRORS,
    any_newer,
    at_most,
    check_keyed,
    located,
    newest,
    parse_places,
    parse_vector,
    views_of,
)
from duramen.doors.http.types.snapshots import (
    SnapshotInfo,
    SnapshotInfos,
    SnapshotPage,
    SnapshotPartition,
    SnapshotQuery,
    SnapshotRecordsQuery,
    SnapshotsQuery,
)
from duramen.service.admission import AdmissionRules
from duramen.service.authorize import Operation

__all__ = ["ROUTES"]

_MOST_STREAMS: Final = 100
_NONE: Final = (-1, -1)


async def _open(call: Call, query: SnapshotQuery) -> SnapshotInfo:
    stream = call.topic
    check_keyed(stream)
    if not (call.broker.alone or is_plain(stream)):
        return SnapshotInfo(stream.name, await unless_gone(call.request, _open_everywhere(call, query)))
    running = views_of(call, stream)
    since = parse_vector(query.newer_than, stream) if query.newer_than else {}

    async def reach() -> list[int]:
        ends = [view.partition.log.high_watermark for view in running]
        if all(end <= since.get(index, -1) for index, end in enumerate(ends)):
            await at_most(query.newer_wait_ms, any_newer(running, since))
        return await newest(call.broker, running, query.max_wait_ms)

    vector = await unless_gone(call.request, reach())
    return SnapshotInfo(stream.name, list(map(_place, views_of(call, stream), vector)))


def _names(call: Call) -> list[str]:
    names = call.request.query_params.get("streams", "").split(",")
    return list(dict.fromkeys(name.strip() for name in names if name.strip()))


async def _open_together(call: Call, query: SnapshotsQuery) -> SnapshotInfos:
    names = _names(call)
    if not 0 < len(names) <= _MOST_STREAMS:
        raise errors.RequestInvalid(f"the query parameter streams names 1 to {_MOST_STREAMS} streams")
    streams = [call.admitted.topics.get(name) for name in names]
    for stream in streams:
        check_keyed(stream)
    if not call.broker.alone:
        partitions = [partition for stream in streams for partition in stream.partitions]
        found = iter(await unless_gone(call.request, find_together(call, partitions, query.max_wait_ms)))
        return SnapshotInfos(
            [SnapshotInfo(stream.name, list(islice(found, len(stream.partitions)))) for stream in streams]
        )
    running = [views_of(call, stream) for stream in streams]
    vector = await unless_gone(call.request, newest(call.broker, list(chain(*running)), query.max_wait_ms))
    for stream in streams:
        views_of(call, stream)  # all are there still
    at = iter(vector)
    return SnapshotInfos(
        [
            SnapshotInfo(stream.name, [_place(view, next(at)) for view in views])
            for stream, views in zip(streams, running, strict=True)
        ]
    )


async def _open_everywhere(call: Call, query: SnapshotQuery) -> list[SnapshotPartition]:
    """As above, for partitions that other nodes may lead."""
    partitions = call.topic.partitions
    since = parse_places(query.newer_than, call.topic) if query.newer_than else {}
    if since:
        places = [since.get(partition.index, _NONE) for partition in partitions]
        requests = [FindRequest(newer_than=at, newer_epoch=epoch) for at, epoch in places]
        found = await asyncio.gather(*map(partial(find, call), partitions, requests))
        if query.newer_wait_ms and all(one.high_watermark <= since.get(one.partition, _NONE)[0] for one in found):
            waits = {"newer_wait_ms": query.newer_wait_ms}
            await _any_newer(call, [msgspec.structs.replace(request, **waits) for request in requests])
    return await find_together(call, partitions, query.max_wait_ms)


async def _any_newer(call: Call, requests: Sequence[FindRequest]) -> None:
    """Wait until a partition has a newer record, or until the timeout."""
    waiting = [
        asyncio.ensure_future(find(call, partition, request))
        for partition, request in zip(call.topic.partitions, requests, strict=True)
    ]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def _place(view: RunningView, at: int) -> SnapshotPartition:
    bounds, partition = view.bounds, view.partition
    bounds.check_snapshot(max(bounds.position, bounds.s0))
    end, epoch = partition.log.high_watermark, epoch_before(partition, at)
    return SnapshotPartition(partition.index, at, bounds.s0, bounds.horizon, end, epoch, view.age_ms)


async def _read(call: Call, query: SnapshotRecordsQuery) -> SnapshotPage | Response:
    check_keyed(call.topic)
    found = await located(call.broker, call.topic, query)
    wanted = PageFormat.of(call.request.headers.get("accept", ""))
    if wanted is not PageFormat.JSON:
        return await unless_gone(call.request, answer_in(wanted, call, found))
    page = await unless_gone(call.request, page_of(call, found))
    return SnapshotPage(page.records, next_of(found.query, page.next_offset))


ROUTES = (
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot", _open, on_topic(Operation.READ),
        "The newest snapshot of a keyed stream; it includes everything committed before the request",
        SNAPSHOT_ERRORS,
    ),
    HttpRoute(
        "GET", "/v1/snapshot", _open_together, AdmissionRules(topics_named(Operation.READ, _names)),
        "The newest snapshot of several keyed streams; it has each transaction entirely or not at all",
        SNAPSHOT_ERRORS,
    ),
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot/records", _read, on_topic(Operation.READ),
        "Records of a snapshot of a keyed stream, or only those that became visible since an earlier snapshot",
        (
            *SNAPSHOT_ERRORS, errors.SnapshotStartOver, errors.LogDamaged, errors.BatchCorrupt, errors.StorageFailed,
            errors.OffsetOutOfRange, errors.AnswerTypeUnavailable, errors.SnapshotLeaseNotFound,
            errors.SnapshotLeaseExpired, errors.CoordinatorLoading,
        ),
        formats=MEDIA_TYPES,
    ),
)  # fmt: skip
