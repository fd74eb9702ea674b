"""Entries of queues: put in, retrieved at once or as they come, edited, deleted and replaced."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from starlette.responses import Response

from duramen.base import errors
from duramen.base.errors import DuramenError, NodeBusy, RequestInvalid
from duramen.base.ids import Position
from duramen.codec.jsonbytes import json_of
from duramen.codec.queue_entries import NEXT_HEADER
from duramen.codec.shown_batches import BATCHES_TYPE
from duramen.doors.http.completions import call_back, unless_gone
from duramen.doors.http.produce import largest_body_bytes, wish_bytes, wish_headers
from duramen.doors.http.serving.bodies import NDJSON
from duramen.doors.http.serving.problems import PartlyStored, problem_of
from duramen.doors.http.serving.routes import LARGEST_BODY_BYTES, Call, HttpRoute, on_topic
from duramen.doors.http.spaces import space
from duramen.doors.http.types.queues import (
    DeleteWish,
    EditWish,
    EnqueueWish,
    EntryInfo,
    EntryPage,
    EntryPlaces,
    NewEntryWish,
    QueueFound,
    QueuesFound,
    QueuesRead,
    ReplaceWish,
    RetrieveQuery,
    VersionsInfo,
)
from duramen.doors.http.types.types import Stored
from duramen.queues.machine import Delete, Edit, QueueCommand, Replace
from duramen.queues.names import check_name
from duramen.queues.operations import NewEntry
from duramen.queues.positions import parse_position, position_text
from duramen.queues.reading import Retrieved, RetrievedBatches, Where
from duramen.queues.runs import QueueEntry
from duramen.service.authorize import Operation
from duramen.service.queues import Enqueued, Found, Read, ReadLimits, queue_of

__all__ = ["ROUTES"]

_AT_ONCE: Final = 200  # entries that are worked on before others get their turn: about a millisecond
_MOST_POLLS: Final = 50  # half of the connections


def _where(text: str) -> Where:
    if text == "start":
        return "start"
    return "end" if text == "end" else parse_position(text)


def _entry(wish: NewEntryWish) -> NewEntry:
    return NewEntry(
        wish_bytes("value", wish.value), wish_bytes("key", wish.key), tuple(wish_headers(wish.headers)), wish.timestamp
    )


async def _entries(wishes: Sequence[NewEntryWish]) -> list[NewEntry]:
    found = list[NewEntry]()
    for number, wish in enumerate(wishes):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        try:
            found.append(_entry(wish))
        except DuramenError as error:
            raise type(error)(f"entry {number}: {error}") from None
    return found


def _info(entry: QueueEntry) -> EntryInfo:
    headers = [(json_of(name) or "", json_of(value)) for name, value in entry.headers]
    return EntryInfo(
        position_text(entry.position), entry.version, entry.timestamp, json_of(entry.key), json_of(entry.value), headers
    )


# -- putting in -------------------------------------------------------------------------------------


def _limit(call: Call) -> int:
    found = call.admitted.topics.find(call.path["name"])
    return LARGEST_BODY_BYTES if found is None else largest_body_bytes(found)


async def _enqueue(call: Call, body: EnqueueWish | bytearray) -> EntryPlaces:
    requests, where = call.forwarding.queues, space(call)
    if isinstance(body, bytearray):
        found: Enqueued = await call_back(lambda done: requests.enqueue_batch(where, body, done))
        return _places(found)
    names = [check_name(wish.queue) for wish in body.entries]
    entries = list(zip(names, await _entries(body.entries), strict=True))
    found = await call_back(lambda done: requests.enqueue(where, entries, done))
    return _places(found)


def _places(found: Enqueued) -> EntryPlaces:
    error = found.error
    if error is None:
        return EntryPlaces([text for text in found.each("{}.{}".format) if text is not None])
    shards, unknown = found.shards, found.unknown
    stored = [
        Stored(number, shards[number], position.offset)
        for number, position in enumerate(found.positions)
        if position is not None
    ]
    if not stored and not unknown:
        raise error
    said = f"{len(stored)} of {found.entries} entries are in their queues, {len(unknown)} may be"
    raise PartlyStored(type(error)(f"{error}; {said}"), stored, unknown)


# -- reading ----------------------------------------------------------------------------------------


async def _read(
    call: Call, reads: Sequence[Read], query: RetrieveQuery | QueuesRead, *, batches: bool = False
) -> Mapping[bytes, Found]:
    polls = call.node.polls
    if query.wait_ms and len(polls) >= _MOST_POLLS:
        raise NodeBusy(f"{_MOST_POLLS} requests wait for entries already: ask again, or with wait_ms=0")
    future: asyncio.Future[Mapping[bytes, Found]] = asyncio.get_running_loop().create_future()

    def done(found: Mapping[bytes, Found]) -> None:
        if not future.done():
            future.set_result(found)

    async def wait() -> Mapping[bytes, Found]:
        return await future

    where = space(call)
    polls.add(future)
    limits = ReadLimits(query.limit, query.max_bytes, query.wait_ms)
    end = call.forwarding.queues.retrieve(where, reads, limits, done, batches=batches)
    try:
        return await (unless_gone(call.request, wait()) if query.wait_ms else wait())
    finally:
        end()
        polls.discard(future)


async def _page(found: Retrieved) -> EntryPage:
    infos = list[EntryInfo]()
    for number, entry in enumerate(found.entries):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        infos.append(_info(entry))
    return EntryPage(infos, position_text(found.next))


async def _retrieve(call: Call, query: RetrieveQuery) -> EntryPage | Response:
    queue = check_name(query.queue)
    accept = call.request.headers.get("accept", "")
    found = (await _read(call, [Read(queue, _where(query.start))], query, batches=BATCHES_TYPE in accept))[queue]
    if isinstance(found, DuramenError):
        raise found
    if isinstance(found, RetrievedBatches):
        following = position_text(found.next)
        return Response(b"".join(found.batches), 200, {NEXT_HEADER: following}, BATCHES_TYPE)
    page = await _page(found)
    if NDJSON not in accept:
        return page
    content = msgspec.json.Encoder().encode_lines(page.entries)
    return Response(content, 200, {NEXT_HEADER: page.next}, NDJSON)


async def _retrieve_several(call: Call, body: QueuesRead) -> QueuesFound:
    reads = [Read(check_name(one.queue), _where(one.start)) for one in body.queues]
    if len({read.queue for read in reads}) < len(reads):
        raise RequestInvalid("a queue is given twice")
    found = await _read(call, reads, body)
    return QueuesFound([await _found(call, read.queue, found[read.queue]) for read in reads])


async def _found(call: Call, queue: bytes, found: Found) -> QueueFound:
    if isinstance(found, DuramenError):
        return QueueFound(queue.decode(), [], None, problem_of(found, call.request.url.path))
    if isinstance(found, RetrievedBatches):
        raise TypeError("several queues are read entry by entry")
    page = await _page(found)
    return QueueFound(queue.decode(), page.entries, page.next)


# -- changing ---------------------------------------------------------------------------------------


async def _operate(call: Call, command: QueueCommand, queue: bytes) -> Position:
    requests, where = call.forwarding.queues, space(call)
    return await call_back(lambda done: requests.submit(where, queue_of(where, queue), command, done))


async def _edit(call: Call, body: EditWish) -> VersionsInfo:
    queue = queue_of(space(call), check_name(body.queue))
    edits = [(parse_position(one.position), one.version, wish_bytes("value", one.value)) for one in body.entries]
    first = await _operate(call, Edit(queue, edits), queue.name)
    return VersionsInfo([first.offset + number for number in range(len(edits))])


async def _delete(call: Call, body: DeleteWish) -> None:
    queue = queue_of(space(call), check_name(body.queue))
    entries = [(parse_position(one.position), one.version) for one in body.entries]
    await _operate(call, Delete(queue, entries), queue.name)


async def _replace(call: Call, body: ReplaceWish) -> EntryPlaces:
    queue = queue_of(space(call), check_name(body.queue))
    new = await _entries(body.entries)
    first = await _operate(call, Replace(queue, _where(body.start), new, body.by, body.reason), queue.name)
    positions = [Position(first.leader_epoch, first.offset + 1 + number) for number in range(len(new))]
    return EntryPlaces([position_text(position) for position in positions])


_ASKING: Final = (
    errors.QueueSpaceNotFound, errors.QueueNameInvalid, errors.CoordinatorLoading, errors.NotCoordinator,
    errors.NodeStopping, errors.StorageFailed,
)  # fmt: skip
_POSITIONS: Final = (errors.QueuePositionUnknown, errors.QueuePositionFuture, errors.QueueHistoryRewritten)
_WRITING: Final = (
    *_ASKING, errors.QueueBatchTooLarge, errors.NotEnoughReplicas, errors.NotEnoughReplicasAfterAppend,
    errors.NotLeader, errors.StorageFull,
)  # fmt: skip

ROUTES = (
    HttpRoute(
        "POST", "/v1/spaces/{name}/entries", _enqueue, on_topic(Operation.WRITE),
        "Put entries into queues; answered with their positions once they are durable",
        _WRITING, body_limit_bytes=_limit, lines="entries", batches=True,
    ),
    HttpRoute(
        "GET", "/v1/spaces/{name}/entries", _retrieve, on_topic(Operation.READ),
        "Read a queue from a position on, at once or as soon as something is in it",
        (*_ASKING, *_POSITIONS, errors.NodeBusy), formats=(NDJSON, BATCHES_TYPE),
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/retrieve", _retrieve_several, on_topic(Operation.READ),
        "Read several queues, at once or as soon as something is in one of them",
        (*_ASKING, errors.NodeBusy),
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/edit", _edit, on_topic(Operation.WRITE),
        "Give entries of a queue other values, all of them or none",
        (*_WRITING, *_POSITIONS, errors.QueueEntryGone, errors.QueueVersionStale), body_limit_bytes=_limit,
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/delete", _delete, on_topic(Operation.WRITE),
        "Delete entries of a queue, all of them or none",
        (*_WRITING, *_POSITIONS, errors.QueueEntryGone, errors.QueueVersionStale), (204,), body_limit_bytes=_limit,
    ),
    HttpRoute(
        "POST", "/v1/spaces/{name}/replace", _replace, on_topic(Operation.WRITE),
        "Take back everything in a queue from a position on, and put other entries in its place, in one step",
        (*_WRITING, *_POSITIONS), body_limit_bytes=_limit,
    ),
)  # fmt: skip
