"""Snapshots as requests name them, by vectors and leases; and waiting until views have reached them."""

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec

from duramen.base import errors
from duramen.base.errors import RequestInvalid, SnapshotNotReached, StreamNotFound, StreamNotKeyed
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.broker.views.history import check_history
from duramen.broker.views.running_view import RunningView
from duramen.doors.http.completions import call_back
from duramen.doors.http.serving.routes import Call
from duramen.doors.http.types.snapshots import SnapshotRecordsQuery
from duramen.keyed.leases import SnapshotLease
from duramen.service.broker import Broker

__all__ = [
    "SNAPSHOT_ERRORS",
    "LocatedQuery",
    "any_newer",
    "at_most",
    "check_keyed",
    "check_place",
    "check_query",
    "come_to",
    "located",
    "newest",
    "parse_places",
    "parse_vector",
    "views_of",
]

_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,19})(?:@([0-9]{1,9}))?")
_SHOWN: Final = 40  # the length to which errors repeat invalid input

SNAPSHOT_ERRORS: Final = (
    errors.StreamNotFound, errors.StreamNotKeyed, errors.SnapshotTooOld, errors.SnapshotNotReached, errors.SnapshotCut,
    errors.NodeStopping, errors.NotLeader,
)  # fmt: skip
"""The errors of all requests about snapshots."""


def check_keyed(stream: Stream) -> None:
    """Raise StreamNotFound or StreamNotKeyed."""
    if stream.deleted:
        raise StreamNotFound(f"there is no stream {stream.name}")
    if not stream.keyed:
        raise StreamNotKeyed(f"stream {stream.name} is not keyed")


def views_of(call: Call, stream: Stream) -> list[RunningView]:
    """The views of a stream. Raises StreamNotFound, StreamNotKeyed, NodeStopping …"""
    check_keyed(stream)
    return [call.broker.views.get(stream, partition.index) for partition in stream.partitions]


def parse_places(text: str, stream: Stream) -> dict[int, tuple[int, int]]:
    """Parse PARTITION:OFFSET or PARTITION:OFFSET@EPOCH, comma-separated; the epoch defaults to -1.

    Raises RequestInvalid, StreamNotFound.
    """
    found = dict[int, tuple[int, int]]()
    for entry in text.split(","):
        match = _PLACE.fullmatch(entry.strip())
        if match is None or int(match[1]) in found or int(match[2]) >= 1 << 63:
            raise RequestInvalid(f"a snapshot is a comma-separated list of PARTITION:OFFSET, not {text[:_SHOWN]}")
        found[stream.partition(int(match[1])).index] = int(match[2]), int(match[3] or -1)
    return found


def parse_vector(text: str, stream: Stream) -> dict[int, int]:
    """The offsets of a snapshot.

    Raises as `parse_places`, or SnapshotNotReached and SnapshotCut if it is no snapshot of this stream.
    """
    places = parse_places(text, stream)
    for index, (offset, epoch) in places.items():
        check_place(stream.partition(index), offset, epoch)
    return {index: offset for index, (offset, _) in places.items()}


def check_place(partition: Partition, offset: int, epoch: int) -> None:
    """Raise SnapshotNotReached or SnapshotCut if a snapshot does not belong to this partition."""
    _check_end(partition, offset)
    check_history(partition, offset, epoch)


def _check_end(partition: Partition, offset: int) -> None:
    """Raise SnapshotNotReached if the log has not reached the offset; then waiting makes no sense."""
    end = partition.log.end_offset
    if offset > end:
        raise SnapshotNotReached(
            f"partition {partition.index} of {partition.stream.name} ends at {end}, and the snapshot is at {offset}: "
            "it belongs to another stream, or to records that were lost or are not written yet; read the newest "
            "snapshot"
        )


class LocatedQuery(NamedTuple):
    """A query with `at`; `epoch` is the leader epoch of the record before it, -1 if unknown."""

    query: SnapshotRecordsQuery
    epoch: int


async def located(broker: Broker, stream: Stream, query: SnapshotRecordsQuery) -> LocatedQuery:
    """The query with the `at` of its lease. Raises RequestInvalid, SnapshotLeaseNotFound, SnapshotLeaseExpired …"""
    stream.partition(query.partition)
    epoch = -1
    if query.lease:
        if query.at >= 0:
            raise RequestInvalid("`lease` names the snapshot: omit `at`")
        lease: SnapshotLease = await call_back(partial(broker.leases.find, stream, query.lease))
        at = lease.positions.get(query.partition)
        if at is None:
            raise StreamNotFound(f"the snapshot of the lease {lease.lease_id} has no partition {query.partition}")
        query, epoch = msgspec.structs.replace(query, at=at, lease=""), lease.epochs.get(query.partition, -1)
    if query.at < 0:
        raise RequestInvalid("`at` is needed, the offset of the snapshot, or the `lease` that holds it open")
    return LocatedQuery(query, epoch)


def check_query(partition: Partition, located_query: LocatedQuery) -> None:
    """Raise SnapshotNotReached or SnapshotCut if the query's snapshot does not belong to this partition."""
    query, epoch = located_query
    check_place(partition, query.at, epoch)
    check_place(partition, query.since or 0, -1)


async def at_most(wait_ms: int, waiting: Coroutine[Any, Any, None]) -> None:
    """Bound the time of a wait."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_ms / 1000):
            await waiting


async def newest(broker: Broker, running: Sequence[RunningView], wait_ms: int) -> list[int]:
    """The newest snapshot of the partitions with everything committed by now, if the views reach it in time.

    It has each transaction entirely or not at all. Raises SnapshotNotReached.
    """
    aimed: list[int] | None = None

    async def reach() -> None:
        nonlocal aimed
        aimed = await _aimed(broker, running)
        # Those that lag by rounds are not waited for.
        await asyncio.gather(*(come_to(view, min(at, view.newest)) for view, at in zip(running, aimed, strict=True)))

    await at_most(wait_ms, reach())
    return broker.snapshot_vectors.newest(running, aimed)


async def _aimed(broker: Broker, running: Sequence[RunningView]) -> list[int]:
    future: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()

    def take(vector: list[int]) -> None:
        if not future.done():
            future.set_result(vector)

    forget = broker.snapshot_vectors.aim(running, take)
    try:
        return await future
    finally:
        forget()


async def any_newer(running: Sequence[RunningView], since: Mapping[int, int]) -> None:
    """Wait until a view has a record that is newer than the snapshot."""
    waiting = [asyncio.ensure_future(come_to(view, since.get(index, -1) + 1)) for index, view in enumerate(running)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


async def come_to(view: RunningView, position: int) -> None:
    """Wait until the view has applied everything below the position."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    forget = view.when_reached(position, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        forget()
