"""Snapshots of any partition: this node responds from its views, and asks the leaders of other partitions."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Literal

import msgspec

from duramen.base.errors import DuramenError, NodeBusy, SnapshotNotReached, StorageFailed, StreamNotFound
from duramen.base.ids import StreamId
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.broker.views.held_bytes import held_bytes
from duramen.broker.views.history import epoch_before
from duramen.coordinators.transaction.cluster.survey import has_transactions
from duramen.coordinators.transaction.cluster.vectors import Vector, place_of
from duramen.doors.http.completions import begin, call_back, settle
from duramen.doors.http.serving.routes import Call
from duramen.doors.http.snapshots.reads import ShownBatches, check_still, count_served, open_window, shown_batches
from duramen.doors.http.snapshots.vectors import (
    LocatedQuery,
    any_newer,
    at_most,
    check_place,
    check_query,
    come_to,
)
from duramen.doors.http.types.snapshots import SnapshotPartition, SnapshotRecordsQuery
from duramen.rpc.server import Done, Handler
from duramen.service.broker import Broker
from duramen.service.forwarded_requests import AskSnapshot, Managed
from duramen.service.forwarding.partition_requests import Snapshotting

__all__ = ["FindRequest", "find", "find_together", "has", "held", "is_plain", "read", "serving_snapshots"]

_MOST_SERVED: Final = 50  # requests of other nodes at a time
_MOST_BYTES: Final = 1 << 20  # of batches in an answer to another node, and one batch in any case


class FindRequest(msgspec.Struct, frozen=True):
    """The snapshot at `at` whose previous record has that epoch, or the newest.

    Waits first for a record newer than `newer_than`, then until the view has applied all committed records.
    """

    at: int = -1
    epoch: int = -1
    newer_than: int = -1
    newer_epoch: int = -1
    newer_wait_ms: int = 0
    max_wait_ms: int = 0


class _ReadRequest(msgspec.Struct, frozen=True):
    query: SnapshotRecordsQuery
    epoch: int


_ReadAnswer = tuple[bytes, int, int, int, bytes]


# -- requests to any node -------------------------------------------------------------------------------


async def find(call: Call, partition: Partition, request: FindRequest) -> SnapshotPartition:
    """The end of a snapshot in a partition, according to the partition's leader."""
    found = await _ask(call, partition, "find", request, request.newer_wait_ms + request.max_wait_ms)
    return msgspec.json.decode(found, type=SnapshotPartition)


async def find_together(call: Call, partitions: Sequence[Partition], wait_ms: int) -> list[SnapshotPartition]:
    """The newest snapshot of all these partitions; it has each transaction entirely or not at all.

    It has everything acknowledged before, if the views reach that in time. Raises SnapshotNotReached.
    """
    vectors = call.broker.transactions.vectors
    if vectors is None:
        return await _find_all(call, partitions, FindRequest(max_wait_ms=wait_ms))
    until_ms = call.broker.monotonic_ms() + wait_ms
    vector: Vector = await call_back(partial(vectors.take, partitions, wait_ms))
    try:
        left_ms = max(0, until_ms - call.broker.monotonic_ms())
        return await _find_at(call, partitions, vector, left_ms)
    except SnapshotNotReached:
        # The views are behind. One that they have come to may have been taken earlier.
        places = [place_of(partition) for partition in partitions]
        there = await _find_all(call, partitions, FindRequest())
        oldest = {place: one.oldest for place, one in zip(places, there, strict=True)}
        reached = {place: one.at for place, one in zip(places, there, strict=True)}
        return await _find_at(call, partitions, vectors.older(oldest, reached), 0)


def is_plain(stream: Stream) -> bool:
    """Whether this node alone knows the committed offset: it leads the only partition, without transactions."""
    first, *others = stream.partitions
    return not others and first.leads and not has_transactions(first)


async def _find_at(
    call: Call, partitions: Sequence[Partition], vector: Vector, wait_ms: int
) -> list[SnapshotPartition]:
    requests = [FindRequest(vector[place_of(partition)], max_wait_ms=wait_ms) for partition in partitions]
    return list(await asyncio.gather(*map(partial(find, call), partitions, requests)))


async def _find_all(call: Call, partitions: Sequence[Partition], request: FindRequest) -> list[SnapshotPartition]:
    return list(await asyncio.gather(*(find(call, partition, request) for partition in partitions)))


def has(broker: Broker, stream: Stream, query: SnapshotRecordsQuery) -> bool:
    """Whether this node can read the snapshot: it is the leader, or its replica's view has the snapshot."""
    partition = stream.partition(query.partition)
    if partition.leads:
        return True
    view = broker.views.find(partition, stream)
    if view is None or not partition.holds:
        return False
    try:
        if query.since is None:
            view.bounds.check_snapshot(query.at)
        else:
            view.bounds.check_changes(query.since, query.at)
    except DuramenError:
        return False
    return True


