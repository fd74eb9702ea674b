"""Routes of queues: add, read, edit, delete, replace, lease and acknowledge entries; list queues."""

from typing import Final

import msgspec
from starlette.responses import Response

from duramen.base import errors
from duramen.codec.queue_entries import NEXT_HEADER
from duramen.codec.shown_batches import BATCHES_TYPE
from duramen.doors.http.completions import unless_gone
from duramen.doors.http.produce import largest_body_bytes
from duramen.doors.http.serving.routes import LARGEST_BODY_BYTES, Call, HttpRoute, on_topic
from duramen.doors.http.serving.rows import NDJSON
from duramen.doors.http.spaces import space
from duramen.doors.queues.operations import OPERATIONS, QueueOperations
from duramen.doors.queues.types import (
    AckRequest,
    DeleteRequest,
    EditRequest,
    EnqueueRequest,
    EntryPage,
    EntryPlaces,
    ExtendRequest,
    LeasesInfo,
    LeasesRequest,
    NackRequest,
    QueueNames,
    QueueRequest,
    QueuesFound,
    QueuesQuery,
    QueuesRead,
    QueueStats,
    RefusedEntries,
    ReplaceRequest,
    RetrieveQuery,
    SpaceUsage,
    StatsQuery,
    UsageQuery,
    VersionsInfo,
)
from duramen.queues.machine import MOST_ENTRIES
from duramen.queues.positions import position_text
from duramen.queues.reading import RetrievedBatches
from duramen.service.admission import AdmissionRules
from duramen.service.authorize import Operation

__all__ = ["ROUTES"]


_LEASED_BODY_BYTES: Final = MOST_ENTRIES * 512  # a request may have all entries of one lease


def _operations(call: Call) -> QueueOperations:
    return QueueOperations(
        call.broker, call.forwarding.queues, space(call), call.node.polls, call.request.scope["path"]
    )


def _limit(call: Call) -> int:
    found = call.admitted.topics.find(call.path["name"])
    return LARGEST_BODY_BYTES if found is None else largest_body_bytes(found)


def _leased_limit(_: Call) -> int:
    return _LEASED_BODY_BYTES


async def _enqueue(call: Call, body: EnqueueRequest | bytearray) -> EntryPlaces:
    operations = _operations(call)
    return await (operations.enqueue_batch(body) if isinstance(body, bytearray) else operations.enqueue(body))


async def _retrieve(call: Call, query: RetrieveQuery) -> EntryPage | Response:
    accept = call.request.headers.get("accept", "")
    answer = _operations(call).retrieve(query, batches=BATCHES_TYPE in accept)
    page = await (unless_gone(call.request, answer) if query.wait_ms else answer)
    if isinstance(page, RetrievedBatches):
        return Response(b"".join(page.batches), 200, {NEXT_HEADER: position_text(page.next)}, BATCHES_TYPE)
    if NDJSON not in accept:
        return page
    content = msgspec.json.Encoder().encode_lines(page.entries)
    return Response(content, 200, {NEXT_HEADER: page.next}, NDJSON)


async def _retrieve_several(call: Call, body: QueuesRead) -> QueuesFound:
    answer = _operations(call).retrieve_several(body)
    return await (unless_gone(call.request, answer) if body.wait_ms else answer)


async def _edit(call: Call, body: EditRequest) -> VersionsInfo:
    return await _operations(call).edit(body)


async def _delete(call: Call, body: DeleteRequest) -> None:
    await _operations(call).delete(body)


async def _replace(call: Call, body: ReplaceRequest) -> EntryPlaces:
    return await _operations(call).replace(body)


async def _lease(call: Call, body: LeasesRequest) -> LeasesInfo:
    answer = _operations(call).lease(body)
    return await (unless_gone(call.request, answer) if body.wait_ms else answer)


async def _ack(call: Call, body: AckRequest) -> RefusedEntries:
    return await _operations(call).ack(body)


async def _nack(call: Call, body: NackRequest) -> RefusedEntries:
    return await _operations(call).nack(body)


async def _extend(call: Call, body: ExtendRequest) -> RefusedEntries:
    return await _operations(call).extend(body)


async def _queues(call: Call, query: QueuesQuery) -> QueueNames:
    return await _operations(call).queues(query)


