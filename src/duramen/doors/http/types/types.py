"""What the HTTP door takes and gives, as types: checked on the way in, JSON on the way out."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from duramen.codec.jsonbytes import Base64, JsonBytes, Timestamp

__all__ = [
    "MOST_RECORDS",
    "AssignedPartition",
    "DamagedRange",
    "Deleted",
    "DeletionWish",
    "Deletions",
    "FloorInfo",
    "FollowerLag",
    "GapInfo",
    "GroupInfo",
    "GroupList",
    "GroupOffset",
    "GroupSummary",
    "GroupsQuery",
    "KnownNode",
    "LateRecords",
    "MemberInfo",
    "NatsGaps",
    "NodeHealth",
    "NodeInfo",
    "NodeList",
    "OffsetMove",
    "OffsetMoves",
    "OffsetsWish",
    "PartitionInfo",
    "Place",
    "ProduceQuery",
    "RecordInfo",
    "RecordPage",
    "RecordPlaces",
    "RecordWish",
    "RecordWishes",
    "RecordsQuery",
    "ReplicatedInfo",
    "ReplicatedQuery",
    "StreamChange",
    "StreamInfo",
    "StreamList",
    "StreamWish",
    "StreamsQuery",
    "ViewInfo",
]

MOST_RECORDS: Final = 10_000
"""Records of one request or answer."""

_LONGEST_WAIT_MS: Final = 30_000
_LARGEST_PAGE_BYTES: Final = 1024 * 1024
_INT64_MAX: Final = (1 << 63) - 1


class FollowerLag(msgspec.Struct):
    """What a node lacks of the partitions that the asked one leads: in how many, and how many records together.

    Of those that are `unheard` the leader does not know yet. `seconds`: for how long at most it has lacked something.
    """

    node_id: int
    partitions: int
    records: int
    unheard: int
    seconds: float


class NodeHealth(msgspec.Struct):
    """How the node is. `problem` is what `/readyz` says; empty: it is ready. `storage`: writable, full or failed."""

    problem: str
    storage: str
    uptime_seconds: float
    disk_free_bytes: int
    descriptors: int
    descriptors_limit: int


class NodeInfo(msgspec.Struct):
    """The node that answers."""

    version: str
    node_id: int
    cluster_id: str
    addresses: dict[str, str]
    health: NodeHealth
    followers: list[FollowerLag]


class KnownNode(msgspec.Struct):
    """A node of the cluster; of others than the one that answers the version is not known."""

    version: str | None
    node_id: int
    cluster_id: str
    addresses: dict[str, str]


class NodeList(msgspec.Struct):
    """All nodes."""

    nodes: list[KnownNode]


class StreamsQuery(msgspec.Struct):
    """Which streams are listed."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most streams of one answer")] = 1000
    after: Annotated[str, Meta(description="Go on behind this name: the `next` of the answer before")] = ""
    prefix: Annotated[str, Meta(description="Only names that begin like this")] = ""


