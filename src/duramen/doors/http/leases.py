"""Leases on snapshots of keyed streams: open, list, show, renew, end."""

import asyncio
import base64
from collections.abc import Sequence
from functools import partial
from typing import Final

from duramen.base import errors
from duramen.broker.streams import Stream
from duramen.coordinators.lease.requests import LeasesFound
from duramen.doors.http.completions import call_back
from duramen.doors.http.serving.routes import Call, HttpRoute, on_topic
from duramen.doors.http.snapshots.forwarding import FindRequest, find, find_together, held
from duramen.doors.http.snapshots.vectors import (
    SNAPSHOT_ERRORS,
    check_keyed,
    newest,
    parse_places,
    parse_vector,
    views_of,
)
from duramen.doors.http.types.snapshots import (
    LeasedPartition,
    LeaseInfo,
    LeaseList,
    LeaseQuery,
    SnapshotLeaseRequest,
    SnapshotPartition,
)
from duramen.keyed.leases import SnapshotLease
from duramen.service.authorize import Operation

__all__ = ["ROUTES"]

_ID_BYTES: Final = 10
_WAIT_MS: Final = 5000


async def _open(call: Call, body: SnapshotLeaseRequest) -> LeaseInfo:
    check_keyed(call.topic)
    lease = await (_hold_here(call, body) if call.broker.alone else _hold_everywhere(call, body))
    call.status = 201
    return (await _infos(call, [lease]))[0]


def _new_id(call: Call) -> str:
    return base64.b32encode(call.broker.random_bytes(_ID_BYTES)).decode().lower()


async def _hold_here(call: Call, body: SnapshotLeaseRequest) -> SnapshotLease:
    stream, running = call.topic, views_of(call, call.topic)
    positions = parse_vector(body.at, stream) if body.at else None
    if positions is None:
        positions = dict(enumerate(await newest(call.broker, running, _WAIT_MS)))
    release = call.broker.views.hold(stream, positions)
    try:
        await asyncio.gather(*(call_back(partial(running[index].check, at)) for index, at in positions.items()))
        for index, position in positions.items():
            running[index].bounds.check_snapshot(position)
        return await call_back(partial(call.broker.leases.open, stream, _new_id(call), positions))
    finally:
        release()


async def _hold_everywhere(call: Call, body: SnapshotLeaseRequest) -> SnapshotLease:
    """On a cluster each leader reports its part of the snapshot and holds it before the lease is answered."""
    stream = call.topic
    if body.at:
        found: Sequence[SnapshotPartition] = await asyncio.gather(*(
            find(call, stream.partition(index), FindRequest(at, epoch, max_wait_ms=_WAIT_MS))
            for index, (at, epoch) in parse_places(body.at, stream).items()
        ))  # fmt: skip
    else:
        found = await find_together(call, stream.partitions, _WAIT_MS)
    positions, epochs = {one.partition: one.at for one in found}, {one.partition: one.epoch for one in found}
    return await call_back(partial(call.broker.leases.open, stream, _new_id(call), positions, epochs=epochs))


async def _list(call: Call, query: LeaseQuery) -> LeaseList:
    check_keyed(call.topic)
    opened, _, lease_id = query.after.partition("-")
    if query.after and not opened.isdigit():
        raise errors.RequestInvalid("the query parameter after is the `next` of an answer")
    after = (int(opened), lease_id) if query.after else (-1, "")
    found: LeasesFound = await call_back(partial(call.broker.leases.page, call.topic, after, query.limit))
    leases = [row.lease() for row in found.leases]
    last = f"{leases[-1].opened_ms}-{leases[-1].lease_id}" if found.more else None
    return LeaseList(await _infos(call, leases), last)


async def _show(call: Call) -> LeaseInfo:
    check_keyed(call.topic)
    found: SnapshotLease = await call_back(partial(call.broker.leases.find, call.topic, call.path["lease"]))
    return (await _infos(call, [found]))[0]


async def _renew(call: Call) -> LeaseInfo:
    check_keyed(call.topic)
    renewed: SnapshotLease = await call_back(partial(call.broker.leases.renew, call.topic, call.path["lease"]))
    return (await _infos(call, [renewed]))[0]


async def _close(call: Call) -> None:
    check_keyed(call.topic)
    await call_back(partial(call.broker.leases.close, call.topic, call.path["lease"]))


async def _infos(call: Call, leases: Sequence[SnapshotLease]) -> list[LeaseInfo]:
    stream = call.topic
    held_bytes = dict.fromkeys((lease.lease_id for lease in leases), 0)
    for partition in stream.partitions:
        some = [lease for lease in leases if partition.index in lease.positions]
        if some:
            sizes = await held(call, partition, [lease.positions[partition.index] for lease in some])
            for lease, size in zip(some, sizes, strict=True):
                held_bytes[lease.lease_id] += size
    return [_info(stream, lease, held_bytes[lease.lease_id]) for lease in leases]


def _info(stream: Stream, lease: SnapshotLease, held_bytes: int) -> LeaseInfo:
    partitions = [LeasedPartition(index, position) for index, position in sorted(lease.positions.items())]
    lease_ms = stream.config.integer("snapshot.lease.ms")
    return LeaseInfo(
        lease.lease_id, stream.name, partitions, lease.opened_ms, lease.expires_ms, lease_ms, held_bytes
    )  # fmt: skip


_LEASES: Final = (*SNAPSHOT_ERRORS, errors.CoordinatorLoading, errors.NotCoordinator)
_ONE: Final = (*_LEASES, errors.SnapshotLeaseNotFound, errors.SnapshotLeaseExpired)
_WRITING: Final = (
    errors.NodeBusy, errors.NotEnoughReplicasAfterAppend, errors.StorageFull,
    errors.StorageFailed,
)  # fmt: skip

ROUTES = (
    HttpRoute(
        "POST", "/v1/streams/{name}/snapshot/leases", _open, on_topic(Operation.READ),
        "Hold the newest snapshot of a keyed stream, or the one at given offsets, open for `snapshot.lease.ms`",
        (*_LEASES, *_WRITING), (201,),
    ),
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot/leases", _list, on_topic(Operation.READ),
        "The leases that hold snapshots of a keyed stream open, page by page", _LEASES,
    ),
    HttpRoute(
        "GET", "/v1/streams/{name}/snapshot/leases/{lease}", _show, on_topic(Operation.READ),
        "One lease: its snapshot, when it expires, and how many bytes it keeps from compaction", _ONE,
    ),
    HttpRoute(
        "POST", "/v1/streams/{name}/snapshot/leases/{lease}", _renew, on_topic(Operation.READ),
        "Renew a lease: it holds its snapshot open for `snapshot.lease.ms` from now on", (*_ONE, *_WRITING),
    ),
    HttpRoute(
        "DELETE", "/v1/streams/{name}/snapshot/leases/{lease}", _close, on_topic(Operation.READ),
        "End a lease", (*_ONE, *_WRITING), (204,),
    ),
)  # fmt: skip
