"""The division of memory.limit.bytes among its users. Pure arithmetic."""

from typing import Final

from duramen.base.units import MIB

__all__ = ["memory_share_bytes"]

_RESIDENT_BYTES: Final = 92 * MIB  # what the process holds without any work, and beside it for many connections
_SMALLEST_PARTS: Final = 3
_PARTS: Final = 4


def memory_share_bytes(limit_bytes: int) -> int:
    """The share of `memory.limit.bytes` for one of the large users.

    Those are requests, batches that are not yet in segments, and views of keyed streams. It is a quarter, or less if
    the limit is so small that the process itself leaves no room for that.
    """
    return min(limit_bytes // _PARTS, (limit_bytes - _RESIDENT_BYTES) // _SMALLEST_PARTS)
