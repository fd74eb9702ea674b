"""Queue spaces, and the entries of their queues, as JSON."""

from typing import Annotated

import msgspec
from msgspec import Meta

from duramen.codec.jsonbytes import Base64, JsonBytes
from duramen.doors.http.types.types import MOST_RECORDS, Problem, Timestamp

__all__ = [
    "DeleteWish",
    "EditWish",
    "EnqueueWish",
    "EntryInfo",
    "EntryPage",
    "EntryPlaces",
    "NewEntryWish",
    "QueueFound",
    "QueueRead",
    "QueuesFound",
    "QueuesRead",
    "ReplaceWish",
    "RetrieveQuery",
    "SpaceInfo",
    "SpaceList",
    "SpaceWish",
    "SpacesQuery",
    "VersionsInfo",
]

_LONGEST_WAIT_MS = 30_000
_LARGEST_PAGE_BYTES = 1024 * 1024
_MOST_QUEUES = 1000
_MOST_SHARDS = 1000

_Wait = Annotated[
    int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long to wait for the first entry where there is none")
]
_Limit = Annotated[int, Meta(ge=1, le=MOST_RECORDS, description="The most entries of one answer")]
_Bytes = Annotated[
    int, Meta(ge=1, le=_LARGEST_PAGE_BYTES, description="The most bytes of entries, a queue; one comes in any case")
]
_Start = Annotated[str, Meta(description="A position as answers have it, `start` or `end`: where to begin")]
_Version = Annotated[int, Meta(ge=0)] | None


class SpaceWish(msgspec.Struct, forbid_unknown_fields=True):
    """A queue space to make. The number of its shards stays."""

    name: str
    shards: Annotated[int, Meta(ge=1, le=_MOST_SHARDS)] = 16
    config: dict[str, str | int | float | bool] = {}


class SpaceInfo(msgspec.Struct):
    """A queue space. `bytes` are those of its log; `created` says whether the request made it."""

    name: str
    shards: int
    created_at_ms: int
    bytes: int
    config: dict[str, str]
    created: bool | msgspec.UnsetType = msgspec.UNSET


class SpacesQuery(msgspec.Struct):
    """Which spaces are listed."""

    prefix: Annotated[str, Meta(description="Only those whose names begin like this")] = ""
    after: Annotated[str, Meta(description="Only those behind this name: the `next` of the page before")] = ""
    limit: Annotated[int, Meta(ge=1, le=1000, description="The most spaces of one page")] = 1000


class SpaceList(msgspec.Struct):
    """Spaces in the order of their names; `next` is what comes `after`, null on the last page."""

    spaces: list[SpaceInfo]
    next: str | None


class NewEntryWish(msgspec.Struct, forbid_unknown_fields=True):
    """An entry. Bytes are text, `{"base64": "…"}` where they are not UTF-8, or null. Without `timestamp`: now."""

    value: JsonBytes
    key: JsonBytes = None
    headers: list[tuple[str | Base64, JsonBytes]] = []
    timestamp: Timestamp | None = None


class QueuedEntryWish(NewEntryWish, kw_only=True, forbid_unknown_fields=True):
    """An entry, and the queue that it is put into."""

    queue: str


class EnqueueWish(msgspec.Struct, forbid_unknown_fields=True):
    """Entries for queues: those of a shard are put in all together or not at all."""

    entries: Annotated[list[QueuedEntryWish], Meta(min_length=1, max_length=MOST_RECORDS)]


class EntryPlaces(msgspec.Struct):
    """The positions of all entries of a request, in its order."""

    positions: list[str]


class RetrieveQuery(msgspec.Struct):
    """Which entries are read."""

    queue: Annotated[str, Meta(description="The queue")]
    start: _Start = msgspec.field(name="from", default="start")
    limit: _Limit = 100
    max_bytes: _Bytes = _LARGEST_PAGE_BYTES
    wait_ms: _Wait = 0


class EntryInfo(msgspec.Struct):
    """An entry. `version` changes with each edit."""

    position: str
    version: int
    timestamp: int
    key: JsonBytes
    value: JsonBytes
    headers: list[tuple[str | Base64, JsonBytes]]


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

    queues: Annotated[list[QueueRead], Meta(min_length=1, max_length=_MOST_QUEUES)]
    limit: _Limit = 100
    max_bytes: _Bytes = _LARGEST_PAGE_BYTES
    wait_ms: _Wait = 0


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
    entries: Annotated[list[EntryEdit], Meta(min_length=1, max_length=MOST_RECORDS)]


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
    entries: Annotated[list[EntryDeletion], Meta(min_length=1, max_length=MOST_RECORDS)]


class ReplaceWish(msgspec.Struct, forbid_unknown_fields=True):
    """Everything in a queue from a position on is taken back, and `entries` come in its place."""

    queue: str
    start: _Start = msgspec.field(name="from")
    entries: Annotated[list[NewEntryWish], Meta(max_length=MOST_RECORDS)]
    by: Annotated[str, Meta(max_length=255)] = ""
    reason: Annotated[str, Meta(max_length=1000)] = ""
