"""Queries that only the leader of a shard can answer: leases, names, counts. Sent as values between nodes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from duramen.base.errors import DuramenError, QueueEntryTooLarge
from duramen.base.ports import StateRows
from duramen.broker.streams import Stream
from duramen.coordinators.queue.shard import QueueShard, hash_of
from duramen.queues.leases import Leased, LeasedEntry, LeaseLimits, answered_size
from duramen.queues.names import Queue
from duramen.queues.reading import Counted, Names, count_entries, names
from duramen.queues.topics import TopicBounds, bounds
from duramen.queues.usage import UsagePage
from duramen.service.broker import Broker

__all__ = [
    "BoundsQuery",
    "CountQuery",
    "ExtendQuery",
    "LeaseQuery",
    "NamesQuery",
    "QueryDone",
    "Refused",
    "ShardQuery",
    "TotalsQuery",
    "UsageQuery",
    "WaitQuery",
    "Waiter",
    "queues_in",
    "queues_of",
    "run_query",
    "wait_for_lease",
]

Refused = Mapping[int, DuramenError]
"""Why entries of a request were refused, by their numbers in it."""
QueryDone = Callable[[Any], None]
"""Called with the answer to a query, or with why there is none."""

_LOOKED_AT: Final = 10_000  # entries or names in one turn


class LeaseQuery(NamedTuple):
    """Lease `most` entries of these queues in all, and `max_bytes` of them as a `LeaseLimits` counts them.

    One that was delivered `deliveries` times is dead; 0: never.
    """

    queues: list[bytes]
    most: int
    lease_ms: int
    max_bytes: int
    fifo: bool = False
    deliveries: int = 0
    dead_letters: bytes = b""
    """The queue whose entries are never dead."""
    as_json: bool = False


class WaitQuery(NamedTuple):
    """Waits this long for an entry to lease in one of these queues."""

    queues: list[bytes]
    fifo: bool
    wait_ms: int


class ExtendQuery(NamedTuple):
    """Extends leases to this time from now; the response has the entries that are no longer leased."""

    entries: list[tuple[bytes, LeasedEntry]]
    lease_ms: int


class NamesQuery(NamedTuple):
    """Names of queues that begin with `prefix`, behind a hash."""

    prefix: bytes
    after: bytes
    limit: int


class CountQuery(NamedTuple):
    """Count the entries of a queue from an offset on; answered with how many are leased, too."""

    queue: bytes
    start: int


class BoundsQuery(NamedTuple):
    """The bounds of a queue, and its first entry since a time or of the last ones; -1: not requested."""

    queue: bytes
    since_ms: int
    last: int
    start: int = 0
    """The offset at which the search for the time continues."""


class UsageQuery(NamedTuple):
    """What the queues of owners take that have changed behind a version of a life."""

    life: tuple[int, int]
    version: int


class TotalsQuery(NamedTuple):
    """The number of all entries of a shard, and their bytes."""


ShardQuery = LeaseQuery | ExtendQuery | NamesQuery | CountQuery | BoundsQuery | UsageQuery | TotalsQuery


class Waiter(Protocol):
    """A request for leases that is told when there may be entries."""

    @property
    def over(self) -> bool:
        """Whether the client has gone: then nothing is leased."""

    def watch(self, leave: Iterable[Callable[[], None]]) -> None:
        """The shard tells `wake` when something happens; each of `leave` takes that back."""

    def wake(self) -> None:
        """Something has happened to a queue."""


def queues_of(space: Stream, found: Iterable[bytes]) -> list[Queue]:
    """Queues by their names."""
    hash_name = hash_of(space)
    return [Queue(name, hash_name(name)) for name in found]


def queues_in(query: ShardQuery) -> list[bytes]:
    """The queues whose entries a query is about."""
    match query:
        case LeaseQuery():
            return query.queues
        case CountQuery(queue, 0) | BoundsQuery(queue, start=0):
            return [queue]
        case _:
            return []


def run_query(
    broker: Broker,
    space: Stream,
    index: int,
    query: ShardQuery,
    waiter: Waiter | None,
    shard: QueueShard,
    rows: StateRows,
) -> Any:
    """The response to a query at the leader of the shard.

    Of a LeaseQuery it is a list of Leased; where nothing is there, `waiter` watches from the same turn on. Of an
    ExtendQuery it is `Refused`, of a NamesQuery `Names`, of a CountQuery `Counted` and the number of leased entries, of
    a BoundsQuery `TopicBounds`, of a UsageQuery a `UsagePage`, of a TotalsQuery `ShardTotals` or None.
    """
    now_ms = broker.now_ms()
    match query:
        case LeaseQuery():
            return _lease(space, index, query, waiter, shard, rows, now_ms)
        case ExtendQuery():
            return _extend(space, query, shard, rows, now_ms)
        case NamesQuery(prefix, after, limit):
            found: Names = names(rows, prefix, after, limit, _LOOKED_AT)
            return found
        case CountQuery(queue, start):
            hashed = hash_of(space)(queue)
            counted: Counted = count_entries(rows, hashed, start, _LOOKED_AT, now_ms)
            return counted, shard.leases.count(hashed)
        case BoundsQuery(queue, since_ms, last, start):
            hashed = hash_of(space)(queue)
            found_bounds: TopicBounds = bounds(rows, hashed, since_ms, last, start, _LOOKED_AT, now_ms)
            return found_bounds
        case UsageQuery(life, version):
            usage: UsagePage = shard.usage.since(rows, space.partition(index).leader_epoch, life, version)
            return usage
        case TotalsQuery():
            return shard.totals(rows)


def _lease(
    space: Stream, index: int, query: LeaseQuery, waiter: Waiter | None, shard: QueueShard, rows: StateRows, now_ms: int
) -> list[Leased]:
    """Lease in a shard: as many of each queue, then what others leave.

    Raises QueueEntryTooLarge if an entry does not fit, and nothing else was there.
    """
    too_large, room = None, query.max_bytes
    queues, found = queues_of(space, query.queues), list[Leased]()
    leader_epoch = space.partition(index).leader_epoch
    share, asked, left = max(1, query.most // max(1, len(queues))), queues, query.most
    while asked and left > 0 and room > 0 and not (waiter is not None and waiter.over):
        more = list[Queue]()
        for queue in asked:
            some = min(share, left)
            if some <= 0 or room <= 0:
                break
            limit = 0 if queue.name == query.dead_letters else query.deliveries
            limits = LeaseLimits(some, room, now_ms + query.lease_ms, query.fifo, limit, query.as_json)
            try:
                leased = shard.leases.lease(rows, queue, limits, now_ms, leader_epoch)
            except QueueEntryTooLarge as error:
                too_large = error
                continue
            room -= sum(answered_size(one, as_json=query.as_json) for one in leased)
            alive = sum(not one.dead for one in leased)
            left -= alive
            found += leased
            if alive == some and not query.fifo:
                more.append(queue)
        asked, share = more, left
    if too_large is not None and not found:
        raise too_large
    if left == query.most and waiter is not None and not waiter.over:
        # In the turn of the read: nothing comes between.
        waiter.watch([shard.wait(queue.hash, waiter.wake) for queue in queues])
    return found


def _extend(space: Stream, query: ExtendQuery, shard: QueueShard, rows: StateRows, now_ms: int) -> Refused:
    refused = dict[int, DuramenError]()
    for number, (name, one) in enumerate(query.entries):
        (queue,) = queues_of(space, [name])
        try:
            shard.leases.extend(rows, queue, one, now_ms + query.lease_ms, now_ms)
        except DuramenError as error:
            refused[number] = error
    return refused


class _Wait:
    """A wait at the leader of a shard. `done` is told once whether there may be entries to lease."""

    def __init__(self, broker: Broker, queues: Sequence[Queue], query: WaitQuery, done: QueryDone) -> None:
        self._broker = broker
        self._queues = queues
        self._fifo = query.fifo
        self._done: QueryDone | None = done
        self._leave: list[Callable[[], None]] = []
        self._late = broker.later(query.wait_ms, partial(self.end, answer=False))

    def look(self, shard: QueueShard, rows: StateRows) -> bool:
        """Whether there is something now; if not, the shard is watched from this turn on."""
        now_ms = self._broker.now_ms()
        if any(shard.leases.has(rows, queue, now_ms, fifo=self._fifo) for queue in self._queues):
            return True
        if self._done is not None:
            wake = partial(self.end, answer=True)
            self._leave = [shard.wait(queue.hash, wake) for queue in self._queues]
        return False

    def looked(self, answer: object) -> None:
        """The queues were examined, or could not be."""
        if answer is not False:
            self.end(answer=answer)

    def end(self, answer: object = None) -> None:
        """End the wait; with a response `done` is called."""
        done, self._done = self._done, None
        self._late.cancel()
        leave, self._leave = self._leave, []
        for one in leave:
            one()
        if done is not None and answer is not None:
            done(answer)


def wait_for_lease(
    broker: Broker, space: Stream, query: WaitQuery,
    read: Callable[[Callable[[QueueShard, StateRows], object], Callable[[object], None]], None], done: QueryDone,
) -> Callable[[], None]:  # fmt: skip
    """Wait at the leader of a shard until there may be something to be leased; returns what ends it."""
    wait = _Wait(broker, queues_of(space, query.queues), query, done)
    read(wait.look, wait.looked)
    return wait.end
