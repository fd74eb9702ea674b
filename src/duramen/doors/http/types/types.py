"""Requests and responses of the HTTP door as types: checked on input, JSON on output."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from duramen.codec.jsonbytes import Base64, JsonBytes, Timestamp

__all__ = [
    "MOST_RECORDS",
    "AssignedPartition",
    "DamagedRange",
    "Deleted",
    "DeletionRequest",
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
    "OffsetsRequest",
    "PartitionInfo",
    "Place",
    "ProduceQuery",
    "RecordInfo",
    "RecordPage",
    "RecordPlaces",
    "RecordRequest",
    "RecordsQuery",
    "RecordsRequest",
    "ReplicatedInfo",
    "ReplicatedQuery",
    "StreamChange",
    "StreamInfo",
    "StreamList",
    "StreamRequest",
    "StreamsQuery",
    "ViewInfo",
]

MOST_RECORDS: Final = 10_000
"""Records of one request or answer."""

_LONGEST_WAIT_MS: Final = 30_000
_LARGEST_PAGE_BYTES: Final = 1024 * 1024
_INT64_MAX: Final = (1 << 63) - 1


class FollowerLag(msgspec.Struct):
    """How far a follower is behind in the partitions that the answering node leads.

    `partitions` and `records` count those that it lacks. It has not reported yet on `unheard` partitions. `seconds` is
    the longest time for which it has been behind.
    """

    node_id: int
    partitions: int
    records: int
    unheard: int
    seconds: float


class NodeHealth(msgspec.Struct):
    """The health of the node. `problem` is the text of `/readyz`; empty: the node is ready.

    `storage` is writable, full or failed.
    """

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
    """A node of the cluster. `version` is known only for the node that answers."""

    version: str | None
    node_id: int
    cluster_id: str
    addresses: dict[str, str]


class NodeList(msgspec.Struct):
    """All nodes."""

    nodes: list[KnownNode]


class StreamsQuery(msgspec.Struct):
    """Which streams are listed."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most streams in one response")] = 1000
    after: Annotated[str, Meta(description="Continue after this name: `next` of the previous response")] = ""
    prefix: Annotated[str, Meta(description="Only names with this prefix")] = ""


class StreamRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A stream to create. `partitions` and `replication_factor` default to the broker's settings.

    Config values are text.
    """

    name: str
    partitions: int | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=32_767)] | None = None
    subjects: list[str] = []
    config: dict[str, str | int | float | bool] = {}


class StreamChange(msgspec.Struct, forbid_unknown_fields=True):
    """Changes of a stream: configs to set (null resets one to its default), or a larger number of partitions."""

    config: dict[str, str | int | float | bool | None] = {}
    partitions: int | None = None


class DamagedRange(msgspec.Struct):
    """Offsets that cannot be read. `last_offset` is null if the end of the range is unknown.

    The damaged bytes are those from `first_byte` up to `end_byte` of `file`; these are null if records were found lost
    at a start.
    """

    first_offset: int
    last_offset: int | None
    file: str | None
    first_byte: int | None
    end_byte: int | None
    cause: str


class LateRecords(msgspec.Struct):
    """Records that retention deleted soon after they were written, since the answering node started.

    Their timestamps were older than `retention.ms` when they were written; `newest_ms` is the newest of them.
    """

    records: int
    newest_ms: int
    reason: str


class FloorInfo(msgspec.Struct):
    """An offset from which on records are still needed, and what needs them (`name`).

    The mechanisms in `holds`, retention and compaction, keep these records. If `multiple` is set, retention deletes
    beyond the floor once the log exceeds that multiple of `retention.ms`, `retention.bytes` or `retention.records`;
    null: never.
    """

    name: str
    offset: int
    holds: list[Literal["retention", "compaction"]]
    multiple: int | None


class ViewInfo(msgspec.Struct):
    """The view of a partition of a keyed stream. Records below `position` are applied, `lag` records are not yet.

    Snapshots can be read from `oldest` to `position`, changes since a snapshot from `horizon` on. `keys` includes
    deleted keys until compaction drops their tombstones. `records` counts the records since `oldest`, `superseded`
    those among them that superseded others. `problem` is the reason why the view has stopped; empty: it runs.
    `file_bytes` is the size of a table of keys in files, 0 if it is in memory.
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
    """A partition: its offsets, bytes on disk or in memory, segments and known damage.

    These describe the replica of the answering node, which may have none; they are the partition's own if that node is
    the leader (`leads`). `leader` is null if the partition has no leader. `in_sync` are the in-sync replicas.
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
    """A period in which the node may have missed messages to the stream's subjects, in ms since 1970.

    Without an end it still lasts.
    """

    start_ms: int
    end_ms: int | None
    cause: str


class NatsGaps(msgspec.Struct):
    """The gaps of a stream that is bound to subjects: their number, their total time, the most recent ones."""

    count: int
    total_ms: int
    recent: list[GapInfo]


class StreamInfo(msgspec.Struct):
    """A stream: its config and its partitions."""

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
    """Streams by name. `next` is `after` of the next page; null: this is the last page."""

    streams: list[StreamInfo]
    next: str | None


class RecordRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A record to store. Bytes are text, `{"base64": "…"}` where they are not UTF-8, or null.

    Without `partition` the key selects it as in Kafka's clients; records without a key go to one partition per request.
    `timestamp` defaults to now. `topic` and `offset` are ignored, so that a record can be sent back as it was read.
    """

    value: JsonBytes
    key: JsonBytes = None
    headers: list[tuple[str | Base64, JsonBytes]] = []
    partition: Annotated[int, Meta(ge=0)] | None = None
    timestamp: Timestamp | None = None
    topic: str | None = None
    offset: int | None = None


class RecordsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Records to store."""

    records: Annotated[list[RecordRequest], Meta(min_length=1, max_length=MOST_RECORDS)]


class ProduceQuery(msgspec.Struct):
    """How long storing may take."""

    timeout_ms: Annotated[
        int,
        Meta(
            ge=1, le=_LONGEST_WAIT_MS,
            description="How long to wait for leaders and acknowledgements; on a timeout the response has the outcome "
            "of each record",
        ),
    ] = _LONGEST_WAIT_MS  # fmt: skip


class Place(msgspec.Struct):
    """Where a record was stored."""

    partition: int
    offset: int


class RecordPlaces(msgspec.Struct):
    """The partition and offset of each record, in the order of the request."""

    records: list[Place]


class ReplicatedQuery(msgspec.Struct):
    """Which record is waited for, and for how long."""

    offset: Annotated[int, Meta(ge=0, le=_INT64_MAX, description="The offset of the record")]
    epoch: Annotated[
        int,
        Meta(
            ge=-1, le=(1 << 31) - 1,
            description="The leader epoch of the record; -1 accepts any, which suffices for records acknowledged with "
            "acks=all",
        ),
    ] = -1  # fmt: skip
    max_wait_ms: Annotated[
        int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long to wait for the record if it is not there yet")
    ] = 0


class ReplicatedInfo(msgspec.Struct):
    """Whether the node has the record on disk and every later leader will have it; the leader epoch of the record."""

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
    limit: Annotated[int, Meta(ge=1, le=MOST_RECORDS, description="The most records in one response")] = 100
    max_wait_ms: Annotated[
        int, Meta(ge=0, le=_LONGEST_WAIT_MS, description="How long to wait for a record if there is none yet")
    ] = 0
    max_bytes: Annotated[
        int,
        Meta(
            ge=1, le=_LARGEST_PAGE_BYTES,
            description="The most bytes of keys, values and headers in one response; it has at least one record",
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
    """Records of a partition.

    Reading continues at the offset `next`; `end` is the offset after the last readable record.
    """

    records: list[RecordInfo]
    next: int
    end: int


class GroupsQuery(msgspec.Struct):
    """Which groups are listed."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most groups in one response")] = 1000
    after: Annotated[str, Meta(description="Continue after this id: `next` of the previous response")] = ""


class GroupSummary(msgspec.Struct):
    """A group in the list: its number of members and its lag over all partitions.

    `lag_records` is null if the leader of a partition did not answer.
    """

    id: str
    state: str
    protocol_type: str
    protocol: str | None
    members: int
    lag_records: int | None
    kind: Annotated[str, Meta(description="classic, consumer or share")]


class GroupList(msgspec.Struct):
    """Groups by id. `next` is `after` of the next page; null: this is the last page.

    On a cluster every live node is asked. The list lacks groups of `silent_nodes`, which did not answer, and of
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
    """A member of a group, with its assigned partitions."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[AssignedPartition]


class GroupOffset(msgspec.Struct):
    """The committed offset of a group in a partition, and its lag.

    `lag_seconds` is the age of the first record after the committed offset: 0 if there is none, null if it is unknown.
    If the partition's leader did not answer, every field but the committed offset is null.
    """

    stream: str
    partition: int
    committed_offset: int
    start_offset: int | None
    end_offset: int | None
    lag_records: int | None
    lag_seconds: float | None


class GroupInfo(msgspec.Struct):
    """A group: its members and committed offsets."""

    id: str
    state: str
    protocol_type: str
    protocol: str | None
    generation: int
    members: list[MemberInfo]
    offsets: list[GroupOffset]
    kind: Annotated[str, Meta(description="classic, consumer or share")]


class OffsetsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """New offsets of a group. `to` is start, end, N, -N or @TIME, in each partition.

    `streams` defaults to those in which the group has committed offsets, `partition` to all partitions. With `dry_run`
    nothing changes.
    """

    to: str
    streams: Annotated[list[str], Meta(min_length=1)] | None = None
    partition: Annotated[int, Meta(ge=0)] | None = None
    dry_run: bool = False


class DeletionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request to delete the records before the offset `before`, or, without it, all records that consumers can read.

    Without `partition` it applies to every partition.
    """

    before: Annotated[int, Meta(ge=0)] | None = None
    partition: Annotated[int, Meta(ge=0)] | None = None


class Deleted(msgspec.Struct):
    """The first offset that a partition still has."""

    partition: int
    start_offset: int


class Deletions(msgspec.Struct):
    """The partitions that records were deleted from."""

    partitions: list[Deleted]


class OffsetMove(msgspec.Struct):
    """A partition, and the committed offset of the group before (null: none) and after the request."""

    stream: str
    partition: int
    before: int | None
    after: int


class OffsetMoves(msgspec.Struct):
    """The partitions of a request."""

    offsets: list[OffsetMove]
