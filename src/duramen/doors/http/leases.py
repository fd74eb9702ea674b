"""Leases on snapshots of keyed streams: opened, listed, shown, renewed and closed."""

import asyncio
import base64
from bisect import bisect_right
from collections.abc import Sequence
from functools import partial
from typing import Final

from duramen.base import errors
from duramen.broker.streams import Stream
from duramen.broker.views.holding import held_bytes
from duramen.doors.completion import completion
from duramen.doors.http.completions import call_back
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic
from duramen.doors.http.snapshot_vectors import SNAPSHOT_ERRORS, newest, parse_vector, views_of
from duramen.doors.http.types.snapshots import LeasedPartition, LeaseInfo, LeaseList, LeaseQuery, LeaseWish
from duramen.keyed.leases import Lease
from duramen.service.authorize import Operation

__all__ = ["ROUTES"]

_ID_BYTES: Final = 10
_WAIT_MS: Final = 5000


async def _open(call: Call, body: LeaseWish) -> LeaseInfo:
    stream, running = call.topic, views_of(call, call.topic)
    positions = parse_vector(body.at, stream) if body.at else None
    if positions is None:
        positions = dict(enumerate(await newest(call.broker, running, _WAIT_MS)))
    release = call.broker.views.hold(stream, positions)
    try:
        await asyncio.gather(*(call_back(partial(running[index].check, at)) for index, at in positions.items()))
        for index, position in positions.items():
            running[index].bounds.check_snapshot(position)
        lease_id = base64.b32encode(call.broker.random_bytes(_ID_BYTES)).decode().lower()
        lease: Lease = await call_back(partial(call.broker.leases.open, stream, lease_id, positions))
    finally:
        release()
    call.status = 201
    return (await _infos(call, [lease]))[0]


async def _list(call: Call, query: LeaseQuery) -> LeaseList:
    stream = call.topic
    views_of(call, call.topic)
    await completion(call.broker.leases.when_known)
    found = call.broker.leases.all(stream)
    places = sorted((lease.opened_ms, lease.lease_id, lease) for lease in found)
    opened, _, lease_id = query.after.partition("-")
    if query.after and not opened.isdigit():
        raise errors.RequestInvalid("the query parameter after is the `next` of an answer")
    first = bisect_right(places, (int(opened), lease_id), key=lambda place: place[:2]) if query.after else 0
    page = places[first : first + query.limit]
    more = len(places) > first + len(page)
    return LeaseList(
        await _infos(call, [lease for _, _, lease in page]), f"{page[-1][0]}-{page[-1][1]}" if more else None
    )


async def _show(call: Call) -> LeaseInfo:
    views_of(call, call.topic)
    await completion(call.broker.leases.when_known)
    return (await _infos(call, [call.broker.leases.get(call.topic, call.path["lease"])]))[0]


async def _renew(call: Call) -> LeaseInfo:
    views_of(call, call.topic)
    renewed: Lease = await call_back(partial(call.broker.leases.renew, call.topic, call.path["lease"]))
    return (await _infos(call, [renewed]))[0]


async def _close(call: Call) -> None:
    views_of(call, call.topic)
    await call_back(partial(call.broker.leases.close, call.topic, call.path["lease"]))


async def _infos(call: Call, leases: Sequence[Lease]) -> list[LeaseInfo]:
    stream = call.topic
    held = dict.fromkeys((lease.lease_id for lease in leases), 0)
    for index, view in enumerate(views_of(call, call.topic)):
        some = [lease for lease in leases if index in lease.positions]
        if some:
            positions = [lease.positions[index] for lease in some]
            sizes = await call_back(partial(held_bytes, view, positions))
            for lease, size in zip(some, sizes, strict=True):
                held[lease.lease_id] += size
    return [_info(stream, lease, held[lease.lease_id]) for lease in leases]


def _info(stream: Stream, lease: Lease, held_bytes: int) -> LeaseInfo:
    partitions = [LeasedPartition(index, position) for index, position in sorted(lease.positions.items())]
    lease_ms = stream.config.integer("snapshot.lease.ms")
    return LeaseInfo(
        lease.lease_id, stream.name, partitions, lease.opened_ms, lease.expires_ms, lease_ms, held_bytes
    )  # fmt: skip


_LEASES: Final = (*SNAPSHOT_ERRORS, errors.CoordinatorLoading)
_ONE: Final = (*_LEASES, errors.SnapshotLeaseNotFound, errors.SnapshotLeaseExpired)
_WRITING: Final = (
    errors.NotCoordinator, errors.NodeBusy, errors.NotEnoughReplicasAfterAppend, errors.StorageFull,
    errors.StorageFailed,
)  # fmt: skip

ROUTES = (
    HttpRoute(
        "POST", "/v1/streams/{name}/snapshot/leases", _open, on_topic(Operation.READ),
        "Hold a snapshot of a keyed stream open, the newest one or that at a vector, for `snapshot.lease.ms`",
        (*_LEASES, *_WRITING), (201,),
    ),
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot/leases", _list, on_topic(Operation.READ),
        "The leases that hold snapshots of a keyed stream open, page by page", _LEASES,
    ),
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot/leases/{lease}", _show, on_topic(Operation.READ),
        "One lease: where its snapshot is, until when it is held, and how many bytes that keeps", _ONE,
    ),
    HttpRoute(
        "POST", "/v1/streams/{name}/snapshot/leases/{lease}", _renew, on_topic(Operation.READ),
        "Hold the snapshot of a lease open for `snapshot.lease.ms` from now on", (*_ONE, *_WRITING),
    ),
    HttpRoute(
        "DELETE", "/v1/streams/{name}/snapshot/leases/{lease}", _close, on_topic(Operation.READ),
        "Hold the snapshot of a lease open no longer", (*_ONE, *_WRITING), (204,),
    ),
)  # fmt: skip
