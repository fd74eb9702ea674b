"""The records that retention deletes. Pure: segments and limits in, a new log start out."""

from collections.abc import Sequence
from typing import NamedTuple

from duramen.storage.planning.floors import Floor, retention_bound, retention_multiple

__all__ = ["Late", "RetentionLimits", "RetentionSegmentFacts", "late", "new_start"]


class RetentionSegmentFacts(NamedTuple):
    """The facts about a segment for retention; `end_offset` is the base offset of the next one.

    `begun_ms` is when its first record was written, -1 if unknown.
    """

    base_offset: int
    end_offset: int
    size: int
    max_timestamp: int
    begun_ms: int = -1


class Late(NamedTuple):
    """Records that were older than `retention.ms` at their write: their number, and their newest timestamp."""

    records: int = 0
    newest_ms: int = -1


class RetentionLimits(NamedTuple):
    """Kafka's retention.ms and retention.bytes and our retention.records; negative means no limit."""

    ms: int = -1
    bytes: int = -1
    records: int = -1


def new_start(
    segments: Sequence[RetentionSegmentFacts],
    limits: RetentionLimits,
    floors: Sequence[Floor],
    start_offset: int,
    now_ms: int,
) -> int:
    """The log start according to retention: at or after `start_offset`, at a segment's end, not past `floors`.

    As in Kafka, a segment is deleted when its newest record is older than `ms`, or when the log without it still has
    `bytes` bytes or `records` records; oldest first, and none beyond a floor, unless the floor's multiple is reached.
    The last segment may be deleted by age.
    """
    total_bytes = sum(segment.size for segment in segments)
    end_offset = segments[-1].end_offset if segments else start_offset
    start, bound = start_offset, retention_bound(floors)
    for at, segment in enumerate(segments):
        last = at == len(segments) - 1
        if segment.end_offset > bound or segment.end_offset == segment.base_offset:
            break
        times = retention_multiple(floors, segment.end_offset)
        expired = limits.ms >= 0 and segment.max_timestamp >= 0 and now_ms - segment.max_timestamp > limits.ms * times
        too_large = limits.bytes >= 0 and total_bytes - segment.size >= limits.bytes * times
        too_many = limits.records >= 0 and end_offset - segment.end_offset >= limits.records * times
        if not (expired or ((too_large or too_many) and not last)):
            break
        total_bytes -= segment.size
        start = max(start, segment.end_offset)
    return start


def late(
    segments: Sequence[RetentionSegmentFacts], limits: RetentionLimits, start_offset: int, new_start_offset: int
) -> Late:
    """The records that retention deletes from `start_offset` on although they were already too old at their write."""
    found = Late()
    for segment in segments:
        if segment.end_offset > new_start_offset:
            break
        if limits.ms >= 0 and segment.max_timestamp >= 0 and segment.begun_ms - segment.max_timestamp > limits.ms:
            records = segment.end_offset - max(segment.base_offset, start_offset)
            found = Late(found.records + records, max(found.newest_ms, segment.max_timestamp))
    return found
