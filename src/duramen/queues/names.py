"""Names of queues, and the hashes that identify their rows. Pure."""

from collections.abc import Callable
from hashlib import blake2b
from typing import Final, NamedTuple

from duramen.base.errors import QueueNameInvalid
from duramen.codec.queue_entries import LONGEST_NAME_BYTES

__all__ = ["HASH_BYTES", "HashName", "Queue", "check_name", "hash_by", "name_problem"]

HASH_BYTES: Final = 16

HashName = Callable[[bytes], bytes]
"""128 bits of a queue's name."""


class Queue(NamedTuple):
    """A queue by its name, and the hash of that."""

    name: bytes
    hash: bytes


def hash_by(secret: bytes) -> HashName:
    """The hash for a space, keyed with a secret of its own (up to 64 bytes)."""

    def hashed(name: bytes) -> bytes:
        return blake2b(name, digest_size=HASH_BYTES, key=secret).digest()

    return hashed


def name_problem(name: bytes | None) -> str:
    """The reason why a name is invalid; empty if it is valid."""
    if not name:
        return "a queue needs a name: 1 to 255 bytes of UTF-8"
    if len(name) > LONGEST_NAME_BYTES:
        return f"a queue's name has {len(name)} bytes; it may have {LONGEST_NAME_BYTES}"
    try:
        name.decode()
    except UnicodeDecodeError:
        return "a queue's name is UTF-8, and this one is not"
    return ""


def check_name(name: str) -> bytes:
    """The bytes of a queue's name. Raises QueueNameInvalid."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise QueueNameInvalid("a queue's name is UTF-8, and this one has half a surrogate pair") from None
    problem = name_problem(encoded)
    if problem:
        raise QueueNameInvalid(problem)
    return encoded
