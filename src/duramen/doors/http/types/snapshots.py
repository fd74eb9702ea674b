"""Snapshots of keyed streams as JSON."""

from typing import Annotated

import msgspec
from msgspec import Meta

from duramen.doors.http.types.types import MOST_RECORDS, RecordInfo

__all__ = [
    "LARGEST_JSON_BYTES",
    "SnapshotInfo",
    "SnapshotPage",
    "SnapshotPartition",
    "SnapshotQuery",
    "SnapshotRecordsQuery",
]

LARGEST_JSON_BYTES = 1024 * 1024
_LARGEST_PAGE_BYTES = 16 * 1024 * 1024
_LARGEST_OFFSET = (1 << 63) - 1


class SnapshotQuery(msgspec.Struct):
    """How long is waited for the view."""

    max_wait_ms: Annotated[
        int,
        Meta(ge=0, le=30_000, description="How long to wait until the snapshot has what was committed before"),
    ] = 5000


class SnapshotPartition(msgspec.Struct):
    """Where a snapshot is in a partition: it has what lies before `at`; `oldest` and `horizon` as of the view."""

    partition: int
    at: int
    oldest: int
    horizon: int
    high_watermark: int


class SnapshotInfo(msgspec.Struct):
    """The newest snapshot of a stream."""

    stream: str
    partitions: list[SnapshotPartition]


class SnapshotRecordsQuery(msgspec.Struct):
    """Which records of a snapshot, or of the changes since one, are read."""

    at: Annotated[
        int, Meta(ge=0, le=_LARGEST_OFFSET, description="The snapshot: the offset before which its records lie")
    ]
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
