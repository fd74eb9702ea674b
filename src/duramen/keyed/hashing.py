"""Keyed hashes of keys: 64 bits, which select the slot, and 24 bits of the other half. The secret is per view.

With a public hash, a producer could construct keys that collide or that all map to one place.
"""

import struct
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

__all__ = ["BLAKE2B", "HIGH_BITS", "SECRET_BYTES", "SIPHASH", "HashKey", "blake2b_hash", "siphash"]

SECRET_BYTES: Final = 16
HIGH_BITS: Final = 24
SIPHASH: Final = 1
"""SipHash-2-4 with 128 bits: the native package's hash."""
BLAKE2B: Final = 2
"""BLAKE2b: the fastest keyed hash in Python's standard library."""

HashKey = Callable[[bytes], tuple[int, int]]
"""The hash of a key: 64 bits, and `HIGH_BITS` more."""

_HALVES: Final = struct.Struct("<QQ")
_WORD: Final = (1 << 64) - 1
_HIGH: Final = (1 << HIGH_BITS) - 1


def blake2b_hash(secret: bytes) -> HashKey:
    """The hash for use without the native package."""

    def hashed(key: bytes) -> tuple[int, int]:
        low, high = _HALVES.unpack(blake2b(key, key=secret, digest_size=16).digest())
        return low, high & _HIGH

    return hashed


def siphash(secret: bytes) -> HashKey:
    """The native package's hash, in Python: slow, for tests.

    Aumasson, Bernstein: SipHash, a fast short-input PRF (2012); 128 bits as in its reference code.
    """
    k0, k1 = _HALVES.unpack(secret)

    def hashed(key: bytes) -> tuple[int, int]:
        state = (
            k0 ^ 0x736F6D6570736575,
            k1 ^ 0x646F72616E646F6D ^ 0xEE,
            k0 ^ 0x6C7967656E657261,
            k1 ^ 0x7465646279746573,
        )
        whole = len(key) & ~7
        last = int.from_bytes(key[whole:], "little") | (len(key) & 0xFF) << 56
        for word in (*struct.unpack(f"<{whole // 8}Q", key[:whole]), last):
            v0, v1, v2, v3 = state
            v0, v1, v2, v3 = _rounds((v0, v1, v2, v3 ^ word), 2)
            state = (v0 ^ word, v1, v2, v3)
        v0, v1, v2, v3 = state
        state = _rounds((v0, v1, v2 ^ 0xEE, v3), 4)
        low = state[0] ^ state[1] ^ state[2] ^ state[3]
        v0, v1, v2, v3 = state
        state = _rounds((v0, v1 ^ 0xDD, v2, v3), 4)
        return low, (state[0] ^ state[1] ^ state[2] ^ state[3]) & _HIGH

    return hashed


def _rounds(state: tuple[int, int, int, int], count: int) -> tuple[int, int, int, int]:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 = (v0 + v1) & _WORD
        v1 = _rotated(v1, 13) ^ v0
        v0 = _rotated(v0, 32)
        v2 = (v2 + v3) & _WORD
        v3 = _rotated(v3, 16) ^ v2
        v0 = (v0 + v3) & _WORD
        v3 = _rotated(v3, 21) ^ v0
        v2 = (v2 + v1) & _WORD
        v1 = _rotated(v1, 17) ^ v2
        v2 = _rotated(v2, 32)
    return v0, v1, v2, v3


def _rotated(word: int, bits: int) -> int:
    return (word << bits | word >> (64 - bits)) & _WORD
