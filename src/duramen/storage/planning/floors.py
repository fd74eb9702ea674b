"""Floors: offsets from which on records of a log are still needed. Retention and compaction stay below them. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["Floor", "compaction_bound", "retention_bound", "retention_multiple"]


class Floor(NamedTuple):
    """Records from `offset` on are needed; `name` is the reason.

    It limits `retention`, `compaction` or both. With a `multiple`, retention passes it once the log has that many times
    its limits; 0: never.
    """

    name: str
    offset: int
    retention: bool = True
    compaction: bool = True
    multiple: int = 0


def retention_bound(floors: Iterable[Floor]) -> int:
    """The offset that retention never passes. At least one floor has no multiple."""
    return min(floor.offset for floor in floors if floor.retention and not floor.multiple)


def retention_multiple(floors: Iterable[Floor], end_offset: int) -> int:
    """How many times the limits must be exceeded before records up to `end_offset` may be deleted."""
    return max(
        (floor.multiple for floor in floors if floor.retention and floor.multiple and end_offset > floor.offset),
        default=1,
    )


def compaction_bound(floors: Iterable[Floor]) -> int:
    """The offset that compaction never passes."""
    return min(floor.offset for floor in floors if floor.compaction)
