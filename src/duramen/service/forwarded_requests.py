"""Requests that nodes forward for their clients, and the responses.

The receiving node answers from its own state and never forwards: a request goes to one other node at most.
"""

from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from duramen.base.errors import DuramenError
from duramen.base.ids import Position as LogPosition
from duramen.base.positions import At, Last, Position, Since
from duramen.broker.partition import LATEST
from duramen.rpc.errors import Refused
from duramen.rpc.methods import Method

__all__ = [
    "APPEND",
    "CHANGE_GROUP",
    "CHANGE_QUEUES",
    "DELETE_ALL_RECORDS",
    "DELETE_RECORDS",
    "FIND_LAGS",
    "FIND_TOPIC_NAMES",
    "KNOW_TOPIC",
    "MOST_BATCHES",
    "OPEN_EXPORT",
    "READ",
    "READ_EXPORT",
    "READ_INVENTORY_EXPORT",
    "READ_QUEUES",
    "SHOW_GROUP",
    "SNAPSHOT",
    "AppendRequest",
    "AppendResponse",
    "AppendResult",
    "AskQueues",
    "AskSnapshot",
    "Bytes",
    "Delete",
    "DeleteRecordsResponse",
    "ExportOpened",
    "ExportPage",
    "FindLags",
    "FindTopicNames",
    "KnowTopic",
    "LagsFound",
    "Manage",
    "Managed",
    "OpenExport",
    "QueueOffset",
    "Read",
    "ReadExport",
    "ReadInventoryExport",
    "Request",
    "TopicKnown",
    "TopicNamesFound",
    "Where",
    "method_of",
    "position_of",
    "where_of",
]

MOST_BATCHES: Final = 10_000
"""Batches of one request."""

_INT64_MAX: Final = (1 << 63) - 1
_LONGEST_WAIT_MS: Final = 60_000
_MOST_SHARDS: Final = 10_000
_LARGEST_PAGE_BYTES: Final = 16 << 20
_MOST_BYTES: Final = 1 << 20  # and one batch in any case

_Id = Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
_Index = Annotated[int, msgspec.Meta(ge=0, le=(1 << 31) - 1)]
_Offset = Annotated[int, msgspec.Meta(ge=-1, le=_INT64_MAX)]
Where = tuple[Literal["start", "end", "at", "last", "since"], Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]]
"""A place in a log: its kind, and the offset, count or time in ms that belongs to it."""


class AppendRequest(msgspec.Struct, frozen=True, array_like=True, tag="append"):
    """Batches for partitions of one stream, in their order, each as its leader would get it of a producer."""

    stream_id: _Id
    batches: Annotated[list[tuple[_Index, bytearray]], msgspec.Meta(min_length=1, max_length=MOST_BATCHES)]


class Read(msgspec.Struct, frozen=True, array_like=True, tag="read"):
    """Whole batches from a place on, below the high watermark; at once, or as soon as there are some."""

    stream_id: _Id
    partition: _Index
    where: Where
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=_MOST_BYTES)]
    max_wait_ms: Annotated[int, msgspec.Meta(ge=0, le=_LONGEST_WAIT_MS)]


class Delete(msgspec.Struct, frozen=True, array_like=True, tag="delete"):
    """The records before an offset are to go; -1: before the high watermark."""

    stream_id: _Id
    partition: _Index
    before: _Offset


class Manage(msgspec.Struct, frozen=True, array_like=True, tag="manage"):
    """To a group's coordinator: describe it, reset its offsets according to the body (JSON), or delete it."""

    what: Literal["show", "move", "delete"]
    group_id: str
    body: bytes


class AskQueues(msgspec.Struct, frozen=True, array_like=True):
    """To the leader of a shard: add entries to queues, change a queue, or read entries.

    Also: settle leased entries, which only the leader knows, and wait for entries to lease. The body is a record batch
    to add, otherwise MessagePack, and so is the response.
    """

    what: Literal["put", "change", "read", "settle", "query", "wait"]
    stream_id: _Id
    partition: _Index
    body: bytes


