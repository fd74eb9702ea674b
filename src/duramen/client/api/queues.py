"""Queues of the blocking client; `queue_requests` has the requests."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Protocol, TypeVar

from duramen.base.errors import DuramenError
from duramen.client.api.arguments import text
from duramen.client.api.http import Program
from duramen.client.api.queue_requests import (
    Edit,
    LeasedEntry,
    QueueEntry,
    QueuePage,
    QueueStats,
    delayed_by,
    delete,
    each,
    edit,
    empty,
    enqueue,
    lease,
    leased_for,
    list_queues,
    replace,
    request,
    retrieve,
    retrieve_several,
    settle,
    stats,
)
from duramen.client.api.records import Writable

__all__ = ["LeasedEntry", "QueueEntry", "QueuePage", "QueueStats", "Queues"]

_T = TypeVar("_T")

_PAGE_ENTRIES: Final = 10_000


class _Run(Protocol):
    def __call__(self, program: Program[_T]) -> _T: ...


class Queues:
    """The queues of a space. A queue is there once something was put into it, and costs nothing while it is idle.

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
        self, queue: str, values: Iterable[Writable], *, delay_s: float = 0, ttl_s: float = 0, request_id: str = ""
    ) -> list[str]:
        """Put entries at the end of a queue, all of them or none; their positions, once they are durable.

        They are shown after `delay_s`, and are gone after `ttl_s`, 0: never. A repeat with the same `request_id`, any
        text of the caller's, puts nothing in twice for ten minutes.

        Raises QueueSpaceNotFound, QueueNameInvalid, QueueBatchTooLarge, ServerUnreachable …

        >>> client.spaces.create("jobs")
        SpaceInfo(...)
        >>> len(client.queues("jobs").enqueue("ann", ["one", duramen.NewRecord("two", headers={"by": "Eve"})]))
        2
        """
        return self._run(enqueue(self.space, each(queue, values), delay_s, ttl_s, request_id))

    def enqueue_many(
        self, entries: Iterable[tuple[str, Writable]], *, delay_s: float = 0, ttl_s: float = 0, request_id: str = ""
    ) -> list[str]:
        """Put entries into many queues; those of a shard all together or not at all. More in `enqueue`.

        >>> client.spaces.create("news-feeds")
        SpaceInfo(...)
        >>> len(client.queues("news-feeds").enqueue_many([("ann", "one"), ("bob", "two")]))
        2
        """
        return self._run(enqueue(self.space, entries, delay_s, ttl_s, request_id))

    def retrieve(
        self, queue: str, start: str = "start", *, limit: int = 100, wait_s: float = 0, delayed: bool = False
    ) -> QueuePage:
        """Entries from a position on, `start` or `end`; where there is none, wait for the first for `wait_s`.

        Each has its newest value; what was deleted is left out, and, unless they are asked for, `delayed` entries:
        a reader that has gone on behind one does not see it any more. Reading changes nothing.

        Raises QueueHistoryRewritten where what was read was taken back: undo what came of entries from its `start` on,
        and go on there; QueuePositionUnknown, QueuePositionFuture, QueueSpaceNotFound, QueueNameInvalid …

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
        """Entries of several queues, each from its position on, `limit` in all; or why a queue cannot be read there.

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
        """Give entries other values, all of them or none; the versions that they have then.

        With a version an entry is edited only where it has that one. Raises QueueEntryGone, QueueVersionStale,
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
        """Delete entries, all of them or none; with a `version` only where they have it. Raises as `edit`.

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
        values: Iterable[Writable],
        *,
        by: str = "",
        reason: str = "",
        request_id: str = "",
    ) -> list[str]:
        """Take back everything from a position on, and put these entries there, in one step; their positions.

        Whoever has read what is taken back gets QueueHistoryRewritten with `by` and `reason`. Raises
        QueuePositionUnknown, QueuePositionFuture, QueueHistoryRewritten …

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
        """Lease at most `limit` entries of these queues in all, fair over them; where there is none, wait for one.

        Nobody else gets an entry before its lease expires. It is delivered again then, unless it was acknowledged.
        With `fifo` a queue has one lease at a time, and its entries come in their order.

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
        """Acknowledge leased entries: they are gone. Each counts for itself, also where others are refused.

        Raises QueueLeaseExpired where the lease of one has expired, QueueEntryGone where it was deleted meanwhile …
        A lease from before a change of leader counts here as long as the entry is there.

        >>> client.spaces.create("done")
        SpaceInfo(...)
        >>> client.queues("done").ack(client.queues("done").lease(["nobody"]))
        """
        self._run(settle(self.space, "ack", entries, request(request_id)))

    def nack(self, entries: Iterable[LeasedEntry], *, delay_s: float = 0, request_id: str = "") -> None:
        """Give leased entries back, to be leased again after `delay_s`. Raises as `ack`.

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
        """Have the leases of entries last so much longer from now on. Raises as `ack`.

        >>> client.spaces.create("slow")
        SpaceInfo(...)
        >>> positions = client.queues("slow").enqueue("ann", ["one"])
        >>> client.queues("slow").extend(client.queues("slow").lease(["ann"]), 60)
        """
        self._run(settle(self.space, "extend", entries, leased_for(lease_s)))

    def queues(self, *, prefix: str = "") -> list[str]:
        """The names of all queues, or of those that begin with `prefix`, sorted. All names of the space are read.

        >>> client.spaces.create("names")
        SpaceInfo(...)
        >>> positions = client.queues("names").enqueue_many([("ann", "hi"), ("bob", "hi"), ("amy", "hi")])
        >>> client.queues("names").queues(prefix="a")
        ['amy', 'ann']
        """
        return self._run(list_queues(self.space, prefix))

    def stats(self, queue: str) -> QueueStats:
        """Count what is in a queue.

        >>> client.spaces.create("counts")
        SpaceInfo(...)
        >>> positions = client.queues("counts").enqueue("ann", ["a", "b"], delay_s=60)
        >>> stats = client.queues("counts").stats("ann")
        >>> stats.entries, stats.delayed, stats.leased
        (2, 2, 0)
        """
        return self._run(stats(self.space, queue))

    def purge(self, queue: str, *, request_id: str = "") -> None:
        """Delete every entry of a queue, in one step whatever is in it.

        >>> client.spaces.create("trash")
        SpaceInfo(...)
        >>> positions = client.queues("trash").enqueue("ann", ["a", "b"])
        >>> client.queues("trash").purge("ann")
        >>> (client.queues("trash").stats("ann")).entries
        0
        """
        self._run(empty(self.space, "purge", queue, request_id))

    def drop(self, queue: str, *, request_id: str = "") -> None:
        """Remove a queue with all its entries: it is not listed until something is put into it again.

        >>> client.spaces.create("gone")
        SpaceInfo(...)
        >>> positions = client.queues("gone").enqueue("ann", ["a"])
        >>> client.queues("gone").drop("ann")
        >>> client.queues("gone").queues()
        []
        """
        self._run(empty(self.space, "drop", queue, request_id))
