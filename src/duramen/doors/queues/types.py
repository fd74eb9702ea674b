"""Entries of queues as JSON, as all doors take and give them."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from duramen.codec.jsonbytes import Base64, JsonBytes, Timestamp
from duramen.codec.queue_entries import LONGEST_DELAY_MS, LONGEST_LEASE_MS, MOST_QUEUES
from duramen.doors.problems import Problem
from duramen.queues.machine import MOST_ENTRIES

__all__ = [
    "LARGEST_PAGE_BYTES",
    "AckWish",
    "DeleteWish",
    "EditWish",
    "EnqueueWish",
    "EntryDeletion",
    "EntryEdit",
    "EntryInfo",
    "EntryPage",
    "EntryPlaces",
    "ExtendWish",
    "LeasedInfo",
    "LeasedPlace",
    "LeasesInfo",
    "LeasesWish",
    "NackWish",
    "NewEntryWish",
    "QueueFound",
    "QueueNames",
    "QueueRead",
    "QueueStats",
    "QueueWish",
    "QueuedEntryWish",
    "QueuesFound",
    "QueuesQuery",
    "QueuesRead",
    "RefusedEntries",
    "RefusedEntry",
    "ReplaceWish",
    "RetrieveQuery",
    "StatsQuery",
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
    int, Meta(ge=1, le=LARGEST_PAGE_BYTES, description="The most bytes of entries, a queue; one comes in any case")
]
_Start = Annotated[str, Meta(description="A position as answers have it, `start` or `end`: where to begin")]
_Delayed = Annotated[bool, Meta(description="Whether entries are wanted too whose delay is not over")]
_Queues = Annotated[list[str], Meta(min_length=1, max_length=MOST_QUEUES)]
_LeaseMs = Annotated[int, Meta(ge=1, le=LONGEST_LEASE_MS, description="How long the lease lasts from now on")]
_DelayMs = Annotated[int, Meta(ge=0, le=LONGEST_DELAY_MS)]
_RequestId = Annotated[
    str,
    Meta(
        max_length=_LONGEST_REQUEST_ID,
        description="An id of the client's for this request: a repeat with it does nothing more for ten minutes",
    ),
]
_Version = Annotated[int, Meta(ge=0)] | None


class NewEntryWish(msgspec.Struct, forbid_unknown_fields=True):
    """An entry. Bytes are text, `{"base64": "…"}` where they are not UTF-8, or null. Without `timestamp`: now.

    It is shown after `delay_ms`, and is gone after `ttl_ms`, 0: never.
    """

    value: JsonBytes
    key: JsonBytes = None
    headers: list[tuple[str | Base64, JsonBytes]] = []
    timestamp: Timestamp | None = None
    delay_ms: _DelayMs = 0
    ttl_ms: _DelayMs = 0


class QueuedEntryWish(NewEntryWish, kw_only=True, forbid_unknown_fields=True):
    """An entry, and the queue that it is put into."""

    queue: str


class EnqueueWish(msgspec.Struct, forbid_unknown_fields=True):
    """Entries for queues: those of a shard are put in all together or not at all."""

    entries: Annotated[list[QueuedEntryWish], Meta(min_length=1, extra_json_schema=_AT_MOST)]
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
    """An entry. `version` changes with each edit; `visible_ms` is when a delayed one is shown, `expires_ms` its end."""

    position: str
    version: int
    timestamp: int
    key: JsonBytes
    value: JsonBytes
    headers: list[tuple[str | Base64, JsonBytes]]
    visible_ms: int | msgspec.UnsetType = msgspec.UNSET
    expires_ms: int | msgspec.UnsetType = msgspec.UNSET


class EntryPage(msgspec.Struct):
    """Entries of a queue, and where to read on."""

    entries: list[EntryInfo]
    next: str


class QueueRead(msgspec.Struct, forbid_unknown_fields=True):
    """A queue, and where to begin."""

    queue: str
    start: _Start = msgspec.field(name="from", default="start")


class QueuesRead(msgspec.Struct, forbid_unknown_fields=True):
    """Queues that are read together; `limit` is for all of them."""

    queues: Annotated[list[QueueRead], Meta(min_length=1, max_length=MOST_QUEUES)]
    limit: _Limit = 100
    max_bytes: _Bytes = LARGEST_PAGE_BYTES
    wait_ms: _Wait = 0
    delayed: _Delayed = False


class QueueFound(msgspec.Struct):
    """What is in a queue, or the `problem` why it cannot be read from there on."""

    queue: str
    entries: list[EntryInfo]
    next: str | None
    problem: Problem | None = None


class QueuesFound(msgspec.Struct):
    """The queues in the order of the request."""

    queues: list[QueueFound]


class EntryEdit(msgspec.Struct, forbid_unknown_fields=True):
    """The new value of an entry; with `version` only where the entry has it."""

    position: str
    value: JsonBytes
    version: _Version = None


class EditWish(msgspec.Struct, forbid_unknown_fields=True):
    """Entries of a queue to edit: all of them or none."""

    queue: str
    entries: Annotated[list[EntryEdit], Meta(min_length=1, extra_json_schema=_AT_MOST)]
    request: _RequestId = ""


class VersionsInfo(msgspec.Struct):
    """The versions that the entries have now, in the order of the request."""

    versions: list[int]


class EntryDeletion(msgspec.Struct, forbid_unknown_fields=True):
    """An entry to delete; with `version` only where the entry has it."""

    position: str
    version: _Version = None


class DeleteWish(msgspec.Struct, forbid_unknown_fields=True):
    """Entries of a queue to delete: all of them or none."""

    queue: str
    entries: Annotated[list[EntryDeletion], Meta(min_length=1, extra_json_schema=_AT_MOST)]
    request: _RequestId = ""


class ReplaceWish(msgspec.Struct, forbid_unknown_fields=True):
    """Everything in a queue from a position on is taken back, and `entries` come in its place."""

    queue: str
    start: _Start = msgspec.field(name="from")
    entries: Annotated[list[NewEntryWish], Meta(extra_json_schema=_AT_MOST)]
    by: Annotated[str, Meta(max_length=255)] = ""
    reason: Annotated[str, Meta(max_length=1000)] = ""
    request: _RequestId = ""


class LeasesWish(msgspec.Struct, forbid_unknown_fields=True):
    """Entries of these queues to lease, `limit` in all; with `fifo` a queue has one lease at a time."""

    queues: _Queues
    limit: _Limit = 1
    lease_ms: _LeaseMs = 30_000
    wait_ms: _Wait = 0
    fifo: bool = False


class LeasedInfo(EntryInfo, kw_only=True):
    """An entry of a queue that is leased. `deliveries` is how many times it was delivered, this time included."""

    queue: str
    lease: str
    deliveries: int


class LeasesInfo(msgspec.Struct):
    """What was leased."""

    entries: list[LeasedInfo]


class LeasedPlace(msgspec.Struct, forbid_unknown_fields=True):
    """A leased entry: its queue, its position, and the lease that it came with."""

    queue: str
    position: str
    lease: str


_Leased = Annotated[list[LeasedPlace], Meta(min_length=1, extra_json_schema=_AT_MOST)]


class AckWish(msgspec.Struct, forbid_unknown_fields=True):
    """Leased entries that were processed; each counts for itself."""

    entries: _Leased
    request: _RequestId = ""


class NackWish(msgspec.Struct, forbid_unknown_fields=True):
    """Leased entries that were not processed, to be leased again after a delay; each counts for itself."""

    entries: _Leased
    delay_ms: _DelayMs = 0
    request: _RequestId = ""


class ExtendWish(msgspec.Struct, forbid_unknown_fields=True):
    """Leased entries that are still being processed; each counts for itself."""

    entries: _Leased
    lease_ms: _LeaseMs = 30_000


class RefusedEntry(msgspec.Struct):
    """An entry of a request, by its number, and why nothing was done with it."""

    entry: int
    problem: Problem


class RefusedEntries(msgspec.Struct):
    """The entries that were refused; all others of the request are done."""

    refused: list[RefusedEntry]


class QueuesQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which queues are listed."""

    prefix: Annotated[str, Meta(description="Only those whose names begin like this")] = ""
    after: Annotated[str, Meta(description="The `next` of the page before")] = ""
    limit: Annotated[int, Meta(ge=1, le=1000, description="The most names of one page")] = 1000


class QueueNames(msgspec.Struct):
    """Names of queues in no order; a page may be short. `next` is what comes `after`, null on the last page."""

    queues: list[str]
    next: str | None


class StatsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which queue is counted."""

    queue: Annotated[str, Meta(description="The queue")]


class QueueStats(msgspec.Struct):
    """What is in a queue: it was counted for this answer. `delayed` entries are not shown yet."""

    queue: str
    entries: int
    bytes: int
    delayed: int
    leased: int
    first: str | None
    last: str | None
    oldest_ms: int | None


class QueueWish(msgspec.Struct, forbid_unknown_fields=True):
    """A queue to empty or to remove."""

    queue: str
    request: _RequestId = ""
