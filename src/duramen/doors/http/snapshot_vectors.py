"""Snapshots as requests name them: vectors and leases; and waiting until views have come there."""

import asyncio
import re
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from duramen.base import errors
from duramen.base.errors import RequestInvalid, SnapshotNotReached, StreamNotFound
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.broker.views.history import check_history
from duramen.broker.views.running import RunningView
from duramen.coordinators.lease.leases import position_of
from duramen.doors.completion import completion
from duramen.doors.http.serving.routes import Call
from duramen.doors.http.types.snapshots import SnapshotRecordsQuery
from duramen.service.broker import Broker

__all__ = [
    "SNAPSHOT_ERRORS",
    "any_newer",
    "at_most",
    "located",
    "newest",
    "parse_vector",
    "views_of",
]

_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,19})(?:@([0-9]{1,9}))?")
_SHOWN: Final = 40  # characters of what is wrong that an error repeats

SNAPSHOT_ERRORS: Final = (
    errors.StreamNotFound, errors.StreamNotKeyed, errors.SnapshotTooOld, errors.SnapshotNotReached, errors.SnapshotCut,
    errors.NodeStopping,
)  # fmt: skip
"""What all that is asked about snapshots may be refused with."""


def views_of(call: Call, stream: Stream) -> list[RunningView]:
    """The views of a stream. Raises StreamNotFound, StreamNotKeyed, NodeStopping …"""
    if stream.deleted:
        raise StreamNotFound(f"there is no stream {stream.name}")
    return [call.broker.views.get(stream, partition.index) for partition in stream.partitions]


def parse_vector(text: str, stream: Stream) -> dict[int, int]:
    """A snapshot of the stream as PARTITION:OFFSET or PARTITION:OFFSET@EPOCH with commas.

    Raises RequestInvalid, StreamNotFound, or SnapshotNotReached and SnapshotCut where it is none of this stream.
    """
    found = dict[int, int]()
    for entry in text.split(","):
        match = _PLACE.fullmatch(entry.strip())
        if match is None or int(match[1]) in found or int(match[2]) >= 1 << 63:
            raise RequestInvalid(f"a snapshot is PARTITION:OFFSET with commas between several, not {text[:_SHOWN]}")
        partition, offset = stream.partition(int(match[1])), int(match[2])
        _check_end(partition, offset)
        check_history(partition, offset, int(match[3] or -1))
        found[partition.index] = offset
    return found


def _check_end(partition: Partition, offset: int) -> None:
    """Raise SnapshotNotReached where the log has not come to the offset, for which nobody should wait then."""
    end = partition.log.end_offset
    if offset > end:
        raise SnapshotNotReached(
            f"partition {partition.index} of {partition.stream.name} ends at {end}, and the snapshot is at {offset}: it"
            " is of another stream, or of records that were lost; read a whole snapshot"
        )


async def located(broker: Broker, stream: Stream, query: SnapshotRecordsQuery) -> SnapshotRecordsQuery:
    """With `at` where a lease says it. Raises RequestInvalid, SnapshotLeaseNotFound, SnapshotLeaseExpired …"""
    partition = broker.views.get(stream, query.partition).partition
    if query.lease:
        if query.at >= 0:
            raise RequestInvalid("`lease` says where the snapshot is: leave out `at`")
        await completion(broker.leases.when_known)
        lease = broker.leases.get(stream, query.lease)
        query = msgspec.structs.replace(query, at=position_of(stream, query.partition, lease))
    if query.at < 0:
        raise RequestInvalid("`at` is needed, the offset of the snapshot, or the `lease` that holds it open")
    for position in (query.at, query.since or 0):
        _check_end(partition, position)
    return query


async def at_most(wait_ms: int, waiting: Coroutine[Any, Any, None]) -> None:
    """Wait for it no longer than that."""
    with suppress(TimeoutError):
        async with asyncio.timeout(wait_ms / 1000):
            await waiting


async def newest(broker: Broker, running: Sequence[RunningView], wait_ms: int) -> list[int]:
    """The newest snapshot of the partitions: all that is committed by now, if the views come there in that time.

    Each transaction is in it wholly or not at all. Raises SnapshotNotReached.
    """
    aimed: list[int] | None = None

    async def reach() -> None:
        nonlocal aimed
        aimed = await _aimed(broker, running)
        # Those that lag by rounds are not waited for.
        await asyncio.gather(*(_reached(view, min(at, view.newest)) for view, at in zip(running, aimed, strict=True)))

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
    """Wait until a view has something newer than that snapshot."""
    waiting = [asyncio.ensure_future(_reached(view, since.get(index, -1) + 1)) for index, view in enumerate(running)]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waiting:
            one.cancel()


async def _reached(view: RunningView, position: int) -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    forget = view.when_reached(position, lambda: None if future.done() else future.set_result(None))
    try:
        await future
    finally:
        forget()
