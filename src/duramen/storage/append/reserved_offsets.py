"""Offsets reserved ahead for a log in memory, so that a crash loses its records but never reuses an offset.

Committed offsets of consumer groups therefore stay valid: they lie before the log's new start, never within new
records. A reservation is a checkpoint entry with a start beyond the log's end; after a crash the log starts and ends
there. A clean stop returns the unused part. Pure.
"""

from collections.abc import Iterable
from typing import Final

from duramen.storage.log.log import Log
from duramen.storage.wal.records import LogChange, encode_change

__all__ = ["OFFSETS_AHEAD", "give_back", "is_reserved", "reserve"]

OFFSETS_AHEAD: Final = 1 << 20
"""The offsets of one reservation: one batch in a million records waits for a sync."""


def is_reserved(log: Log, next_offset: int) -> bool:
    """Whether offsets up to `next_offset` may be assigned.

    If a log has older records on disk, a crash returns to their end: nothing is reserved.
    """
    return next_offset <= log.reserved_offset or log.durability != "memory" or not log.segments[0].in_memory


def reserve(log: Log, next_offset: int) -> bytes:
    """Reserve the offsets up to `next_offset` and more; returns the checkpoint entry."""
    log.reserved_offset = next_offset + OFFSETS_AHEAD
    log.version += 1
    return encode_change(LogChange(log.reserved_offset, log.reserved_offset, log.durability))


def give_back(logs: Iterable[Log]) -> None:
    """Release the reservations of logs without further appends: their offsets continue at their ends."""
    for log in logs:
        if log.reserved_offset:
            log.reserved_offset = 0
            log.version += 1