async def _stats(call: Call, query: StatsQuery) -> QueueStats:
    return await _operations(call).stats(query)


async def _usage(call: Call) -> SpaceUsage:
    return await _operations(call).usage(UsageQuery())


async def _purge(call: Call, body: QueueRequest) -> None:
    await _operations(call).purge(body)


async def _drop(call: Call, body: QueueRequest) -> None:
    await _operations(call).drop(body)


def _needs(name: str) -> AdmissionRules[Call]:
    return on_topic(OPERATIONS[name].needs)


_ASKING: Final = (
    errors.QueueSpaceNotFound, errors.QueueNameInvalid, errors.CoordinatorLoading, errors.NotCoordinator,
    errors.NodeStopping, errors.StateDamaged, errors.StorageFailed,
)  # fmt: skip
_POSITIONS: Final = (errors.QueuePositionUnknown, errors.QueuePositionFuture, errors.QueueHistoryRewritten)
_STORING: Final = (
    *_ASKING, errors.QueueBatchTooLarge, errors.NotEnoughReplicas, errors.NotEnoughReplicasAfterAppend,
    errors.NotLeader, errors.StorageFull,
)  # fmt: skip
_WRITING: Final = (*_STORING, errors.QueueRequestReused)

ROUTES = (
    HttpRoute(
        "POST", "/v1/spaces/{name}/entries", _enqueue, _needs("enqueue"),
        "Add entries to queues; the response has their positions once they are durable",
        (*_WRITING, errors.BatchInvalid, errors.QueueSpaceFull), body_limit_bytes=_limit, lines="entries", batches=True,
    ),
    HttpRoute(
        "GET", "/v1/spaces/{name}/entries", _retrieve, on_topic(Operation.READ),
        "Read a queue from a position on, waiting up to `wait_ms` if it is empty",
        (*_ASKING, *_POSITIONS, errors.NodeBusy), formats=(NDJSON, BATCHES_TYPE),
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/retrieve", _retrieve_several, _needs("retrieve"),
        "Read several queues, waiting up to `wait_ms` if all are empty",
        (*_ASKING, errors.NodeBusy),
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/edit", _edit, _needs("edit"),
        "Change the values of entries of a queue: all of them or none",
        (*_WRITING, *_POSITIONS, errors.QueueEntryGone, errors.QueueVersionStale), body_limit_bytes=_limit,
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/delete", _delete, _needs("delete"),
        "Delete entries of a queue: all of them or none",
        (*_WRITING, *_POSITIONS, errors.QueueEntryGone, errors.QueueVersionStale), (204,), body_limit_bytes=_limit,
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/replace", _replace, _needs("replace"),
        "Replace everything in a queue from a position on with other entries, atomically",
        (*_WRITING, *_POSITIONS, errors.BatchInvalid), body_limit_bytes=_limit,
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/lease", _lease, _needs("lease"),
        "Lease entries, fairly over the queues, waiting up to `wait_ms` if there is none",
        (*_ASKING, errors.NodeBusy),
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/ack", _ack, _needs("ack"),
        "Acknowledge and remove leased entries; the response lists those that were refused",
        _WRITING, body_limit_bytes=_leased_limit,
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/nack", _nack, _needs("nack"),
        "Return leased entries, which can be leased again after a delay; the response lists those that were refused",
        _WRITING, body_limit_bytes=_leased_limit,
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/extend", _extend, _needs("extend"),
        "Extend leases; the response lists the entries that were refused",
        _ASKING, body_limit_bytes=_leased_limit,
    ),
    HttpRoute(
        "GET", "/v1/spaces/{name}/queues", _queues, _needs("queues"),
        "Names of queues, page by page", _ASKING,
    ),
    HttpRoute(
        "GET", "/v1/spaces/{name}/stats", _stats, _needs("stats"),
        "Count the entries of a queue", _ASKING,
    ),
    HttpRoute(
        "GET", "/v1/spaces/{name}/usage", _usage, _needs("usage"),
        "The entries of all queues of a space and of each shard, and the limits of a shard", _ASKING,
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/purge", _purge, _needs("purge"),
        "Delete every entry of a queue", _WRITING, (204,),
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/drop", _drop, _needs("drop"),
        "Remove a queue with all its entries", _WRITING, (204,),
    ),
)  # fmt: skip
