"""A node's information about itself, its streams and groups, as typed values.

Fields that a newer node adds are ignored.
"""

from typing import Any, TypeVar

import msgspec

from duramen.base.errors import ServerUnreachable

__all__ = [
    "DamagedRange",
    "FloorInfo",
    "GapInfo",
    "GroupDetails",
    "GroupInfo",
    "GroupMember",
    "GroupOffset",
    "GroupPartition",
    "LateRecords",
    "NatsGaps",
    "NodeInfo",
    "OffsetChange",
    "PartitionInfo",
    "StreamInfo",
    "value_of",
]

_T = TypeVar("_T")


class NodeInfo(msgspec.Struct, frozen=True):
    """The node that answers; `addresses` of its doors by name: kafka, http, nats.

    >>> client.node().addresses["http"] == client.server
    True
    """

    version: str
    node_id: int
    cluster_id: str
    addresses: dict[str, str]


class DamagedRange(msgspec.Struct, frozen=True):
    """Offsets that cannot be read. `last_offset` is None if the end of the range is unknown.

    The damaged bytes are those from `first_byte` up to `end_byte` of the file; None if records were found lost at a
    start.

    >>> client.streams.create("sound").partitions[0].damaged
    []
    """

    first_offset: int
    last_offset: int | None
    file: str | None
    first_byte: int | None
    end_byte: int | None
    cause: str


class LateRecords(msgspec.Struct, frozen=True):
    """Records that retention deleted soon after they were written, since the node started.

    Their timestamps, of which `newest_ms` is the newest, were older than `retention.ms` when they were written.

    >>> LateRecords(records=3, newest_ms=1_388_534_400_000, reason="older than retention.ms").records
    3
    """

    records: int
    newest_ms: int
    reason: str


class FloorInfo(msgspec.Struct, frozen=True):
    """An offset from which on records are still needed; `name` is what needs them.

    The mechanisms in `holds`, `retention` and `compaction`, keep them. If `multiple` is set, retention deletes beyond
    the floor once the log exceeds that multiple of its limits; None: never.

    >>> FloorInfo(name="table", offset=5, holds=["retention"], multiple=2).offset
    5
    """

    name: str
    offset: int
    holds: list[str]
    multiple: int | None = None


class PartitionInfo(msgspec.Struct, frozen=True):
    """A partition: its offsets, bytes on disk or in memory, segments and known damage.

    The values come from its leader, or, if the leader did not respond, from the node that answers (`leads`). `leader`
    is a node's id, None if there is no leader; `in_sync` are the in-sync replicas among `replicas`.

    >>> client.streams.create("empty").partitions[0].end_offset
    0
    """

    partition: int
    leader_epoch: int
    start_offset: int
    high_watermark: int
    end_offset: int
    bytes: int
    segments: int
    damaged: list[DamagedRange] = []
    leader: int | None = None
    leads: bool = True
    replicas: list[int] = []
    in_sync: list[int] = []
    late: LateRecords | None = None
    floors: list[FloorInfo] = []


class GapInfo(msgspec.Struct, frozen=True):
    """A period in which messages to the stream's subjects may have been missed, in ms since 1970.

    >>> GapInfo(start_ms=1_700_000_000_000, end_ms=None, cause="node-stopped").end_ms is None
    True
    """

    start_ms: int
    end_ms: int | None
    cause: str


class NatsGaps(msgspec.Struct, frozen=True):
    """The gaps of a stream that is bound to subjects: their number, their total time, the most recent ones.

    >>> NatsGaps(count=0, total_ms=0, recent=[]).count
    0
    """

    count: int
    total_ms: int
    recent: list[GapInfo]


class StreamInfo(msgspec.Struct, frozen=True):
    """A stream with its partitions. `created` tells whether `create` created it now; `warnings` are for its creator.

    >>> info = client.streams.create("clicks", partitions=2, config={"retention.ms": "7d"})
    >>> info.name, len(info.partitions), info.durability, info.config
    ('clicks', 2, 'sync', {'retention.ms': '604800000'})
    """

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


class GroupInfo(msgspec.Struct, frozen=True):
    """A group in a list: its state, its number of members, its lag in records.

    `kind`: `classic`, `consumer` (KIP-848) or `share`.

    >>> GroupInfo("billing", "Empty", "consumer", "range", members=0, lag_records=17).lag_records
    17
    """

    id: str
    state: str
    protocol_type: str | None
    protocol: str | None
    members: int
    lag_records: int | None = None
    kind: str | None = None


class GroupPartition(msgspec.Struct, frozen=True):
    """A partition that a member reads.

    >>> GroupPartition("clicks", 0).stream
    'clicks'
    """

    stream: str
    partition: int


class GroupMember(msgspec.Struct, frozen=True):
    """A member of a group, and its partitions.

    >>> GroupMember("m-1", None, "python", "/127.0.0.1", [GroupPartition("clicks", 0)]).partitions[0].partition
    0
    """

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: list[GroupPartition]


class GroupOffset(msgspec.Struct, frozen=True):
    """A group's position in a partition. `lag_seconds` is the age of the first record after the committed offset.

    A share group commits no offset: its `start_offset` is that of the first record that it is not done with.

    >>> GroupOffset("clicks", 0, 5, 0, 7, lag_records=2, lag_seconds=0.5).lag_records
    2
    """

    stream: str
    partition: int
    committed_offset: int | None
    start_offset: int | None
    end_offset: int | None
    lag_records: int | None = None
    lag_seconds: float | None = None


class GroupDetails(msgspec.Struct, frozen=True):
    """A group with its members and its offsets.

    >>> GroupDetails("billing", "Empty", "consumer", "", 3, members=[], offsets=[]).generation
    3
    """

    id: str
    state: str
    protocol_type: str | None
    protocol: str | None
    generation: int
    members: list[GroupMember]
    offsets: list[GroupOffset]
    kind: str | None = None


class OffsetChange(msgspec.Struct, frozen=True):
    """A committed offset before a reset (None: there was none) and after it.

    >>> OffsetChange("clicks", 0, before=None, after=17).after
    17
    """

    stream: str
    partition: int
    before: int | None
    after: int


def value_of(document: Any, type_: type[_T]) -> _T:
    """JSON as a typed value. Raises ServerUnreachable if it has another form."""
    try:
        return msgspec.convert(document, type_)
    except msgspec.ValidationError as error:
        raise ServerUnreachable(f"the node's answer does not fit: {error}; is it another version?") from None
