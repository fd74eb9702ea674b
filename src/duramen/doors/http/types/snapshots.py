"""Snapshots of keyed streams as JSON."""

from typing import Annotated

import msgspec
from msgspec import Meta

from duramen.doors.http.types.types import MOST_RECORDS, RecordInfo

__all__ = [
    "LARGEST_JSON_BYTES",
    "LeaseInfo",
    "LeaseList",
    "LeaseQuery",
    "LeaseWish",
    "LeasedPartition",
    "SnapshotInfo",
    "SnapshotInfos",
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
    """How long is waited for the view, or for something newer."""

    max_wait_ms: Annotated[
        int,
        Meta(ge=0, le=30_000, description="How long to wait until the snapshot has what was committed before"),
    ] = 5000
    newer_than: Annotated[
        str, Meta(description="A snapshot: PARTITION:OFFSET or PARTITION:OFFSET@EPOCH, with commas between several")
    ] = ""
    newer_wait_ms: Annotated[
        int,
        Meta(ge=0, le=30_000, description="How long to wait before that for something newer than `newer_than`"),
    ] = 0


class SnapshotPartition(msgspec.Struct):
    """Where a snapshot is in a partition: it has what lies before `at`; `oldest` and `horizon` as of the view.

    `epoch` is the leader epoch of the record before `at`, -1 where there is none: together they name a history.
    So long ago, `age_ms`, it had all that was committed: 0 where it still has.
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
    """Which streams are read together, and how long is waited for their views."""

    streams: Annotated[str, Meta(description="The names of the streams, with commas between them")]
    max_wait_ms: Annotated[
        int,
        Meta(ge=0, le=30_000, description="How long to wait until the snapshot has what was committed before"),
    ] = 5000


class SnapshotInfos(msgspec.Struct):
    """The newest snapshot of several streams, in the order in which they were named."""

    streams: list[SnapshotInfo]


class SnapshotRecordsQuery(msgspec.Struct):
    """Which records of a snapshot, or of the changes since one, are read."""

    at: Annotated[
        int,
        Meta(
            ge=-1,
            le=_LARGEST_OFFSET,
            description="The snapshot: the offset before which its records lie; -1: `lease` says",
        ),
    ] = -1
    lease: Annotated[str, Meta(description="Instead of `at`, a lease that holds the snapshot open")] = ""
    partition: Annotated[int, Meta(ge=0, description="The partition")] = 0
    since: Annotated[
        Annotated[int, Meta(ge=0, le=_LARGEST_OFFSET)] | None,
        Meta(description="Only what became visible since the snapshot at this offset, deletions too"),
    ] = None
    offset: Annotated[
        int, Meta(ge=0, le=_LARGEST_OFFSET, description="Where to go on: the `next` of the answer before")
    ] = 0
    end: Annotated[int, Meta(ge=0, le=_LARGEST_OFFSET, description="Where to end, if that is before the snapshot")] = (
        _LARGEST_OFFSET
    )
    limit: Annotated[int, Meta(ge=1, le=MOST_RECORDS, description="The most records of one answer")] = 100
    max_bytes: Annotated[
        int,
        Meta(
            ge=1, le=_LARGEST_PAGE_BYTES,
            description="The most bytes of keys, values and headers in one answer, as JSON at most 1 MiB; one record "
            "comes in any case. As Arrow or batches: about so many bytes of batches, whatever `limit` says",
        ),
    ] = LARGEST_JSON_BYTES  # fmt: skip


class SnapshotPage(msgspec.Struct):
    """Records in the order of their offsets; there may be none. `next` is where to go on; null: these were the last."""

    records: list[RecordInfo]
    next: int | None


class LeaseWish(msgspec.Struct, forbid_unknown_fields=True):
    """Which snapshot is to be held open: `at` as PARTITION:OFFSET with commas; empty: the newest."""

    at: str = ""


class LeaseQuery(msgspec.Struct):
    """Which leases are listed."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most leases of one answer")] = 1000
    after: Annotated[str, Meta(description="Go on behind this lease: the `next` of the answer before")] = ""


class LeasedPartition(msgspec.Struct):
    """Where a snapshot is in a partition: it has what lies before `at`."""

    partition: int
    at: int


class LeaseInfo(msgspec.Struct):
    """A snapshot that a lease holds open until `expires_ms`; renewed, it goes on for `lease_ms`.

    `held_bytes` estimates what compaction keeps for it alone.
    """

    lease: str
    stream: str
    partitions: list[LeasedPartition]
    opened_ms: int
    expires_ms: int
    lease_ms: int
    held_bytes: int


class LeaseList(msgspec.Struct):
    """The leases of a stream, oldest first. `next` is where the list goes on; null: it ends here."""

    leases: list[LeaseInfo]
    next: str | None
