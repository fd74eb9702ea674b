"""Streams as types of the HTTP API: checked on input, JSON on output."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = [
    "DamagedRange",
    "FloorInfo",
    "GapInfo",
    "LateRecords",
    "NatsGaps",
    "PartitionInfo",
    "StreamChange",
    "StreamInfo",
    "StreamList",
    "StreamRequest",
    "StreamsQuery",
    "ViewInfo",
]


class StreamsQuery(msgspec.Struct):
    """Selects the streams of a listing."""

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
    beyond the floor once the log exceeds that multiple of `retention.ms`, `retention.bytes` or `retention.records`, or
    of `queue.log.retention.ms`; null: never.
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