class StreamWish(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /v1/streams` takes. `partitions`, `replication_factor` absent: the broker's defaults.

    Config values are text.
    """

    name: str
    partitions: int | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32_767)] | None = None
    subjects: list[str] = []
    config: dict[str, str | int | float | bool] = {}


class StreamChange(msgspec.Struct, forbid_unknown_fields=True):
    """What `PATCH /v1/streams/NAME` takes: configs to set, or null to set them back; a larger count of partitions."""

    config: dict[str, str | int | float | bool | None] = {}
    partitions: int | None = None


class DamagedRange(msgspec.Struct):
    """Offsets that cannot be read, for as much as is known: `last_offset` null, nothing says how far they go.

    With the file and the bytes `first_byte` up to `end_byte` that are damaged; null where a start found records lost.
    """

    first_offset: int
    last_offset: int | None
    file: str | None
    first_byte: int | None
    end_byte: int | None
    cause: str


class LateRecords(msgspec.Struct):
    """Records that retention deleted although they had just been written, since the node that answers has started.

    Their timestamps, of which `newest_ms` is the newest, were older than `retention.ms` when they were written.
    """

    records: int
    newest_ms: int
    reason: str


class FloorInfo(msgspec.Struct):
    """An offset below the high watermark from which on records are needed still, and what they are needed for.

    They are kept from what `holds` names: retention, compaction. With a `multiple` retention goes past the floor where
    there is so many times as much as `retention.ms`, `retention.bytes` and `retention.records` allow; null: never.
    """

    name: str
    offset: int
    holds: list[Literal["retention", "compaction"]]
    multiple: int | None


class ViewInfo(msgspec.Struct):
    """The view of a partition of a keyed stream: everything below `position` is applied, `lag` records are not.

    Snapshots can be read from `oldest` to `position`, changes since snapshots from `horizon` on. `keys` counts
    deleted ones until compaction has dropped their tombstones, `records` those since `oldest`, of which so many have
    `superseded` others. `problem`: why the view stands still; empty where it does not. `file_bytes`
    are those of its table of keys where that lies in files, 0 where it is in memory.
    """

    position: int
    lag: int
    oldest: int
    horizon: int
    keys: int
    records: int
    superseded: int
    memory_bytes: int
    bytes_per_key: float
    problem: str
    file_bytes: int = 0


class PartitionInfo(msgspec.Struct):
    """A partition: its offsets, bytes on disk or in memory, segments, and what of it is known to be damaged.

    All of these are those of the node that answers: the partition's where it `leads`, else of what it has copied,
    which may be nothing. `leader` null: nobody leads. `in_sync`: the replicas in sync, of all `replicas`.
    """

    partition: int
    leader: int | None
    leads: bool
    replicas: list[int]
    in_sync: list[int]
    leader_epoch: int
    start_offset: int
    high_watermark: int
    end_offset: int
    bytes: int
    segments: int
    damaged: list[DamagedRange]
    late: LateRecords | None = None
    floors: list[FloorInfo] = []
    view: ViewInfo | None = None


class GapInfo(msgspec.Struct):
    """A time, in ms since 1970, in which messages to the stream's subjects may have gone by; no end: it goes on."""

    start_ms: int
    end_ms: int | None
    cause: str


class NatsGaps(msgspec.Struct):
    """The gaps of a stream that is bound to subjects: how many are over, their time together, the most recent ones."""

    count: int
    total_ms: int
    recent: list[GapInfo]


class StreamInfo(msgspec.Struct):
    """A stream as it is."""

    name: str
    id: str
    internal: bool
    created_at_ms: int
    subjects: list[str]
    durability: str
    durability_means: str
    config: dict[str, str]
    partitions: list[PartitionInfo]
    nats_gaps: NatsGaps | None = None
    warnings: list[str] = []
    created: bool | None = None


class StreamList(msgspec.Struct):
    """Streams by name. `next` is what `after` has to be for those that follow; null: these were the last."""

    streams: list[StreamInfo]
    next: str | None


class RecordWish(msgspec.Struct, forbid_unknown_fields=True):
    """A record to store. Bytes are text, `{"base64": "…"}` where they are not UTF-8, or null.

    `partition` absent: by the key as every Kafka client has it, else one partition for all such records of a request.
    `timestamp` absent: now. `topic` and `offset` are ignored, so that what was read can be sent as it is.
    """

    value: JsonBytes
    key: JsonBytes = None
    headers: list[tuple[str | Base64, JsonBytes]] = []
    partition: Annotated[int, Meta(ge=0)] | None = None
    timestamp: Timestamp | None = None
    topic: str | None = None
    offset: int | None = None


class RecordWishes(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /v1/streams/NAME/records` takes."""

    records: Annotated[list[RecordWish], Meta(min_length=1, max_length=MOST_RECORDS)]


class ProduceQuery(msgspec.Struct):
    """How long storing may take."""

    timeout_ms: Annotated[
        int,
        Meta(
            ge=1, le=_LONGEST_WAIT_MS,
            description="How long leaders are looked for, and acknowledgements waited for; where that was not enough,"
            " the answer says what became of each record",
        ),
    ] = _LONGEST_WAIT_MS  # fmt: skip


class Place(msgspec.Struct):
    """Where a record was stored."""

    partition: int
    offset: int


class RecordPlaces(msgspec.Struct):
    """The places of all records of a request, in its order."""

    records: list[Place]


class ReplicatedQuery(msgspec.Struct):
    """Which record is waited for, and for how long."""

    offset: Annotated[int, Meta(ge=0, le=_INT64_MAX, description="The offset of the record")]
    epoch: Annotated[
        int,
        Meta(
            ge=-1, le=(1 << 31) - 1,
            description="The leader epoch that ordered it; -1: any, enough for what was acknowledged with acks=all",
        ),
    ] = -1  # fmt: skip
    max_wait_ms: Annotated[
        int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long to wait for it where it is not there yet")
    ] = 0


class ReplicatedInfo(msgspec.Struct):
    """Whether the node has the record on its disk, and no later leader will lack it; the epoch that ordered it."""

    node_id: int
    replicated: bool
    offset: int
    epoch: int | None


class RecordsQuery(msgspec.Struct):
    """Which records are read, and how long is waited for them."""

    partition: Annotated[int, Meta(ge=0, description="The partition")] = 0
    offset: Annotated[
        str,
        Meta(
            description="Where to begin: start, end, an offset N, -N for the last N records, or @TIME (ISO 8601,"
            " milliseconds since 1970, or a time ago such as @-30s)"
        ),
    ] = "start"
    limit: Annotated[int, Meta(ge=1, le=MOST_RECORDS, description="The most records of one answer")] = 100
    max_wait_ms: Annotated[
        int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long to wait for a record where there is none yet")
    ] = 0
    max_bytes: Annotated[
        int,
        Meta(
            ge=1, le=_LARGEST_PAGE_BYTES,
            description="The most bytes of keys, values and headers in one answer; one record comes in any case",
        ),
    ] = _LARGEST_PAGE_BYTES  # fmt: skip


class RecordInfo(msgspec.Struct):
    """A record. Bytes are text, `{"base64": "…"}` where they are not UTF-8, or null."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: JsonBytes
    value: JsonBytes
    headers: list[tuple[str | Base64, JsonBytes]]


class RecordPage(msgspec.Struct):
    """Records of a partition. `next` is the offset to go on at, `end` the one after the last that can be read."""

    records: list[RecordInfo]
    next: int
    end: int


class GroupsQuery(msgspec.Struct):
    """Which groups are listed."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most groups of one answer")] = 1000
    after: Annotated[str, Meta(description="Go on behind this id: the `next` of the answer before")] = ""


class GroupSummary(msgspec.Struct):
    """A group in the list: how many members it has, and how many records it has not committed past in all.

    `lag_records` null: the leader of a partition did not answer.
    """

    id: str
    state: str
    protocol_type: str
    protocol: str | None
    members: int
    lag_records: int | None
    kind: Annotated[str, Meta(description="classic, consumer or share")]


class GroupList(msgspec.Struct):
    """Groups by id. `next` is what `after` has to be for those that follow; null: these were the last.

    On a cluster all live nodes are asked. Groups of `silent_nodes`, which did not answer, are missing, and groups of
    `leaderless_partitions` of `__consumer_offsets`.
    """

    groups: list[GroupSummary]
    next: str | None
    silent_nodes: list[int]
    leaderless_partitions: list[int]


class AssignedPartition(msgspec.Struct):
    """A partition that a member reads."""

    stream: str
    partition: int


class MemberInfo(msgspec.Struct):
    """A member of a group, with the partitions that were assigned to it."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[AssignedPartition]


class GroupOffset(msgspec.Struct):
    """A partition that a group has committed an offset of, and how far it is behind there.

    `lag_seconds`: how long ago the first record was written that it has not committed past; 0 where there is none,
    null where that is not known. All but the committed offset are null where the partition's leader did not answer.
    """

    stream: str
    partition: int
    committed_offset: int
    start_offset: int | None
    end_offset: int | None
    lag_records: int | None
    lag_seconds: float | None


class GroupInfo(msgspec.Struct):
    """A group as it is."""

    id: str
    state: str
    protocol_type: str
    protocol: str | None
    generation: int
    members: list[MemberInfo]
    offsets: list[GroupOffset]
    kind: Annotated[str, Meta(description="classic, consumer or share")]


class OffsetsWish(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /v1/groups/ID/offsets` takes. `to` is start, end, N, -N or @TIME, in each partition.

    `streams` absent: those the group has committed offsets of; `partition` absent: all of them. With `dry_run` nothing
    is changed.
    """

    to: str
    streams: Annotated[list[str], Meta(min_length=1)] | None = None
    partition: Annotated[int, Meta(ge=0)] | None = None
    dry_run: bool = False


class DeletionWish(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /v1/streams/NAME/records/delete` takes: the records before the offset `before` go.

    `before` absent: all that consumers can read. `partition` absent: in each partition.
    """

    before: Annotated[int, Meta(ge=0)] | None = None
    partition: Annotated[int, Meta(ge=0)] | None = None


class Deleted(msgspec.Struct):
    """The first offset that a partition still holds."""

    partition: int
    start_offset: int


class Deletions(msgspec.Struct):
    """What is left of the partitions that records were deleted of."""

    partitions: list[Deleted]


class OffsetMove(msgspec.Struct):
    """A partition, the offset that the group had committed of it (null: none), and the one it goes on at now."""

    stream: str
    partition: int
    before: int | None
    after: int


class OffsetMoves(msgspec.Struct):
    """All partitions of a request."""

    offsets: list[OffsetMove]
