"""The partition of a record: Kafka's rule for keys, so that every client selects the same one. Pure.

Murmur2 with Kafka's seed, its sign bit cleared, modulo the count of partitions (Java's producer, and librdkafka
with `partitioner=murmur2_random`).
"""

import struct
from typing import Final

from duramen.base.ports import Buffer

__all__ = ["murmur2", "partition_of"]

_SEED: Final = 0x9747B28C
_FACTOR: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_WORD: Final = struct.Struct("<I")


def murmur2(data: Buffer) -> int:
    """The 32-bit murmur2 hash of `data` as Kafka computes it, without a sign."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for (word,) in _WORD.iter_unpack(memoryview(data)[:whole]):
        mixed = word * _FACTOR & _MASK
        hashed = (hashed * _FACTOR ^ (mixed ^ mixed >> 24) * _FACTOR) & _MASK
    rest = int.from_bytes(data[whole:], "little")
    if length > whole:
        hashed = (hashed ^ rest) * _FACTOR & _MASK
    hashed = (hashed ^ hashed >> 13) * _FACTOR & _MASK
    return hashed ^ hashed >> 15


def partition_of(key: Buffer, partitions: int) -> int:
    """The partition of a record with that key."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions if partitions > 1 else 0
