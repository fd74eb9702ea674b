"""Queues of the asyncio client; `requests` has the requests."""

from collections.abc import AsyncIterator, Awaitable, Iterable, Mapping
from typing import Final, Protocol, TypeVar

from duramen.base.errors import DuramenError
from duramen.client.api.arguments import text
from duramen.client.api.http import Program
from duramen.client.api.queues.joined_enqueues import JoinedEnqueues
from duramen.client.api.queues.requests import (
    delayed_by,
    delete,
    each,
    edit,
    empty,
    enqueue,
    enqueue_inputs,
    has_times,
    inputs_of,
    lease,
    leased_for,
    list_queues,
    names_page,
    pairs_of,
    replace,
    request,
    retrieve,
    retrieve_several,
    settle,
    stats,
    usage,
)
from duramen.client.api.queues.values import (
    Edit,
    LeasedEntry,
    NewValue,
    QueueEntry,
    QueueNames,
    QueuePage,
    QueueStats,
    SpaceUsage,
)

__all__ = ["AsyncQueues"]

_T = TypeVar("_T")

_PAGE_ENTRIES: Final = 10_000


class _RunAsync(Protocol):
    def __call__(self, program: Program[_T]) -> Awaitable[_T]: ...


class AsyncQueues:
    """The queues of a space; more in `duramen.Queues`.

    >>> await client.spaces.create("aio-post")
    SpaceInfo(...)
    >>> queues = client.queues("aio-post")
    >>> first, second = await queues.enqueue("ann", ["hello", "world"])
    >>> versions = await queues.edit("ann", [(first, "Hello")])
    >>> await queues.delete("ann", [second])
    >>> [entry.text async for entry in queues.read("ann")]
    ['Hello']
    """

    def __init__(self, run: _RunAsync, space: str) -> None:
        self._run = run
        self.space = text("space", space)
        self._joined = JoinedEnqueues(lambda new: run(enqueue_inputs(space, new)))

    async def enqueue(
        self, queue: str, values: Iterable[NewValue], *, delay_s: float = 0, ttl_s: float = 0, request_id: str = ""
    ) -> list[str]:
        """Add entries to the end of a queue, all of them or none; more in `duramen.Queues.enqueue`.

        Entries of tasks that share this object are sent together.

        >>> await client.spaces.create("aio-jobs")
        SpaceInfo(...)
        >>> len(await client.queues("aio-jobs").enqueue("ann", ["one", "two"]))
        2
        """
        return await self._put(each(queue, values), delay_s, ttl_s, request_id)

    async def enqueue_many(
        self, entries: Iterable[tuple[str, NewValue]], *, delay_s: float = 0, ttl_s: float = 0, request_id: str = ""
    ) -> list[str]:
        """Add entries to many queues; those of a shard all together or not at all.

        >>> await client.spaces.create("aio-feeds")
        SpaceInfo(...)
        >>> len(await client.queues("aio-feeds").enqueue_many([("ann", "one"), ("bob", "two")]))
        2
        """
        return await self._put(entries, delay_s, ttl_s, request_id)

    async def _put(
        self, entries: Iterable[tuple[str, NewValue]], delay_s: float, ttl_s: float, request_id: str
    ) -> list[str]:
        pairs = pairs_of(entries)
        if delay_s or ttl_s or request_id or has_times(pairs):
            return await self._run(enqueue(self.space, pairs, delay_s, ttl_s, request_id))
        new = inputs_of(pairs)
        return await self._joined.put(new) if new else []

    async def retrieve(
        self, queue: str, start: str = "start", *, limit: int = 100, wait_s: float = 0, delayed: bool = False
    ) -> QueuePage:
        """Entries from a position on, waiting if there are none; more in `duramen.Queues.retrieve`.

        >>> await client.spaces.create("aio-tasks")
        SpaceInfo(...)
        >>> waiting = asyncio.ensure_future(client.queues("aio-tasks").retrieve("ann", wait_s=30))
        >>> positions = await client.queues("aio-tasks").enqueue("ann", ["one"])
        >>> [entry.text for entry in (await waiting).entries]
        ['one']
        """
        return await self._run(retrieve(self.space, queue, start, limit, wait_s, delayed=delayed))

    async def retrieve_many(
        self, queues: Mapping[str, str], *, limit: int = 100, wait_s: float = 0
    ) -> dict[str, QueuePage | DuramenError]:
        """Entries of several queues; more in `duramen.Queues.retrieve_many`.

        >>> await client.spaces.create("aio-chats")
        SpaceInfo(...)
        >>> list(await client.queues("aio-chats").retrieve_many({"ann": "start", "bob": "end"}))
        ['ann', 'bob']
        """
        return await self._run(retrieve_several(self.space, queues, limit, wait_s))

    async def read(self, queue: str, start: str = "start") -> AsyncIterator[QueueEntry]:
        """All entries from a position on, page by page.

        >>> await client.spaces.create("aio-lists")
        SpaceInfo(...)
        >>> positions = await client.queues("aio-lists").enqueue("ann", ["a", "b"])
        >>> [entry.text async for entry in client.queues("aio-lists").read("ann", positions[1])]
        ['b']
        """
        while (page := await self.retrieve(queue, start, limit=_PAGE_ENTRIES)).entries:
            for entry in page.entries:
                yield entry
            start = page.next

    async def edit(self, queue: str, edits: Iterable[Edit], *, request_id: str = "") -> list[int]:
        """Change the values of entries, all of them or none; more in `duramen.Queues.edit`.

        >>> await client.spaces.create("aio-pages")
        SpaceInfo(...)
        >>> [at] = await client.queues("aio-pages").enqueue("ann", ["a"])
        >>> [version] = await client.queues("aio-pages").edit("ann", [(at, "b")])
        """
        return await self._run(edit(self.space, queue, edits, request_id))

    async def delete(
        self, queue: str, positions: Iterable[str], *, version: int | None = None, request_id: str = ""
    ) -> None:
        """Delete entries, all of them or none; with a `version` only if they have it.

        >>> await client.spaces.create("aio-carts")
        SpaceInfo(...)
        >>> await client.queues("aio-carts").delete("ann", await client.queues("aio-carts").enqueue("ann", ["a"]))
        """
        await self._run(delete(self.space, queue, positions, version, request_id))

    async def replace(
        self,
        queue: str,
        start: str,
        values: Iterable[NewValue],
        *,
        by: str = "",
        reason: str = "",
        request_id: str = "",
    ) -> list[str]:
        """Replace everything from a position on with these entries; more in `duramen.Queues.replace`.

        >>> await client.spaces.create("aio-ledgers")
        SpaceInfo(...)
        >>> [first] = await client.queues("aio-ledgers").enqueue("ann", ["+5"])
        >>> positions = await client.queues("aio-ledgers").replace("ann", first, ["+6"], by="Eve")
        >>> [entry.text async for entry in client.queues("aio-ledgers").read("ann")]
        ['+6']
        """
        return await self._run(replace(self.space, queue, start, values, by, reason, request_id))

    async def lease(
        self, queues: Iterable[str], limit: int = 1, lease_s: float = 30, *, wait_s: float = 0, fifo: bool = False
    ) -> list[LeasedEntry]:
        """Lease at most `limit` entries of these queues, fairly over the queues; waits if there is none.

        No other client gets an entry before its lease expires. Then it is delivered again, unless it was acknowledged.
        With `fifo` a queue has one lease at a time, and delivers its entries in order.

        >>> await client.spaces.create("aio-work")
        SpaceInfo(...)
        >>> positions = await client.queues("aio-work").enqueue("ann", ["one", "two"])
        >>> leased = await client.queues("aio-work").lease(["ann", "bob"], 10)
        >>> [entry.text for entry in leased]
        ['one', 'two']
        >>> await client.queues("aio-work").ack(leased)
        """
        return await self._run(lease(self.space, queues, limit, lease_s, wait_s, fifo=fifo))

    async def ack(self, entries: Iterable[LeasedEntry], *, request_id: str = "") -> None:
        """Acknowledge and delete leased entries, each on its own: others succeed if one is refused.

        Raises QueueLeaseExpired if the lease of an entry has expired, QueueEntryGone if it was deleted meanwhile … A
        lease from before a leader change is accepted while the entry exists.

        >>> await client.spaces.create("aio-done")
        SpaceInfo(...)
        >>> await client.queues("aio-done").ack(await client.queues("aio-done").lease(["nobody"]))
        """
        await self._run(settle(self.space, "ack", entries, request(request_id)))

    async def nack(self, entries: Iterable[LeasedEntry], *, delay_s: float = 0, request_id: str = "") -> None:
        """Return leased entries, which can be leased again after `delay_s`. Raises as `ack`.

        >>> await client.spaces.create("aio-retries")
        SpaceInfo(...)
        >>> positions = await client.queues("aio-retries").enqueue("ann", ["one"])
        >>> await client.queues("aio-retries").nack(await client.queues("aio-retries").lease(["ann"]))
        >>> [entry.deliveries for entry in await client.queues("aio-retries").lease(["ann"])]
        [2]
        """
        more = {**delayed_by(delay_s), **request(request_id)}
        await self._run(settle(self.space, "nack", entries, more))

    async def extend(self, entries: Iterable[LeasedEntry], lease_s: float = 30) -> None:
        """Extend the leases of entries to this time from now. Raises as `ack`.

        >>> await client.spaces.create("aio-slow")
        SpaceInfo(...)
        >>> positions = await client.queues("aio-slow").enqueue("ann", ["one"])
        >>> await client.queues("aio-slow").extend(await client.queues("aio-slow").lease(["ann"]), 60)
        """
        await self._run(settle(self.space, "extend", entries, leased_for(lease_s)))

    async def queues(self, *, prefix: str = "") -> list[str]:
        """The names of all queues, or of those with `prefix`, sorted. Reads all names of the space.

        If shards are lost, their names are missing, and a RuntimeWarning says which shards: see `names`.

        >>> await client.spaces.create("aio-names")
        SpaceInfo(...)
        >>> positions = await client.queues("aio-names").enqueue_many([("ann", "hi"), ("bob", "hi"), ("amy", "hi")])
        >>> await client.queues("aio-names").queues(prefix="a")
        ['amy', 'ann']
        """
        return await self._run(list_queues(self.space, prefix))

    async def names(self, *, prefix: str = "", after: str = "", limit: int = 1000) -> QueueNames:
        """A page of names of queues, unsorted; `next` is `after` of the following page, None on the last one.

        >>> await client.spaces.create("aio-pages-of-names", shards=1)
        SpaceInfo(...)
        >>> positions = await client.queues("aio-pages-of-names").enqueue_many([("ann", "hi"), ("bob", "hi")])
        >>> first = await client.queues("aio-pages-of-names").names(limit=1)
        >>> second = await client.queues("aio-pages-of-names").names(limit=1, after=first.next)
        >>> sorted([*first.queues, *second.queues])
        ['ann', 'bob']
        """
        return await self._run(names_page(self.space, prefix, after, limit))

    async def stats(self, queue: str) -> QueueStats:
        """The number of entries and bytes in a queue, counted at each call.

        >>> await client.spaces.create("aio-counts")
        SpaceInfo(...)
        >>> positions = await client.queues("aio-counts").enqueue("ann", ["a", "b"], delay_s=60)
        >>> stats = await client.queues("aio-counts").stats("ann")
        >>> stats.entries, stats.delayed, stats.leased
        (2, 2, 0)
        """
        return await self._run(stats(self.space, queue))

    async def usage(self) -> SpaceUsage:
        """The number of all entries of the space and of each shard, their bytes, and the limits of a shard.

        >>> await client.spaces.create("aio-all-counts", config={"queue.shard.max.entries": 10})
        SpaceInfo(...)
        >>> positions = await client.queues("aio-all-counts").enqueue_many([("ann", "a"), ("bob", "b")])
        >>> usage = await client.queues("aio-all-counts").usage()
        >>> usage.entries, usage.bytes, usage.max_entries
        (2, 130, 10)
        """
        return await self._run(usage(self.space))

    async def purge(self, queue: str, *, request_id: str = "") -> None:
        """Delete all entries of a queue in one step.

        >>> await client.spaces.create("aio-trash")
        SpaceInfo(...)
        >>> positions = await client.queues("aio-trash").enqueue("ann", ["a", "b"])
        >>> await client.queues("aio-trash").purge("ann")
        >>> (await client.queues("aio-trash").stats("ann")).entries
        0
        """
        await self._run(empty(self.space, "purge", queue, request_id))

    async def drop(self, queue: str, *, request_id: str = "") -> None:
        """Delete a queue with all its entries; it is not listed until its next entry.

        >>> await client.spaces.create("aio-gone")
        SpaceInfo(...)
        >>> positions = await client.queues("aio-gone").enqueue("ann", ["a"])
        >>> await client.queues("aio-gone").drop("ann")
        >>> await client.queues("aio-gone").queues()
        []
        """
        await self._run(empty(self.space, "drop", queue, request_id))
