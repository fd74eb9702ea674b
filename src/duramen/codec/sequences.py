"""Sequence numbers and ids of idempotent producers (KIP-98). Pure.

After the sequence number 2**31 - 1 comes 0 again. Producer ids are allocated from 0 on. A log with the records of many
topics, such as the shard of a queue space, has batches with *derived ids*: each stands for a producer and a topic.
"""

from typing import Final

__all__ = ["FIRST_DERIVED_ID", "SEQUENCES", "derived_id", "is_before", "producer_text"]

SEQUENCES: Final = 1 << 31
"""The number of sequence numbers."""

FIRST_DERIVED_ID: Final = 1 << 62
"""Producer ids from here on are derived ids."""


def is_before(sequence: int, other: int) -> bool:
    """Whether a sequence number comes before another one: the distance is less than half of all numbers."""
    return 0 < (other - sequence) % SEQUENCES < SEQUENCES // 2


def derived_id(hashed: bytes) -> int:
    """A derived id, from a hash of a producer id and a topic; never the largest number, which stands for all ids."""
    return FIRST_DERIVED_ID | int.from_bytes(hashed[:8], "big") % (FIRST_DERIVED_ID - 1)


def producer_text(id_: int) -> str:
    """A producer in a message to its client, which does not know derived ids."""
    return f"producer {id_}" if id_ < FIRST_DERIVED_ID else "the producer"
