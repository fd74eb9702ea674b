"""Sequence numbers of idempotent producers: after 2**31 - 1 comes 0 again (KIP-98). Pure."""

from typing import Final

__all__ = ["SEQUENCES", "is_before"]

SEQUENCES: Final = 1 << 31
"""The number of sequence numbers."""


def is_before(sequence: int, other: int) -> bool:
    """Whether a sequence number comes before another one: the distance is less than half of all numbers."""
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2
