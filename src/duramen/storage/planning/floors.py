"""Floors: offsets from which on records of a log are still needed. Retention and compaction stay below them. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Floor", "compaction_bound", "retention_bound", "retention_multiple"]


class Floor(NamedTuple):
    """Records from `offset` on are needed; `name` says by whom or what for.

    It holds back `retention`, `compaction` or both. With a `multiple` retention goes past it where there is so many
    times as much as the limits of the log allow; 0: never.
    """

    name: str
    offset: int
    retention: bool = True
    compaction: bool = True
    multiple: int = 0


def retention_bound(floors: Iterable[Floor]) -> int:
    """The offset that retention never goes past. There is at least one floor that never gives way."""
    return min(floor.offset for floor in floors if floor.retention and not floor.multiple)


def retention_multiple(floors: Iterable[Floor], end_offset: int) -> int:
    """How many times the limits have to be exceeded for records before `end_offset` to go."""
    return max(
        (floor.multiple for floor in floors if floor.retention and floor.multiple and end_offset > floor.offset),
        default=1,
    )


def compaction_bound(floors: Iterable[Floor]) -> int:
    """The offset that compaction never goes past."""
    return min(floor.offset for floor in floors if floor.compaction)
