"""The lag of a group in a partition, as values."""

from typing import NamedTuple

from duramen.groups.records import OffsetKey

__all__ = ["Lag", "LagRow", "lag_between", "seconds_since"]


class Lag(NamedTuple):
    """A group's place in a partition; `records` is how many there are from `next_offset` to the end."""

    start_offset: int
    next_offset: int
    end_offset: int

    @property
    def records(self) -> int:
        """Offsets that the group has not committed past."""
        return max(0, self.end_offset - self.next_offset)


class LagRow(NamedTuple):
    """A group's lag in a partition, as it was measured; the seconds where they are known."""

    key: OffsetKey
    records: int
    seconds: float | None


def lag_between(start_offset: int, end_offset: int, committed_offset: int) -> Lag:
    """How far a group that has committed this offset is behind, where a log has these bounds."""
    return Lag(start_offset, max(committed_offset, start_offset), end_offset)


def seconds_since(timestamp_ms: int, now_ms: int) -> float:
    """How long ago that was; 0 for a time to come."""
    return max(0, now_ms - timestamp_ms) / 1000
