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
"""So many at once: a batch in a million records waits for a sync."""


def is_reserved(log: Log, next_offset: int) -> bool:
    """Whether offsets up to `next_offset` may be given.

    Where a log has older records that are on disk, a crash goes back to their end: nothing is reserved.
    """
    return next_offset <= log.reserved_offset or log.durability != "memory" or not log.segments[0].in_memory


def reserve(log: Log, next_offset: int) -> bytes:
    """Reserve what `next_offset` needs and some more; returns the checkpoint entry that says so."""
    log.reserved_offset = next_offset + OFFSETS_AHEAD
    log.version += 1
    return encode_change(LogChange(log.reserved_offset, log.reserved_offset, log.durability))


def give_back(logs: Iterable[Log]) -> None:
    """Nothing will be appended to these logs: their offsets go on where they end."""
    for log in logs:
        if log.reserved_offset:
            log.reserved_offset = 0
            log.version += 1
