"""The lag of a group in a partition, as values."""

from typing import NamedTuple

from duramen.groups.records import OffsetKey

__all__ = ["Lag", "LagRow", "lag_between", "seconds_since"]


class Lag(NamedTuple):
    """A group's offset in a partition and the bounds of the log."""

    start_offset: int
    next_offset: int
    end_offset: int

    @property
    def records(self) -> int:
        """The number of offsets that the group has not committed."""
        return max(0, self.end_offset - self.next_offset)


class LagRow(NamedTuple):
    """The measured lag of a group in a partition; `seconds` is None if unknown."""

    key: OffsetKey
    records: int
    seconds: float | None

    @property
    def labels(self) -> tuple[str, str, str]:
        """The labels of its series: group, stream and partition."""
        return self.key.group, self.key.topic, str(self.key.partition)


def lag_between(start_offset: int, end_offset: int, committed_offset: int) -> Lag:
    """The lag of a group that has committed this offset, in a log with these bounds."""
    return Lag(start_offset, max(committed_offset, start_offset), end_offset)


def seconds_since(timestamp_ms: int, now_ms: int) -> float:
    """The seconds since a timestamp; 0 for one in the future."""
    return max(0, now_ms - timestamp_ms) / 1000
