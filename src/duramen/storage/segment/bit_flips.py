"""Finds a changed byte in a block, from its expected and its actual CRC. Pure.

A CRC is linear: the CRCs of two equally long blocks that differ in one byte differ by the CRC of that difference,
shifted once for each later byte. Shifting back step by step finds every position at which one changed byte explains the
difference.
"""

from functools import cache
from typing import Final

from duramen.codec.crc import crc32c

__all__ = ["flipped_bytes"]

_LOW: Final = 0xFF
_ALL: Final = 0xFFFFFFFF


@cache
def _tables() -> tuple[list[int], list[int], frozenset[int]]:
    """Tables: the effect of a byte on the register; the byte with a given top byte; the results of one changed byte."""
    zero = crc32c(b"\0")
    table = [crc32c(bytes([byte])) ^ zero for byte in range(256)]
    by_top = [0] * 256
    for byte, effect in enumerate(table):
        by_top[effect >> 24] = byte
    return table, by_top, frozenset(table[1:])


def flipped_bytes(difference: int, size: int) -> list[int]:
    """The positions in a block of `size` bytes where one changed byte makes its CRC-32C differ by `difference`.

    By chance, one in a thousand blocks with other changes has such a position too.
    """
    table, by_top, single = _tables()
    found = []
    register = difference
    for position in range(size - 1, -1, -1):
        if register in single:
            found.append(position)
        byte = by_top[register >> 24]
        register = ((register ^ table[byte]) << 8 & _ALL) | byte & _LOW
    return found
