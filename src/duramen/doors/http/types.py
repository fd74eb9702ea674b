"""What the HTTP door takes and gives, as types: checked on the way in, JSON on the way out."""

import msgspec

__all__ = ["GapInfo", "NatsGaps", "NodeInfo", "PartitionInfo", "Problem", "StreamChange", "StreamInfo", "StreamWish"]


class Problem(msgspec.Struct):
    """An error (RFC 9457). `type` is the stable id of the error."""

    type: str
    title: str
    status: int
    detail: str


class NodeInfo(msgspec.Struct):
    """The node that answers."""

    version: str
    node_id: int
    cluster_id: str
    addresses: dict[str, str]


class StreamWish(msgspec.Struct, forbid_unknown_fields=True):
    """What `POST /v1/streams` takes. `partitions` absent: the broker's default; config values are text."""

    name: str
    partitions: int | None = None
    subjects: list[str] = []
    config: dict[str, str | int | float | bool] = {}


class StreamChange(msgspec.Struct, forbid_unknown_fields=True):
    """What `PATCH /v1/streams/NAME` takes: configs to set, or null to set them back; a larger count of partitions."""

    config: dict[str, str | int | float | bool | None] = {}
    partitions: int | None = None


class PartitionInfo(msgspec.Struct):
    """A partition: its offsets, bytes on disk or in memory, and segments."""

    partition: int
    leader_epoch: int
    start_offset: int
    high_watermark: int
    end_offset: int
    bytes: int
    segments: int


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
