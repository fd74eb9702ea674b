"""Queue requests as JSON, executed on the shards of a space; shared by HTTP and NATS."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, TypeVar

from duramen.base.errors import DuramenError, NodeBusy, QueueBatchTooLarge, RequestInvalid
from duramen.base.ids import Position
from duramen.broker.streams import Stream
from duramen.codec.jsonbytes import json_of, json_size, request_bytes, request_headers
from duramen.doors.problems import PartlyStored, Stored, problem_of
from duramen.doors.queues.types import (
    LARGEST_PAGE_BYTES,
    AckRequest,
    DeleteRequest,
    EditRequest,
    EnqueueRequest,
    EntryInfo,
    EntryPage,
    EntryPlaces,
    ExtendRequest,
    LeasedInfo,
    LeasedPlace,
    LeasesInfo,
    LeasesRequest,
    MissingShard,
    NackRequest,
    NewEntryRequest,
    QueueFound,
    QueueNames,
    QueueRequest,
    QueuesFound,
    QueuesQuery,
    QueuesRead,
    QueueStats,
    RefusedEntries,
    RefusedEntry,
    ReplaceRequest,
    RetrieveQuery,
    ShardUsage,
    SpaceUsage,
    StatsQuery,
    UsageQuery,
    VersionsInfo,
)
from duramen.queues.leases import Leased, LeasedEntry, lease_text, parse_lease
from duramen.queues.machine import MOST_ENTRIES, Delete, Edit, Empty, QueueCommand, Replace
from duramen.queues.names import check_name
from duramen.queues.operations import NewEntry, check_headers
from duramen.queues.positions import parse_position, position_text
from duramen.queues.reading import Counted, Retrieved, RetrievedBatches, Where
from duramen.queues.runs import QueueEntry
from duramen.service.authorize import Operation
from duramen.service.broker import Broker
from duramen.service.led_queues import FoundNames, FoundTotals, LedQueues, LostShards, Refused
from duramen.service.queue_leases import LeasePoll, LeaseRequest
from duramen.service.queues import Enqueued, Found, QueueRequests, Read, ReadLimits, queue_of, request_of

__all__ = ["OPERATIONS", "QueueOperation", "QueueOperations"]

_T = TypeVar("_T")

_AT_ONCE: Final = 200  # entries that are worked on before others get their turn: about a millisecond
_FRAME_BYTES: Final = 100  # of a response, around its entries
_turns: Final = count()


async def _call_back(ask: Callable[[Callable[[_T | DuramenError], None]], object]) -> _T:
    """The value that a callback receives. Raises the error that it receives."""
    future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()

    def done(answer: _T | DuramenError) -> None:
        if future.done():
            return
        if isinstance(answer, DuramenError):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    ask(done)
    return await future


def _where(text: str) -> Where:
    if text == "start":
        return "start"
    return "end" if text == "end" else parse_position(text)


def _entry(body: NewEntryRequest) -> NewEntry:
    entry = NewEntry(
        request_bytes("value", body.value), request_bytes("key", body.key), tuple(request_headers(body.headers)),
        body.timestamp, body.delay_ms, body.ttl_ms,
    )  # fmt: skip
    check_headers((entry,))
    return entry


async def _entries(bodies: Sequence[NewEntryRequest]) -> list[NewEntry]:
    found = list[NewEntry]()
    for number, body in enumerate(bodies):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        try:
            found.append(_entry(body))
        except DuramenError as error:
            raise type(error)(f"entry {number}: {error}") from None
    return found


def _parts(entry: QueueEntry) -> dict[str, Any]:
    parts: dict[str, Any] = {
        "position": position_text(entry.position), "version": entry.version, "timestamp": entry.timestamp,
        "key": json_of(entry.key), "value": json_of(entry.value),
        "headers": [(json_of(name) or "", json_of(value)) for name, value in entry.headers],
    }  # fmt: skip
    if entry.visible_ms:
        parts["visible_ms"] = entry.visible_ms
    if entry.expires_ms:
        parts["expires_ms"] = entry.expires_ms
    return parts


async def _page(found: Retrieved) -> EntryPage:
    infos = list[EntryInfo]()
    for number, entry in enumerate(found.entries):
        if number % _AT_ONCE == _AT_ONCE - 1:
            await asyncio.sleep(0)
        infos.append(EntryInfo(**_parts(entry)))
    return EntryPage(infos, position_text(found.next))


def _places(found: Enqueued) -> EntryPlaces:
    error = found.error
    if error is None:
        return EntryPlaces([text for text in found.each("{}.{}".format) if text is not None])
    shards, unknown = found.shards, found.unknown
    stored = [
        Stored(number, shards[number], position.offset, position_text(position))
        for number, position in enumerate(found.positions)
        if position is not None
    ]
    if not stored and not unknown:
        raise error
    said = f"{len(stored)} of {found.entries} entries are stored, {len(unknown)} may be"
    raise PartlyStored(type(error)(f"{error}; {said}"), stored, unknown)


class QueueOperations:
    """Requests on the queues of a space.

    `polls` are the door's waiting polls; `instance` names the request in problems.
    """

    def __init__(
        self, broker: Broker, requests: QueueRequests, space: Stream, polls: "set[asyncio.Future[Any]]", instance: str,
        json_limit_bytes: int | None = None,
    ) -> None:  # fmt: skip
        """`json_limit_bytes`: the largest response, if the door has a limit."""
        self._broker = broker
        self._space = space
        self._polls = polls
        self._instance = instance
        self._json_limit_bytes = json_limit_bytes
        self._requests = requests
        self._led = LedQueues(broker, requests.shards)

    @property
    def _writable(self) -> Stream:
        """The space, for what changes its queues. Raises RequestInvalid for the broker's own."""
        if self._space.owned:
            raise RequestInvalid(
                f"{self._space.name} is the broker's own: its queues are topics of the inventory; use the topics' names"
            )
        return self._space

    # -- putting in ---------------------------------------------------------------------------------

    async def enqueue(self, body: EnqueueRequest) -> EntryPlaces:
        """Add entries to queues. Raises PartlyStored if some of them are stored or may be."""
        space = self._writable
        _check_count(body.entries)
        names = [check_name(one.queue) for one in body.entries]
        entries = list(zip(names, await _entries(body.entries), strict=True))
        request = request_of(self._space, body.request)
        return _places(await _call_back(lambda done: self._requests.enqueue(space, entries, done, request)))

    async def enqueue_batch(self, batch: bytearray) -> EntryPlaces:
        """Like `enqueue`, for entries in a record batch."""
        space = self._writable
        return _places(await _call_back(lambda done: self._requests.enqueue_batch(space, batch, done)))

    # -- reading ------------------------------------------------------------------------------------

    async def _wait(self, wait_ms: int, begin: Callable[[Callable[[_T], None]], Callable[[], None]]) -> _T:
        """The result of a poll, which ends when its client disconnects. Raises NodeBusy."""
        most = self._broker.settings.integer("queue.waiting.requests")
        if wait_ms and len(self._polls) >= most:
            raise NodeBusy(f"{most} requests already wait for entries: retry later, or with wait_ms=0")
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        self._polls.add(future)
        end = begin(lambda found: None if future.done() else future.set_result(found))
        try:
            return await future
        finally:
            end()
            self._polls.discard(future)

    async def _read(
        self, reads: Sequence[Read], query: RetrieveQuery | QueuesRead, *, batches: bool = False, json_bytes: int = 0
    ) -> Mapping[bytes, Found]:
        max_bytes = min(query.max_bytes, json_bytes) if json_bytes else query.max_bytes
        limits = ReadLimits(query.limit, max_bytes, query.wait_ms, query.delayed, json_bytes)

        def begin(done: Callable[[Mapping[bytes, Found]], None]) -> Callable[[], None]:
            return self._requests.retrieve(self._space, reads, limits, done, batches=batches)

        return await self._wait(query.wait_ms, begin)

    async def retrieve(self, query: RetrieveQuery, *, batches: bool = False) -> EntryPage | RetrievedBatches:
        """Entries of a queue from a position on; with `batches` as record batches."""
        queue = check_name(query.queue)
        found = (await self._read([Read(queue, _where(query.start))], query, batches=batches))[queue]
        if isinstance(found, DuramenError):
            raise found
        return found if isinstance(found, RetrievedBatches) else await _page(found)

    async def retrieve_several(self, body: QueuesRead) -> QueuesFound:
        """Entries of several queues."""
        reads = [Read(check_name(one.queue), _where(one.start)) for one in body.queues]
        if len({read.queue for read in reads}) < len(reads):
            raise RequestInvalid("a queue is given twice")
        found = await self._read(reads, body, json_bytes=self._json_bytes(reads))
        return QueuesFound([await self._found(read.queue, found[read.queue]) for read in reads])

    def _json_bytes(self, reads: Sequence[Read]) -> int:
        """What a response has for entries besides the names of the queues; 0: any number. Raises RequestInvalid."""
        if self._json_limit_bytes is None:
            return 0
        left = self._json_limit_bytes - _FRAME_BYTES - sum(_FRAME_BYTES + json_size(read.queue) for read in reads)
        if left <= 0:
            raise RequestInvalid("the names of these queues fill the response alone: read fewer queues at a time")
        return left

    async def _found(self, queue: bytes, found: Found) -> QueueFound:
        if isinstance(found, DuramenError):
            return QueueFound(queue.decode(), [], None, problem_of(found, self._instance))
        if isinstance(found, RetrievedBatches):
            raise TypeError("several queues are read entry by entry")
        page = await _page(found)
        return QueueFound(queue.decode(), page.entries, page.next)

    # -- changing -----------------------------------------------------------------------------------

    async def _operate(self, command: QueueCommand, queue: bytes) -> Position:
        space = self._writable
        named = queue_of(space, queue)
        return await _call_back(lambda done: self._requests.submit(space, named, command, done))

    async def edit(self, body: EditRequest) -> VersionsInfo:
        """Change the values of entries."""
        _check_count(body.entries)
        queue = queue_of(self._space, check_name(body.queue))
        edits = [(parse_position(one.position), one.version, request_bytes("value", one.value)) for one in body.entries]
        first = await self._operate(Edit(queue, edits, request_of(self._space, body.request)), queue.name)
        return VersionsInfo([first.offset + number for number in range(len(edits))])

    async def delete(self, body: DeleteRequest) -> None:
        """Delete entries."""
        _check_count(body.entries)
        queue = queue_of(self._space, check_name(body.queue))
        entries = [(parse_position(one.position), one.version) for one in body.entries]
        await self._operate(Delete(queue, entries, request_of(self._space, body.request)), queue.name)

    async def replace(self, body: ReplaceRequest) -> EntryPlaces:
        """Replace everything in a queue from a position on with other entries."""
        _check_count(body.entries)
        queue = queue_of(self._space, check_name(body.queue))
        new, request = await _entries(body.entries), request_of(self._space, body.request)
        command = Replace(queue, _where(body.start), new, body.by, body.reason, request)
        first = await self._operate(command, queue.name)
        positions = [Position(first.leader_epoch, first.offset + 1 + number) for number in range(len(new))]
        return EntryPlaces([position_text(position) for position in positions])

    async def purge(self, body: QueueRequest) -> None:
        """Delete every entry of a queue."""
        queue = queue_of(self._space, check_name(body.queue))
        await self._operate(Empty(queue, "purge", request_of(self._space, body.request)), queue.name)

    async def drop(self, body: QueueRequest) -> None:
        """Remove a queue with all its entries."""
        queue = queue_of(self._space, check_name(body.queue))
        await self._operate(Empty(queue, "drop", request_of(self._space, body.request)), queue.name)

    # -- leases -------------------------------------------------------------------------------------

    async def lease(self, body: LeasesRequest) -> LeasesInfo:
        """Lease entries."""
        space = self._writable
        names = list(dict.fromkeys(check_name(queue) for queue in body.queues))
        limit = self._json_limit_bytes
        size, as_json = (LARGEST_PAGE_BYTES, False) if limit is None else (limit - _FRAME_BYTES, True)
        request = LeaseRequest(names, body.limit, body.lease_ms, body.wait_ms, body.fifo, size, as_json)

        def begin(done: Callable[[list[Leased] | DuramenError], None]) -> Callable[[], None]:
            poll = LeasePoll(self._broker, self._requests, space, request, next(_turns), done)
            poll.begin()
            return poll.end

        found = await self._wait(body.wait_ms, begin)
        if isinstance(found, DuramenError):
            raise found
        infos = [
            LeasedInfo(
                **_parts(one.entry), queue=one.queue.decode(), lease=lease_text(one.lease), deliveries=one.deliveries
            )
            for one in found
        ]
        return LeasesInfo(infos)

    async def ack(self, body: AckRequest) -> RefusedEntries:
        """Acknowledge leased entries."""
        return await self._settle(body.entries, body.request, None)

    async def nack(self, body: NackRequest) -> RefusedEntries:
        """Return leased entries."""
        return await self._settle(body.entries, body.request, body.delay_ms)

    async def _settle(self, places: Sequence[LeasedPlace], said: str, delay_ms: int | None) -> RefusedEntries:
        entries, request = _leased(places), request_of(self._space, said)
        ask = partial(self._led.acknowledge, self._writable, entries, request=request, release_ms=delay_ms)
        return self._refused(await _call_back(ask))

    async def extend(self, body: ExtendRequest) -> RefusedEntries:
        """Extend leases."""
        ask = partial(self._led.extend, self._writable, _leased(body.entries), body.lease_ms)
        return self._refused(await _call_back(ask))

    def _refused(self, refused: Refused) -> RefusedEntries:
        return RefusedEntries(
            [RefusedEntry(number, problem_of(error, self._instance)) for number, error in refused.items()]
        )

    # -- queues -------------------------------------------------------------------------------------

    async def queues(self, query: QueuesQuery) -> QueueNames:
        """Names of queues."""
        shard, _, behind = query.after.partition("-")
        try:
            after = int(shard or "0"), bytes.fromhex(behind)
        except ValueError:
            raise RequestInvalid("`after` is the `next` of the page before") from None
        if not 0 <= after[0] < self._space.shards:
            raise RequestInvalid("`after` is the `next` of the page before")
        prefix = query.prefix.encode()
        found: FoundNames = await _call_back(partial(self._led.names, self._space, prefix, after, query.limit))
        following = None if found.next is None else f"{found.next[0]}-{found.next[1].hex()}"
        return QueueNames([name.decode() for name in found.names], following, _missing(found.lost))

    async def stats(self, query: StatsQuery) -> QueueStats:
        """Count the entries of a queue."""
        queue = check_name(query.queue)
        found: tuple[Counted, int] = await _call_back(partial(self._led.count, self._space, queue))
        counted, leased = found
        first, last = (None if one is None else position_text(one) for one in (counted.first, counted.last))
        oldest_ms = counted.oldest_ms if counted.entries else None
        return QueueStats(
            query.queue, counted.entries, counted.bytes, counted.delayed, leased, first, last, oldest_ms
        )  # fmt: skip

    async def usage(self, _: UsageQuery) -> SpaceUsage:
        """The entries of all queues, as the shards count them."""
        found: FoundTotals = await _call_back(partial(self._led.totals, self._space))
        known = [one for one in found.shards if one is not None]
        unknown = len(known) + len(found.lost) < len(found.shards)
        most, most_bytes = (None if limit < 0 else limit for limit in self._space.shard_limits)
        shards, missing = [ShardUsage(*(one or (None, None))) for one in found.shards], _missing(found.lost)
        entries = None if unknown else sum(one.entries for one in known)
        size = None if unknown else sum(one.bytes for one in known)
        return SpaceUsage(entries, size, most, most_bytes, shards, missing)


