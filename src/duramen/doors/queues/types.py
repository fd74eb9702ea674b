"""Entries of queues as JSON, shared by all doors."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from duramen.codec.jsonbytes import Base64, JsonBytes, Timestamp
from duramen.codec.queue_entries import LONGEST_DELAY_MS, LONGEST_LEASE_MS, MOST_QUEUES
from duramen.doors.problems import Problem
from duramen.queues.machine import MOST_ENTRIES
from duramen.queues.positions import LARGEST_OFFSET

__all__ = [
    "LARGEST_PAGE_BYTES",
    "AckRequest",
    "DeleteRequest",
    "EditRequest",
    "EnqueueRequest",
    "EntryDeletion",
    "EntryEdit",
    "EntryInfo",
    "EntryPage",
    "EntryPlaces",
    "ExtendRequest",
    "LeasedInfo",
    "LeasedPlace",
    "LeasesInfo",
    "LeasesRequest",
    "MissingShard",
    "NackRequest",
    "NewEntryRequest",
    "QueueFound",
    "QueueNames",
    "QueueRead",
    "QueueRequest",
    "QueueStats",
    "QueuedEntryRequest",
    "QueuesFound",
    "QueuesQuery",
    "QueuesRead",
    "RefusedEntries",
    "RefusedEntry",
    "ReplaceRequest",
    "RetrieveQuery",
    "ShardUsage",
    "SpaceUsage",
    "StatsQuery",
    "UsageQuery",
    "VersionsInfo",
]

_LONGEST_WAIT_MS: Final = 30_000
LARGEST_PAGE_BYTES: Final = 1024 * 1024
_LONGEST_REQUEST_ID: Final = 128

_AT_MOST: Final = {"maxItems": MOST_ENTRIES}
"""Not checked while it is decoded: there is an error for that."""

_Wait = Annotated[
    int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long to wait for the first entry where there is none")
]
_Limit = Annotated[int, Meta(ge=1, le=MOST_ENTRIES, description="The most entries of one answer")]
_Bytes = Annotated[
    int,
    Meta(
        ge=1,
        le=LARGEST_PAGE_BYTES,
        description="The most bytes of entries in a response; the first entry may be larger",
    ),
]
_Start = Annotated[str, Meta(description="Where to begin: a position from a response, `start` or `end`")]
_Delayed = Annotated[bool, Meta(description="Whether to include delayed entries that are not visible yet")]
_Queues = Annotated[list[str], Meta(min_length=1, max_length=MOST_QUEUES)]
_LeaseMs = Annotated[int, Meta(ge=1, le=LONGEST_LEASE_MS, description="How long the lease lasts from now on")]
_DelayMs = Annotated[int, Meta(ge=0, le=LONGEST_DELAY_MS)]
_RequestId = Annotated[
    str,
    Meta(
        max_length=_LONGEST_REQUEST_ID,
        description="An id that the client chooses for this request: within ten minutes a repeat with the same id has "
        "no further effect",
    ),
]
_Version = Annotated[int, Meta(ge=0, le=LARGEST_OFFSET)] | None


class NewEntryRequest(msgspec.Struct, forbid_unknown_fields=True):
    """An entry. Bytes are text, `{"base64": "…"}` where they are not UTF-8, or null. `timestamp` defaults to now.

    The entry becomes visible after `delay_ms` and expires after `ttl_ms`; 0: never.
    """

    value: JsonBytes
    key: JsonBytes = None
    headers: list[tuple[str | Base64, JsonBytes]] = []
    timestamp: Timestamp | None = None
    delay_ms: _DelayMs = 0
    ttl_ms: _DelayMs = 0


class QueuedEntryRequest(NewEntryRequest, kw_only=True, forbid_unknown_fields=True):
    """An entry and its queue."""

    queue: str


class EnqueueRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Entries to add to queues. Entries of the same shard are added all together or not at all."""

    entries: Annotated[list[QueuedEntryRequest], Meta(min_length=1, extra_json_schema=_AT_MOST)]
    request: _RequestId = ""


class EntryPlaces(msgspec.Struct):
    """The positions of all entries of a request, in its order."""

    positions: list[str]


class RetrieveQuery(msgspec.Struct):
    """Which entries are read."""

    queue: Annotated[str, Meta(description="The queue")]
    start: _Start = msgspec.field(name="from", default="start")
    limit: _Limit = 100
    max_bytes: _Bytes = LARGEST_PAGE_BYTES
    wait_ms: _Wait = 0
    delayed: _Delayed = False


class EntryInfo(msgspec.Struct):
    """An entry. Each edit changes `version`.

    A delayed entry becomes visible at `visible_ms`; an entry expires at `expires_ms`.
    """

    position: str
    version: int
    timestamp: int
    key: JsonBytes
    value: JsonBytes
    headers: list[tuple[str | Base64, JsonBytes]]
    visible_ms: int | msgspec.UnsetType = msgspec.UNSET
    expires_ms: int | msgspec.UnsetType = msgspec.UNSET


class EntryPage(msgspec.Struct):
    """Entries of a queue; reading continues at `next`."""

    entries: list[EntryInfo]
    next: str


class QueueRead(msgspec.Struct, forbid_unknown_fields=True):
    """A queue to read, and where to begin."""

    queue: str
    start: _Start = msgspec.field(name="from", default="start")


