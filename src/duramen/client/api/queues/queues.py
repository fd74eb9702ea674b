"""Queues of the blocking client; `requests` has the requests."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

from duramen.base.errors import DuramenError
from duramen.client.api.arguments import text
from duramen.client.api.http import Program
from duramen.client.api.queues.requests import (
    delayed_by,
    delete,
    each,
    edit,
    empty,
    enqueue,
    lease,
    leased_for,
    list_queues,
    names_page,
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
    MissingShard,
    NewEntry,
    NewValue,
    QueueEntry,
    QueueNames,
    QueuePage,
    QueueStats,
    ShardUsage,
    SpaceUsage,
)

__all__ = [
    "LeasedEntry", "MissingShard", "NewEntry", "QueueEntry", "QueueNames", "QueuePage", "QueueStats", "Queues",
    "ShardUsage", "SpaceUsage",
]  # fmt: skip

_T = TypeVar("_T")

_PAGE_ENTRIES: Final = 10_000


class _Run(Protocol):
    def __call__(self, program: Program[_T]) -> _T: ...


class Queues:
    """The queues of a space. The first entry creates a queue; an idle queue costs nothing.

    >>> client.spaces.create("post")
    SpaceInfo(...)
    >>> queues = client.queues("post")
    >>> first, second = queues.enqueue("ann", ["hello", "world"])
    >>> [entry.text for entry in queues.retrieve("ann").entries]
    ['hello', 'world']
    >>> versions = queues.edit("ann", [(first, "Hello")])
    >>> queues.delete("ann", [second])
    >>> [entry.text for entry in queues.read("ann")]
    ['Hello']
    """

    def __init__(self, run: _Run, space: str) -> None:
        self._run = run
        self.space = text("space", space)

    def enqueue(
        self, queue: str, values: Iterable[NewValue], *, delay_s: float = 0, ttl_s: float = 0, request_id: str = ""
    ) -> list[str]:
        """Add entries to the end of a queue, all of them or none; returns their positions once they are durable.

        They become visible after `delay_s` and expire after `ttl_s`; 0: never. A `NewEntry` has its own. Within ten
        minutes a repeat with the same `request_id`, any text that the caller chooses, stores nothing twice.

        Raises QueueSpaceNotFound, QueueNameInvalid, QueueBatchTooLarge, ServerUnreachable …

        >>> client.spaces.create("jobs")
        SpaceInfo(...)
        >>> len(client.queues("jobs").enqueue("ann", ["one", duramen.NewRecord("two", headers={"by": "Eve"})]))
        2
        """
        return self._run(enqueue(self.space, each(queue, values), delay_s, ttl_s, request_id))

    def enqueue_many(
        self, entries: Iterable[tuple[str, NewValue]], *, delay_s: float = 0, ttl_s: float = 0, request_id: str = ""
    ) -> list[str]:
        """Add entries to many queues; those of a shard all together or not at all. More in `enqueue`.

        >>> client.spaces.create("news-feeds")
        SpaceInfo(...)
        >>> len(client.queues("news-feeds").enqueue_many([("ann", "one"), ("bob", "two")]))
        2
        """
        return self._run(enqueue(self.space, entries, delay_s, ttl_s, request_id))

    def retrieve(
        self, queue: str, start: str = "start", *, limit: int = 100, wait_s: float = 0, delayed: bool = False
    ) -> QueuePage:
        """Entries from a position on, or `start` or `end`; waits up to `wait_s` for the first if there is none.

        Each has its newest value. Deleted entries are omitted, and `delayed` entries unless requested; a reader that
        has passed a delayed entry does not see it later. Reading changes nothing.

        Raises QueueHistoryRewritten if entries that were read have been replaced: undo their effects from its `start`
        on, and continue there; QueuePositionUnknown, QueuePositionFuture, QueueSpaceNotFound, QueueNameInvalid …

        >>> client.spaces.create("tasks")
        SpaceInfo(...)
        >>> positions = client.queues("tasks").enqueue("ann", ["one", "two"])
        >>> page = client.queues("tasks").retrieve("ann", limit=1)
        >>> [entry.text for entry in client.queues("tasks").retrieve("ann", page.next).entries]
        ['two']
        """
        return self._run(retrieve(self.space, queue, start, limit, wait_s, delayed=delayed))

    def retrieve_many(
        self, queues: Mapping[str, str], *, limit: int = 100, wait_s: float = 0
    ) -> dict[str, QueuePage | DuramenError]:
        """Entries of several queues, each from its position on, `limit` in all; or a queue's error.

        >>> client.spaces.create("chats")
        SpaceInfo(...)
        >>> positions = client.queues("chats").enqueue("ann", ["hi"])
        >>> found = client.queues("chats").retrieve_many({"ann": "start", "bob": "start"})
        >>> {queue: len(page.entries) for queue, page in found.items()}
        {'ann': 1, 'bob': 0}
        """
        return self._run(retrieve_several(self.space, queues, limit, wait_s))

    def read(self, queue: str, start: str = "start") -> Iterator[QueueEntry]:
        """All entries from a position on, page by page. Raises as `retrieve`.

        >>> client.spaces.create("lists")
        SpaceInfo(...)
        >>> positions = client.queues("lists").enqueue("ann", ["a", "b"])
        >>> [entry.text for entry in client.queues("lists").read("ann", positions[1])]
        ['b']
        """
        while (page := self.retrieve(queue, start, limit=_PAGE_ENTRIES)).entries:
            yield from page.entries
            start = page.next

    def edit(self, queue: str, edits: Iterable[Edit], *, request_id: str = "") -> list[int]:
        """Change the values of entries, all of them or none; returns their new versions.

        With a version an entry is edited only if it has that version. Raises QueueEntryGone, QueueVersionStale,
        QueueHistoryRewritten, QueuePositionUnknown …

        >>> client.spaces.create("pages")
        SpaceInfo(...)
        >>> [at] = client.queues("pages").enqueue("ann", ["a"])
        >>> [version] = client.queues("pages").edit("ann", [(at, "b")])
        >>> [newer] = client.queues("pages").edit("ann", [(at, "c", version)])
        >>> client.queues("pages").edit("ann", [(at, "d", version)])
        Traceback (most recent call last):
        duramen.base.errors.QueueVersionStale: the entry at ...
        """
        return self._run(edit(self.space, queue, edits, request_id))

    def delete(self, queue: str, positions: Iterable[str], *, version: int | None = None, request_id: str = "") -> None:
        """Delete entries, all of them or none; with a `version` only if they have it. Raises as `edit`.

        >>> client.spaces.create("carts")
        SpaceInfo(...)
        >>> positions = client.queues("carts").enqueue("ann", ["a", "b"])
        >>> client.queues("carts").delete("ann", positions[:1])
        """
        self._run(delete(self.space, queue, positions, version, request_id))

    def replace(
        self,
        queue: str,
        start: str,
        values: Iterable[NewValue],
        *,
        by: str = "",
        reason: str = "",
        request_id: str = "",
    ) -> list[str]:
        """Replace everything from a position on with these entries, atomically; returns their positions.

        Readers of replaced entries get QueueHistoryRewritten with `by` and `reason`. Raises QueuePositionUnknown,
        QueuePositionFuture, QueueHistoryRewritten …

        >>> client.spaces.create("ledgers")
        SpaceInfo(...)
        >>> first, second = client.queues("ledgers").enqueue("ann", ["+5", "+7"])
        >>> positions = client.queues("ledgers").replace("ann", second, ["+6", "+7"], reason="an event was lost")
        >>> [entry.text for entry in client.queues("ledgers").read("ann")]
        ['+5', '+6', '+7']
        """
        return self._run(replace(self.space, queue, start, values, by, reason, request_id))

    def lease(
        self, queues: Iterable[str], limit: int = 1, lease_s: float = 30, *, wait_s: float = 0, fifo: bool = False
    ) -> list[LeasedEntry]:
        """Lease at most `limit` entries of these queues, fairly over the queues; waits if there is none.

        No other client gets an entry before its lease expires. Then it is delivered again, unless it was acknowledged.
        With `fifo` a queue has one lease at a time, and delivers its entries in order.

        >>> client.spaces.create("work")
        SpaceInfo(...)
        >>> positions = client.queues("work").enqueue("ann", ["one", "two"])
        >>> leased = client.queues("work").lease(["ann", "bob"], 10)
        >>> [entry.text for entry in leased]
        ['one', 'two']
        >>> client.queues("work").ack(leased)
        """
        return self._run(lease(self.space, queues, limit, lease_s, wait_s, fifo=fifo))

    def ack(self, entries: Iterable[LeasedEntry], *, request_id: str = "") -> None:
        """Acknowledge and delete leased entries, each on its own: others succeed if one is refused.

        Raises QueueLeaseExpired if the lease of an entry has expired, QueueEntryGone if it was deleted meanwhile … A
        lease from before a leader change is accepted while the entry exists.

        >>> client.spaces.create("done")
        SpaceInfo(...)
        >>> client.queues("done").ack(client.queues("done").lease(["nobody"]))
        """
        self._run(settle(self.space, "ack", entries, request(request_id)))

    def nack(self, entries: Iterable[LeasedEntry], *, delay_s: float = 0, request_id: str = "") -> None:
        """Return leased entries, which can be leased again after `delay_s`. Raises as `ack`.

        >>> client.spaces.create("retries")
        SpaceInfo(...)
        >>> positions = client.queues("retries").enqueue("ann", ["one"])
        >>> client.queues("retries").nack(client.queues("retries").lease(["ann"]))
        >>> [entry.deliveries for entry in client.queues("retries").lease(["ann"])]
        [2]
        """
        more = {**delayed_by(delay_s), **request(request_id)}
        self._run(settle(self.space, "nack", entries, more))

    def extend(self, entries: Iterable[LeasedEntry], lease_s: float = 30) -> None:
        """Extend the leases of entries to this time from now. Raises as `ack`.

        >>> client.spaces.create("slow")
        SpaceInfo(...)
        >>> positions = client.queues("slow").enqueue("ann", ["one"])
        >>> client.queues("slow").extend(client.queues("slow").lease(["ann"]), 60)
        """
        self._run(settle(self.space, "extend", entries, leased_for(lease_s)))

    def queues(self, *, prefix: str = "") -> list[str]:
        """The names of all queues, or of those with `prefix`, sorted. Reads all names of the space.

        If shards are lost, their names are missing, and a RuntimeWarning says which shards: see `names`.

        >>> client.spaces.create("names")
        SpaceInfo(...)
        >>> positions = client.queues("names").enqueue_many([("ann", "hi"), ("bob", "hi"), ("amy", "hi")])
        >>> client.queues("names").queues(prefix="a")
        ['amy', 'ann']
        """
        return self._run(list_queues(self.space, prefix))

    def names(self, *, prefix: str = "", after: str = "", limit: int = 1000) -> QueueNames:
        """A page of names of queues, unsorted; `next` is `after` of the following page, None on the last one.

        >>> client.spaces.create("pages-of-names", shards=1)
        SpaceInfo(...)
        >>> positions = client.queues("pages-of-names").enqueue_many([("ann", "hi"), ("bob", "hi")])
        >>> first = client.queues("pages-of-names").names(limit=1)
        >>> second = client.queues("pages-of-names").names(limit=1, after=first.next)
        >>> sorted([*first.queues, *second.queues])
        ['ann', 'bob']
        """
        return self._run(names_page(self.space, prefix, after, limit))

    def stats(self, queue: str) -> QueueStats:
        """The number of entries and bytes in a queue, counted at each call.

        >>> client.spaces.create("counts")
        SpaceInfo(...)
        >>> positions = client.queues("counts").enqueue("ann", ["a", "b"], delay_s=60)
        >>> stats = client.queues("counts").stats("ann")
        >>> stats.entries, stats.delayed, stats.leased
        (2, 2, 0)
        """
        return self._run(stats(self.space, queue))

    def usage(self) -> SpaceUsage:
        """The number of all entries of the space and of each shard, their bytes, and the limits of a shard.

        >>> client.spaces.create("all-counts", config={"queue.shard.max.entries": 10})
        SpaceInfo(...)
        >>> positions = client.queues("all-counts").enqueue_many([("ann", "a"), ("bob", "b")])
        >>> usage = client.queues("all-counts").usage()
        >>> usage.entries, usage.bytes, usage.max_entries
        (2, 130, 10)
        """
        return self._run(usage(self.space))

    def purge(self, queue: str, *, request_id: str = "") -> None:
        """Delete all entries of a queue in one step.

        >>> client.spaces.create("trash")
        SpaceInfo(...)
        >>> positions = client.queues("trash").enqueue("ann", ["a", "b"])
        >>> client.queues("trash").purge("ann")
        >>> (client.queues("trash").stats("ann")).entries
        0
        """
        self._run(empty(self.space, "purge", queue, request_id))

    def drop(self, queue: str, *, request_id: str = "") -> None:
        """Delete a queue with all its entries; it is not listed until its next entry.

        >>> client.spaces.create("gone")
        SpaceInfo(...)
        >>> positions = client.queues("gone").enqueue("ann", ["a"])
        >>> client.queues("gone").drop("ann")
        >>> client.queues("gone").queues()
        []
        """
        self._run(empty(self.space, "drop", queue, request_id))