def _missing(lost: LostShards) -> list[MissingShard]:
    return [MissingShard(shard, str(error)) for shard, error in lost.items()]


def _check_count(entries: Sequence[object]) -> None:
    if len(entries) > MOST_ENTRIES:
        raise QueueBatchTooLarge(f"it has {len(entries)} entries; a request has {MOST_ENTRIES} at most")


def _leased(places: Sequence[LeasedPlace]) -> list[tuple[bytes, LeasedEntry]]:
    _check_count(places)
    return [
        (check_name(one.queue), LeasedEntry(parse_position(one.position), parse_lease(one.lease))) for one in places
    ]


class QueueOperation(NamedTuple):
    """An operation by name: its request type, its accesses to the space, and its function."""

    request_type: type[Any]
    needs: Operation
    run: Callable[[QueueOperations, Any], Awaitable[Any]]


OPERATIONS: Final[Mapping[str, QueueOperation]] = {
    "enqueue": QueueOperation(EnqueueRequest, Operation.WRITE, QueueOperations.enqueue),
    "retrieve": QueueOperation(QueuesRead, Operation.READ, QueueOperations.retrieve_several),
    "edit": QueueOperation(EditRequest, Operation.WRITE, QueueOperations.edit),
    "delete": QueueOperation(DeleteRequest, Operation.WRITE, QueueOperations.delete),
    "replace": QueueOperation(ReplaceRequest, Operation.WRITE, QueueOperations.replace),
    "lease": QueueOperation(LeasesRequest, Operation.READ, QueueOperations.lease),
    "ack": QueueOperation(AckRequest, Operation.READ, QueueOperations.ack),
    "nack": QueueOperation(NackRequest, Operation.READ, QueueOperations.nack),
    "extend": QueueOperation(ExtendRequest, Operation.READ, QueueOperations.extend),
    "queues": QueueOperation(QueuesQuery, Operation.READ, QueueOperations.queues),
    "stats": QueueOperation(StatsQuery, Operation.READ, QueueOperations.stats),
    "usage": QueueOperation(UsageQuery, Operation.READ, QueueOperations.usage),
    "purge": QueueOperation(QueueRequest, Operation.DELETE, QueueOperations.purge),
    "drop": QueueOperation(QueueRequest, Operation.DELETE, QueueOperations.drop),
}
"""All that are requests of their own, with the same JSON at each door."""