class QueuesRead(msgspec.Struct, forbid_unknown_fields=True):
    """Queues to read together; `limit` and `max_bytes` apply to all of them together.

    Once a limit is reached, the other queues have no entries, and `next` is the position to read them from.
    """

    queues: Annotated[list[QueueRead], Meta(min_length=1, max_length=MOST_QUEUES)]
    limit: _Limit = 100
    max_bytes: _Bytes = LARGEST_PAGE_BYTES
    wait_ms: _Wait = 0
    delayed: _Delayed = False


class QueueFound(msgspec.Struct):
    """Entries of a queue, or the `problem` for which it cannot be read from that position."""

    queue: str
    entries: list[EntryInfo]
    next: str | None
    problem: Problem | None = None


class QueuesFound(msgspec.Struct):
    """Entries of each queue, in the order of the request."""

    queues: list[QueueFound]


class EntryEdit(msgspec.Struct, forbid_unknown_fields=True):
    """The new value of an entry, with `version` only if the entry has that version."""

    position: str
    value: JsonBytes
    version: _Version = None


class EditRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Entries of a queue to edit, all of them or none."""

    queue: str
    entries: Annotated[list[EntryEdit], Meta(min_length=1, extra_json_schema=_AT_MOST)]
    request: _RequestId = ""


class VersionsInfo(msgspec.Struct):
    """The new versions of the entries, in the order of the request."""

    versions: list[int]


class EntryDeletion(msgspec.Struct, forbid_unknown_fields=True):
    """An entry to delete, with `version` only if the entry has that version."""

    position: str
    version: _Version = None


class DeleteRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Entries of a queue to delete, all of them or none."""

    queue: str
    entries: Annotated[list[EntryDeletion], Meta(min_length=1, extra_json_schema=_AT_MOST)]
    request: _RequestId = ""


class ReplaceRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Removes everything in a queue from a position on and puts `entries` in its place."""

    queue: str
    start: _Start = msgspec.field(name="from")
    entries: Annotated[list[NewEntryRequest], Meta(extra_json_schema=_AT_MOST)]
    by: Annotated[str, Meta(max_length=255)] = ""
    reason: Annotated[str, Meta(max_length=1000)] = ""
    request: _RequestId = ""


class LeasesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request to lease at most `limit` entries of these queues. With `fifo` a queue has one lease at a time."""

    queues: _Queues
    limit: _Limit = 1
    lease_ms: _LeaseMs = 30_000
    wait_ms: _Wait = 0
    fifo: bool = False


class LeasedInfo(EntryInfo, kw_only=True):
    """A leased entry of a queue. `deliveries` counts its deliveries, including this one."""

    queue: str
    lease: str
    deliveries: int


class LeasesInfo(msgspec.Struct):
    """The leased entries."""

    entries: list[LeasedInfo]


class LeasedPlace(msgspec.Struct, forbid_unknown_fields=True):
    """A leased entry: its queue, its position, and its lease."""

    queue: str
    position: str
    lease: str


_Leased = Annotated[list[LeasedPlace], Meta(min_length=1, extra_json_schema=_AT_MOST)]


class AckRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Leased entries that were processed. Each is acknowledged or refused on its own."""

    entries: _Leased
    request: _RequestId = ""


class NackRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Leased entries that were not processed and can be leased again after a delay.

    Each is returned or refused on its own.
    """

    entries: _Leased
    delay_ms: _DelayMs = 0
    request: _RequestId = ""


class ExtendRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Leased entries that are still being processed. Each lease is extended or refused on its own."""

    entries: _Leased
    lease_ms: _LeaseMs = 30_000


class RefusedEntry(msgspec.Struct):
    """The number of a refused entry in the request, and the reason."""

    entry: int
    problem: Problem


class RefusedEntries(msgspec.Struct):
    """The entries that were refused; all others of the request succeeded."""

    refused: list[RefusedEntry]


class QueuesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which queues are listed."""

    prefix: Annotated[str, Meta(description="Only names with this prefix")] = ""
    after: Annotated[str, Meta(description="`next` of the previous page")] = ""
    limit: Annotated[int, Meta(ge=1, le=1000, description="The most names on one page")] = 1000


class MissingShard(msgspec.Struct):
    """A shard that the response lacks, and why: its rows are lost (`state-damaged`), or it has no leader."""

    shard: int
    reason: str


class QueueNames(msgspec.Struct):
    """Names of queues in no particular order; a page may be short.

    `next` is `after` of the next page; null: this is the last page. `missing_shards` are those among the shards of this
    page whose rows are lost: their queues are missing.
    """

    queues: list[str]
    next: str | None
    missing_shards: list[MissingShard]


class StatsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which queue is counted."""

    queue: Annotated[str, Meta(description="The queue")]


class QueueStats(msgspec.Struct):
    """Figures of a queue, counted for this response. `delayed` entries are not visible yet."""

    queue: str
    entries: int
    bytes: int
    delayed: int
    leased: int
    first: str | None
    last: str | None
    oldest_ms: int | None


class UsageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The usage of a space has no parameters."""


class ShardUsage(msgspec.Struct):
    """The entries of all queues of a shard. null: unknown until the first change after an upgrade."""

    entries: int | None
    bytes: int | None


class SpaceUsage(msgspec.Struct):
    """The entries of all queues of a space and of each shard, and the limits of a shard; null: it has none.

    The totals are null while the figures of a shard are unknown. They do not include `missing_shards`, whose
    rows are lost.
    """

    entries: int | None
    bytes: int | None
    max_entries: int | None
    max_bytes: int | None
    shards: list[ShardUsage]
    missing_shards: list[MissingShard]


class QueueRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A queue to empty or to remove."""

    queue: str
    request: _RequestId = ""
