"""The newest offset of each key, in a table of fixed size for any keys. Pure.

24 bytes a slot, as in Kafka: 16 of the key's BLAKE2b hash and 8 of the offset, in three flat arrays of integers, with
open addressing and double hashing. Two keys with the same 128-bit hash would count as one; no such pair is known.
"""

import struct
from hashlib import blake2b
from mmap import mmap
from typing import Final

__all__ = ["SLOT_BYTES", "OffsetMap"]

SLOT_BYTES: Final = 24
_FEWEST_SLOTS: Final = 11
_HALVES: Final = struct.Struct("=QQ").unpack


class OffsetMap:
    """Offsets by key: `put` in the order of offsets, then `newest`. It has room for `capacity` keys."""

    __slots__ = ("_high", "_low", "_offsets", "_slots", "capacity", "count", "latest")

    def __init__(self, size_bytes: int, load_factor: float) -> None:
        """A table of at most `size_bytes`, of whose slots the fraction `load_factor` (0 to 1) is used."""
        self._slots = _prime_up_to(max(_FEWEST_SLOTS, size_bytes // SLOT_BYTES))
        self.capacity = min(self._slots - 1, max(1, int(self._slots * load_factor)))
        self._high = _integers(self._slots)
        self._low = _integers(self._slots)
        self._offsets = _integers(self._slots)  # the offset plus one; 0 if the slot is free
        self.count = 0
        self.latest = -1  # the last offset put

    @property
    def full(self) -> bool:
        """Whether it has no room for another key."""
        return self.count >= self.capacity

    def put(self, key: bytes, offset: int) -> bool:
        """Set `offset` as the newest of `key`; returns False without a change if there is no room for another key."""
        slot, high, low = self._find(key)
        if not self._offsets[slot]:
            if self.count >= self.capacity:
                return False
            self.count += 1
            self._high[slot], self._low[slot] = high, low
        self._offsets[slot] = offset + 1
        self.latest = offset
        return True

    def newest(self, key: bytes) -> int:
        """The newest offset of `key`; -1 without one."""
        return self._offsets[self._find(key)[0]] - 1

    def _find(self, key: bytes) -> tuple[int, int, int]:
        high, low = _HALVES(blake2b(key, digest_size=16).digest())
        slots, offsets, highs = self._slots, self._offsets, self._high
        slot = high % slots
        step = 0
        while offsets[slot] and (highs[slot] != high or self._low[slot] != low):
            step = step or 1 + low % (slots - 1)
            slot = (slot + step) % slots
        return slot, high, low


def _integers(count: int) -> memoryview:
    # Memory that is zeroed on first access: writing zeros into 64 MiB would stop everything for 70 ms.
    return memoryview(mmap(-1, 8 * count)).cast("Q")


def _prime_up_to(number: int) -> int:
    """The largest prime up to `number`: with it any smaller step visits every slot."""
    while any(number % divisor == 0 for divisor in range(2, int(number**0.5) + 1)):
        number -= 1
    return number
