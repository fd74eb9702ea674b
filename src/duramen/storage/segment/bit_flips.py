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
    """What a byte does to the register; which byte has that top byte; what one changed byte can give."""
    zero = crc32c(b"\0")
    table = [crc32c(bytes([byte])) ^ zero for byte in range(256)]
    by_top = [0] * 256
    for byte, effect in enumerate(table):
        by_top[effect >> 24] = byte
    return table, by_top, frozenset(table[1:])


def flipped_bytes(difference: int, size: int) -> list[int]:
    """The positions in a block of `size` bytes at which one changed byte makes its CRC-32C differ by `difference`.

    One in a thousand blocks that were changed otherwise seems to have such a byte too, by chance.
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