class KnowTopic(msgspec.Struct, frozen=True, array_like=True):
    """A client was told the id of a topic name, and will use that id in requests."""

    name: str


class TopicKnown(msgspec.Struct, frozen=True, array_like=True):
    """The node finds the topic by its id from here on."""


class AskSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """To the leader of a partition: find a snapshot, read from one, or report the bytes that some hold.

    The body is JSON, and so is the response, except for reads, which are MessagePack.
    """

    what: Literal["find", "read", "held"]
    stream_id: _Id
    partition: _Index
    body: bytes


class OpenExport(msgspec.Struct, frozen=True, array_like=True):
    """The leader of the first of these shards is to keep rows as they are, of all of them that it leads."""

    stream_id: _Id
    shards: Annotated[list[_Index], msgspec.Meta(min_length=1, max_length=_MOST_SHARDS)]


class ExportOpened(msgspec.Struct, frozen=True, array_like=True):
    """The export of a node, which its name begins with, and how far it has each shard."""

    export: str
    positions: list[tuple[_Index, LogPosition]]


class ReadExport(msgspec.Struct, frozen=True, array_like=True):
    """The node that has an export is to read runs of a shard, of queues in a range of hashes."""

    stream_id: _Id
    partition: _Index
    export: str
    first: bytes
    end: bytes
    after: bytes
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_PAGE_BYTES)]


class ReadInventoryExport(msgspec.Struct, frozen=True, array_like=True):
    """The node that has an export of the inventory is to read from a shard.

    Topics by ranges of their sequences, the sequence after the last one, or all tenants and namespaces.
    """

    stream_id: _Id
    partition: _Index
    export: str
    what: Literal["topics", "sequences", "directory"]
    first: Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]
    end: Annotated[int, msgspec.Meta(ge=0, le=_INT64_MAX)]
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=_LARGEST_PAGE_BYTES)]
    names: bool
    policies: bool


class ExportPage(msgspec.Struct, frozen=True, array_like=True):
    """A page of runs or of topics, or another answer in MessagePack."""

    content: bytes


class FindTopicNames(msgspec.Struct, frozen=True, array_like=True):
    """Asks for the names of topics with these ids, as far as the node has sent them to clients."""

    ids: list[bytes]


class TopicNamesFound(msgspec.Struct, frozen=True, array_like=True):
    """The names in the order of the ids; empty: not known here."""

    names: list[str]


class QueueOffset(NamedTuple):
    """An offset in a queue of a space."""

    stream_id: bytes
    queue: bytes
    offset: int


class FindLags(msgspec.Struct, frozen=True, array_like=True):
    """The leader of queues' shards is to count what is behind offsets, up to `most` of each."""

    wanted: list[QueueOffset]
    most: int


class LagsFound(msgspec.Struct, frozen=True, array_like=True):
    """Of each the start, the end, the number of entries behind, and the first one's timestamp; None: not led here."""

    lags: list[tuple[int, int, int, int] | None]


Request = AppendRequest | Read | Delete | Manage


class AppendResult(NamedTuple):
    """The outcome of a batch: its base offset, or the error; `unknown`: it may still be in the log."""

    base_offset: int
    error: DuramenError | None = None
    unknown: bool = False


class AppendResponse(msgspec.Struct, frozen=True, array_like=True, tag="appended"):
    """The results of all batches, in their order."""

    results: tuple[tuple[_Offset, Refused | None, bool], ...]

    @classmethod
    def of(cls, results: list[AppendResult]) -> "AppendResponse":
        """Results in the form for another node."""
        return cls(tuple((one.base_offset, Refused.of_any(one.error), one.unknown) for one in results))

    def read(self) -> list[AppendResult]:
        """The results."""
        return [
            AppendResult(offset, None if why is None else why.error(), unknown) for offset, why, unknown in self.results
        ]


