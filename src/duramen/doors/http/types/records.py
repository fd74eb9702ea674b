"""Records as types of the HTTP API: checked on input, JSON on output."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from duramen.codec.jsonbytes import Base64, JsonBytes, Timestamp

__all__ = [
    "MOST_RECORDS",
    "Deleted",
    "DeletionRequest",
    "Deletions",
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
]

MOST_RECORDS: Final = 10_000
"""Records of one request or answer."""

_LONGEST_WAIT_MS: Final = 30_000

_LARGEST_PAGE_BYTES: Final = 1024 * 1024

_INT32_MAX: Final = (1 << 31) - 1
_INT64_MAX: Final = (1 << 63) - 1


class RecordRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A record to store. Bytes are text, `{"base64": "…"}` where they are not UTF-8, or null.

    Without `partition` the key selects it as in Kafka's clients; records without a key go to one partition per request.
    `timestamp` defaults to now. `topic` and `offset` are ignored, so that a record can be sent back as it was read.
    """

    value: JsonBytes
    key: JsonBytes = None
    headers: list[tuple[str | Base64, JsonBytes]] = []
    partition: Annotated[int, Meta(ge=0, le=_INT32_MAX)] | None = None
    timestamp: Timestamp | None = None
    topic: str | None = None
    offset: int | None = None


class RecordsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Records to store."""

    records: Annotated[list[RecordRequest], Meta(min_length=1, max_length=MOST_RECORDS)]


class ProduceQuery(msgspec.Struct):
    """The timeout of a request that stores records."""

    timeout_ms: Annotated[
        int,
        Meta(
            ge=1, le=_LONGEST_WAIT_MS,
            description="How long to wait for leaders and acknowledgements; on a timeout the response has the outcome "
            "of each record",
        ),
    ] = _LONGEST_WAIT_MS  # fmt: skip


class Place(msgspec.Struct):
    """The partition and the offset of a stored record."""

    partition: int
    offset: int


class RecordPlaces(msgspec.Struct):
    """The partition and offset of each record, in the order of the request."""

    records: list[Place]


class ReplicatedQuery(msgspec.Struct):
    """The record to wait for, and the timeout."""

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
    """The records to read, and how long to wait for them."""

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


class DeletionRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A request to delete the records before the offset `before`, or, without it, all records that consumers can read.

    Without `partition` it applies to every partition.
    """

    before: Annotated[int, Meta(ge=0, le=_INT64_MAX)] | None = None
    partition: Annotated[int, Meta(ge=0, le=_INT32_MAX)] | None = None


class Deleted(msgspec.Struct):
    """The first offset that a partition still has."""

    partition: int
    start_offset: int


class Deletions(msgspec.Struct):
    """The partitions that records were deleted from."""

    partitions: list[Deleted]
