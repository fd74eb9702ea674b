"""Snapshots of keyed streams as JSON."""

from typing import Annotated

import msgspec
from msgspec import Meta

from duramen.doors.http.types.records import MOST_RECORDS, RecordInfo

__all__ = [
    "LARGEST_JSON_BYTES",
    "LeaseInfo",
    "LeaseList",
    "LeaseQuery",
    "LeasedPartition",
    "SnapshotInfo",
    "SnapshotInfos",
    "SnapshotLeaseRequest",
    "SnapshotPage",
    "SnapshotPartition",
    "SnapshotQuery",
    "SnapshotRecordsQuery",
    "SnapshotsQuery",
]

LARGEST_JSON_BYTES = 1024 * 1024
_LARGEST_PAGE_BYTES = 16 * 1024 * 1024
_LARGEST_OFFSET = (1 << 63) - 1


class SnapshotQuery(msgspec.Struct):
    """How long to wait for the view, or for a newer record."""

    max_wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=30_000,
            description="How long to wait for a snapshot that includes everything committed before the request",
        ),
    ] = 5000
    newer_than: Annotated[
        str, Meta(description="A snapshot: PARTITION:OFFSET or PARTITION:OFFSET@EPOCH, comma-separated")
    ] = ""
    newer_wait_ms: Annotated[
        int,
        Meta(ge=0, le=30_000, description="How long to wait first for a record newer than `newer_than`"),
    ] = 0


class SnapshotPartition(msgspec.Struct):
    """The end of a snapshot in a partition: it has the records before `at`; for `oldest` and `horizon` see the view.

    `epoch` is the leader epoch of the record before `at`, -1 if there is none: the two identify a history. The snapshot
    includes everything that was committed `age_ms` ago; 0: everything committed now.
    """

    partition: int
    at: int
    oldest: int
    horizon: int
    high_watermark: int
    epoch: int
    age_ms: int = 0


class SnapshotInfo(msgspec.Struct):
    """The newest snapshot of a stream."""

    stream: str
    partitions: list[SnapshotPartition]


class SnapshotsQuery(msgspec.Struct):
    """The streams to read together, and how long to wait for their views."""

    streams: Annotated[str, Meta(description="The names of the streams, comma-separated")]
    max_wait_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=30_000,
            description="How long to wait for a snapshot that includes everything committed before the request",
        ),
    ] = 5000


class SnapshotInfos(msgspec.Struct):
    """The newest snapshot of several streams, in the order of the request."""

    streams: list[SnapshotInfo]


class SnapshotRecordsQuery(msgspec.Struct):
    """The records to read, of a snapshot or of the changes since one."""

    at: Annotated[
        int,
        Meta(
            ge=-1,
            le=_LARGEST_OFFSET,
            description="The snapshot: the offset before which its records lie; -1: the snapshot of `lease`",
        ),
    ] = -1
    lease: Annotated[str, Meta(description="A lease that holds the snapshot open, instead of `at`")] = ""
    partition: Annotated[int, Meta(ge=0, description="The partition")] = 0
    since: Annotated[
        Annotated[int, Meta(ge=0, le=_LARGEST_OFFSET)] | None,
        Meta(description="Only records that became visible since the snapshot at this offset, including deletions"),
    ] = None
    offset: Annotated[
        int, Meta(ge=0, le=_LARGEST_OFFSET, description="Where to continue: `next` of the previous response")
    ] = 0
    end: Annotated[
        int, Meta(ge=0, le=_LARGEST_OFFSET, description="Where to end, if before the end of the snapshot")
    ] = _LARGEST_OFFSET
    limit: Annotated[int, Meta(ge=1, le=MOST_RECORDS, description="The most records in one response")] = 100
    max_bytes: Annotated[
        int,
        Meta(
            ge=1, le=_LARGEST_PAGE_BYTES,
            description="The most bytes of keys, values and headers in one response, which has at least one record; at "
            "most 1 MiB as JSON. For Arrow and batches: the approximate bytes of batches, regardless of `limit`",
        ),
    ] = LARGEST_JSON_BYTES  # fmt: skip


class SnapshotPage(msgspec.Struct):
    """Records in the order of their offsets; there may be none.

    Reading continues at `next`; null: this is the last page.
    """

    records: list[RecordInfo]
    next: int | None


class SnapshotLeaseRequest(msgspec.Struct, forbid_unknown_fields=True):
    """The snapshot to hold open: `at` is a comma-separated list of PARTITION:OFFSET; empty: the newest snapshot."""

    at: str = ""


class LeaseQuery(msgspec.Struct):
    """Selects the leases of a listing."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most leases in one response")] = 1000
    after: Annotated[str, Meta(description="Continue after this lease: `next` of the previous response")] = ""


class LeasedPartition(msgspec.Struct):
    """The end of a snapshot in a partition: it has the records before `at`."""

    partition: int
    at: int


class LeaseInfo(msgspec.Struct):
    """A snapshot that a lease holds open until `expires_ms`. Each renewal extends it to `lease_ms` from then on.

    `held_bytes` estimates the bytes that compaction keeps only for this lease.
    """

    lease: str
    stream: str
    partitions: list[LeasedPartition]
    opened_ms: int
    expires_ms: int
    lease_ms: int
    held_bytes: int


class LeaseList(msgspec.Struct):
    """The leases of a stream, oldest first. `next` is `after` of the next page; null: this is the last page."""

    leases: list[LeaseInfo]
    next: str | None