class Bytes(msgspec.Struct, frozen=True, array_like=True, tag="bytes"):
    """Whole batches with the records from `offset` on; none if there are none yet."""

    offset: _Offset
    high_watermark: _Offset
    data: bytes


class DeleteRecordsResponse(msgspec.Struct, frozen=True, array_like=True, tag="deleted"):
    """The first offset that is left."""

    start_offset: _Offset


class Managed(msgspec.Struct, frozen=True, array_like=True, tag="managed"):
    """The response to the client about a group: JSON, or nothing."""

    content: bytes


APPEND: Final = Method("append", AppendRequest, AppendResponse, idempotent=False, deadline_ms=_LONGEST_WAIT_MS)
READ: Final = Method("read", Read, Bytes, idempotent=True, deadline_ms=2 * _LONGEST_WAIT_MS)
DELETE_RECORDS: Final = Method(
    "delete-records", Delete, DeleteRecordsResponse, idempotent=True, deadline_ms=_LONGEST_WAIT_MS
)
DELETE_ALL_RECORDS: Final = Method(
    "delete-all-records", Delete, DeleteRecordsResponse, idempotent=False, deadline_ms=_LONGEST_WAIT_MS
)
SHOW_GROUP: Final = Method("show-group", Manage, Managed, idempotent=True, deadline_ms=_LONGEST_WAIT_MS)
CHANGE_GROUP: Final = Method("change-group", Manage, Managed, idempotent=False, deadline_ms=_LONGEST_WAIT_MS)

READ_QUEUES: Final = Method("read-queues", AskQueues, Managed, idempotent=True, deadline_ms=2 * _LONGEST_WAIT_MS)
CHANGE_QUEUES: Final = Method("change-queues", AskQueues, Managed, idempotent=False, deadline_ms=_LONGEST_WAIT_MS)
KNOW_TOPIC: Final = Method("know-topic", KnowTopic, TopicKnown, idempotent=True)
SNAPSHOT: Final = Method("snapshot", AskSnapshot, Managed, idempotent=True, deadline_ms=2 * _LONGEST_WAIT_MS)

OPEN_EXPORT: Final = Method("open-export", OpenExport, ExportOpened, idempotent=True, deadline_ms=_LONGEST_WAIT_MS)
READ_EXPORT: Final = Method("read-export", ReadExport, ExportPage, idempotent=True, deadline_ms=_LONGEST_WAIT_MS)
READ_INVENTORY_EXPORT: Final = Method(
    "read-inventory-export", ReadInventoryExport, ExportPage, idempotent=True, deadline_ms=_LONGEST_WAIT_MS
)

FIND_TOPIC_NAMES: Final = Method("find-topic-names", FindTopicNames, TopicNamesFound, idempotent=True)
FIND_LAGS: Final = Method("find-lags", FindLags, LagsFound, idempotent=True)


def method_of(request: AppendRequest | Read | Delete | Manage) -> Method[Any, Any]:
    """The method that a request belongs to: what may be repeated is one, what may not is another."""
    match request:
        case AppendRequest():
            return APPEND
        case Read():
            return READ
        case Delete():
            return DELETE_ALL_RECORDS if request.before == LATEST else DELETE_RECORDS
        case Manage():
            return SHOW_GROUP if request.what == "show" else CHANGE_GROUP


def where_of(position: Position) -> Where:
    """A position in a log, in the form for another node."""
    match position:
        case At():
            return "at", position.offset
        case Last():
            return "last", position.count
        case Since():
            return "since", position.timestamp_ms
        case _:
            return position, 0


def position_of(where: Where) -> Position:
    """The place that another node means."""
    kind, number = where
    match kind:
        case "at":
            return At(number)
        case "last":
            return Last(number)
        case "since":
            return Since(number)
        case _:
            return kind
