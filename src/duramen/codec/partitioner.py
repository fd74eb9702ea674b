"""Which partition a key belongs to: murmur2 as Kafka's clients have it, so that every client agrees. Pure.

The hash is Austin Appleby's MurmurHash2 with Kafka's seed; https://kafka.apache.org/documentation/#producerconfigs
(`partitioner.class`) says that a keyed record goes to its positive value modulo the count of partitions.
"""

import struct
from typing import Final

__all__ = ["murmur2", "partition_for_key"]

_SEED: Final = 0x9747B28C
_MULTIPLIER: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """The 32-bit hash of `data`, unsigned."""
    size = len(data)
    hashed = _SEED ^ size
    whole = size & ~3
    for (word,) in struct.iter_unpack("<I", data[:whole]):
        mixed = word * _MULTIPLIER & _MASK
        mixed = (mixed ^ mixed >> 24) * _MULTIPLIER & _MASK
        hashed = hashed * _MULTIPLIER & _MASK ^ mixed
    if size > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


def partition_for_key(key: bytes, partitions: int) -> int:
    """The partition of `key`, 0 to `partitions` - 1."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions
