"""Where in a block one byte was changed, from the CRC it should have and the CRC it has. Pure.

A CRC is linear: two blocks of the same size that differ in one byte have CRCs that differ by what that byte's
difference gives, moved through the register once for each byte behind it. Moving it back step by step shows every
position at which one changed byte explains the difference.
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
