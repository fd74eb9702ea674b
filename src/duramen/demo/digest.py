"""A digest of a set of flights that does not depend on their order. Pure.

Each flight has a fingerprint of 128 bits; the digest is their sum modulo 2**128. Unlike exclusive or, a sum does not
hide a duplicate flight.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

__all__ = ["FINGERPRINT_BYTES", "digest_of", "fingerprint"]

FINGERPRINT_BYTES: Final = 16


def fingerprint(message_id: bytes, subject: bytes, body: bytes) -> bytes:
    """What stands for one flight, with its id and its subject. None of the first two may hold a line feed."""
    return blake2b(b"%b\n%b\n%b" % (message_id, subject, body), digest_size=FINGERPRINT_BYTES).digest()


def digest_of(fingerprints: Iterable[bytes]) -> str:
    """The digest of any number of flights, as 32 hexadecimal digits."""
    total = sum(int.from_bytes(one) for one in fingerprints)
    return f"{total % (1 << 8 * FINGERPRINT_BYTES):0{2 * FINGERPRINT_BYTES}x}"