async def read(call: Call, located_query: LocatedQuery) -> ShownBatches:
    """Batches of a snapshot that this node does not have, from the partition's leader."""
    query, epoch = located_query
    partition = call.topic.partition(query.partition)
    found = await _ask(call, partition, "read", _ReadRequest(query, epoch), 0)
    batches, first, next_offset, base, bits = msgspec.msgpack.decode(found, type=_ReadAnswer)
    return ShownBatches(batches, first, next_offset, base, bytearray(bits))


async def held(call: Call, partition: Partition, positions: list[int]) -> list[int]:
    """The approximate bytes that a snapshot at each position keeps at the partition's leader."""
    found = await _ask(call, partition, "held", positions, 0)
    return msgspec.json.decode(found, type=list[int])


async def _ask(
    call: Call, partition: Partition, what: Literal["find", "read", "held"], request: object, wait_ms: int
) -> bytes:
    wanted = AskSnapshot(what, partition.log.key.stream_id.bytes, partition.index, msgspec.json.encode(request))
    request = Snapshotting(partition, wanted, partial(_begin, call.broker, wanted))
    future: asyncio.Future[Managed] = asyncio.get_running_loop().create_future()
    cancel = call.forwarding.snapshot(request, wait_ms, partial(settle, future))
    try:
        return (await future).content
    finally:
        cancel()


# -- on this node ---------------------------------------------------------------------------------------


def serving_snapshots(broker: Broker) -> Handler[AskSnapshot, Managed]:
    """Serves snapshot requests of other nodes."""
    tasks: set[Callable[[], None]] = set()

    def answer(wanted: AskSnapshot, done: Done[Managed]) -> None:
        if len(tasks) >= _MOST_SERVED:
            raise NodeBusy(f"{_MOST_SERVED} requests of other nodes about snapshots are in progress: retry")
        _stream(broker, wanted).partition(wanted.partition).check_leads()

        def told(outcome: Managed | DuramenError | OSError) -> None:
            tasks.discard(cancel)
            done(StorageFailed(f"reading failed: {outcome}") if isinstance(outcome, OSError) else outcome)

        cancel = _begin(broker, wanted, told)
        tasks.add(cancel)

    return answer


def _stream(broker: Broker, wanted: AskSnapshot) -> Stream:
    stream = broker.streams.find_id(StreamId(bytes=wanted.stream_id))
    if stream is None:
        raise StreamNotFound("there is no such stream")
    return stream


def _begin(
    broker: Broker, wanted: AskSnapshot, done: Callable[[Managed | DuramenError | OSError], None]
) -> Callable[[], None]:
    return begin(_answer(broker, wanted), done)


async def _answer(broker: Broker, wanted: AskSnapshot) -> Managed:
    stream = _stream(broker, wanted)
    match wanted.what:
        case "find":
            request = msgspec.json.decode(wanted.body, type=FindRequest)
            return Managed(msgspec.json.encode(await _find(broker, stream, wanted.partition, request)))
        case "read":
            asked = msgspec.json.decode(wanted.body, type=_ReadRequest)
            return Managed(msgspec.msgpack.encode(await _read(broker, stream, LocatedQuery(asked.query, asked.epoch))))
        case "held":
            positions = msgspec.json.decode(wanted.body, type=list[int])
            view = broker.views.get(stream, wanted.partition)
            sizes: list[int] = await call_back(partial(held_bytes, view, positions))
            return Managed(msgspec.json.encode(sizes))


async def _find(broker: Broker, stream: Stream, index: int, request: FindRequest) -> SnapshotPartition:
    view, partition = broker.views.get(stream, index), stream.partition(index)
    if request.newer_than >= 0:
        check_place(partition, request.newer_than, request.newer_epoch)
    if request.newer_wait_ms:
        await at_most(request.newer_wait_ms, any_newer([view], {0: request.newer_than}))
    at = request.at
    if at < 0:
        await at_most(request.max_wait_ms, come_to(view, partition.log.high_watermark))
        at = max(view.bounds.position, view.bounds.s0)
    else:
        check_place(partition, at, request.epoch)
        await at_most(request.max_wait_ms, come_to(view, at))
    bounds = view.bounds
    bounds.check_snapshot(at)
    epoch = epoch_before(partition, at)
    return SnapshotPartition(index, at, bounds.s0, bounds.horizon, partition.log.high_watermark, epoch)


async def _read(broker: Broker, stream: Stream, located_query: LocatedQuery) -> _ReadAnswer:
    query, _ = located_query
    check_query(stream.partition(query.partition), located_query)
    window = await open_window(broker, stream, query)
    found = await shown_batches(broker.store, window, min(query.max_bytes, _MOST_BYTES))
    check_still(window.view, query)
    count_served(window.view.partition, int.from_bytes(found.bits, "little").bit_count(), len(found.batches))
    return found.batches, found.first, found.next_offset, found.base, bytes(found.bits)
