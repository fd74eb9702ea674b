"""What the queues API takes and returns."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from duramen.client.api.records import Headers, Writable

__all__ = [
    "Edit",
    "LeasedEntry",
    "MissingShard",
    "NewEntry",
    "NewValue",
    "QueueEntry",
    "QueueNames",
    "QueuePage",
    "QueueStats",
    "ShardUsage",
    "SpaceUsage",
]


class NewEntry(msgspec.Struct, frozen=True):
    """An entry to add, with its own delay until it is visible and its own time to live, in seconds.

    None: those of the call apply; 0: none.

    >>> client.spaces.create("appointments")
    SpaceInfo(...)
    >>> new = [NewEntry("now"), NewEntry("later", delay_s=60), NewEntry("brief", key="b", ttl_s=60)]
    >>> positions = client.queues("appointments").enqueue("ann", new)
    >>> [entry.text for entry in client.queues("appointments").retrieve("ann").entries]
    ['now', 'brief']
    """

    value: bytes | str | None
    key: bytes | str | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    delay_s: float | None = None
    ttl_s: float | None = None


NewValue: TypeAlias = Writable | NewEntry


class QueueEntry(msgspec.Struct, frozen=True):
    """An entry of a queue. `position` never changes; each edit changes `version`.

    >>> client.spaces.create("notes")
    SpaceInfo(...)
    >>> positions = client.queues("notes").enqueue("ann", [NewRecord("milk", key="1")])
    >>> [entry] = client.queues("notes").retrieve("ann").entries
    >>> entry.key, entry.value, entry.text, entry.headers, entry.position == positions[0]
    (b'1', b'milk', 'milk', (), True)
    """

    position: str
    version: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def text(self) -> str:
        """The value as UTF-8, empty if there is none. Raises UnicodeDecodeError for other bytes."""
        return "" if self.value is None else self.value.decode()


class LeasedEntry(QueueEntry, frozen=True, kw_only=True):
    """An entry that this client has leased: no other client gets it before the lease expires.

    `deliveries` counts its deliveries, including this one.

    >>> client.spaces.create("leased")
    SpaceInfo(...)
    >>> positions = client.queues("leased").enqueue("ann", ["one"])
    >>> [entry] = client.queues("leased").lease(["ann"])
    >>> entry.queue, entry.text, entry.deliveries
    ('ann', 'one', 1)
    """

    queue: str
    lease: str
    deliveries: int


class QueueStats(msgspec.Struct, frozen=True):
    """Figures of a queue, counted for this response. `delayed` entries are not visible yet.

    >>> client.spaces.create("counted")
    SpaceInfo(...)
    >>> client.queues("counted").stats("nobody").entries
    0
    """

    queue: str
    entries: int
    bytes: int
    delayed: int
    leased: int
    first: str | None
    last: str | None
    oldest_ms: int | None


class ShardUsage(msgspec.Struct, frozen=True):
    """The number of the entries of a shard, and their bytes; None: unknown until the first change after an upgrade.

    >>> ShardUsage(2, 131).entries
    2
    """

    entries: int | None
    bytes: int | None


class MissingShard(msgspec.Struct, frozen=True):
    """A shard whose rows are lost (`state-damaged`), so that a result lacks its queues.

    >>> MissingShard(1, "the rows of partition 1 of mail are lost").shard
    1
    """

    shard: int
    reason: str


class SpaceUsage(msgspec.Struct, frozen=True):
    """The number of all entries of a space, and their bytes, also of each shard; `max_` are the limits of a shard.

    The totals are None while the figures of a shard are unknown: see `ShardUsage`. They do not include
    `missing_shards`, whose rows are lost.

    >>> client.spaces.create("used", shards=2)
    SpaceInfo(...)
    >>> client.queues("used").usage().entries
    0
    """

    entries: int | None
    bytes: int | None
    max_entries: int | None
    max_bytes: int | None
    shards: tuple[ShardUsage, ...]
    missing_shards: tuple[MissingShard, ...] = ()


class QueueNames(NamedTuple):
    """Names of queues, and `after` of the next page; None: this is the last page.

    `missing_shards` are those of the page's shards that are lost: names of their queues are missing.

    >>> QueueNames([], None).next is None
    True
    """

    queues: Sequence[str]
    next: str | None
    missing_shards: Sequence[MissingShard] = ()


class QueuePage(NamedTuple):
    """Entries in order, and the position at which reading continues.

    >>> QueuePage([], "0.0").next
    '0.0'
    """

    entries: Sequence[QueueEntry]
    next: str


Edit: TypeAlias = tuple[str, bytes | str | None] | tuple[str, bytes | str | None, int]
"""The position of an entry, its new value and, if the entry has to have it, a version."""
