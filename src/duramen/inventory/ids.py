"""Lasting ids of topics: 16 bytes that name the creating shard; renames and moves never change them.

    20 bits  the shard
    68 bits  a salt of the shard: ids of another inventory are recognised
    40 bits  the topic's sequence in the shard, from 2^39 on if its records have the durability `os`

Pure.
"""

from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.errors import TopicNotFound
from duramen.codec.exports import FIRST_SEQUENCES, OS, SYNC

__all__ = [
    "LARGEST_SEQUENCE", "MOST_SHARDS", "TopicKey", "durability_of_bytes", "durability_of_id", "durability_of_sequence",
    "topic_id", "topic_id_bytes", "topic_key",
]  # fmt: skip

_SHARD_BITS: Final = 20
_SALT_BITS: Final = 68
_SEQUENCE_BITS: Final = 40
MOST_SHARDS: Final = 1 << _SHARD_BITS
LARGEST_SEQUENCE: Final = (1 << _SEQUENCE_BITS) - 1


class TopicKey(NamedTuple):
    """A topic in rows: the shard that created it, and its sequence there."""

    shard: int
    sequence: int


def durability_of_sequence(sequence: int) -> str:
    """The durability of a topic's records."""
    return OS if sequence >= FIRST_SEQUENCES[OS] else SYNC


def durability_of_id(lasting_id: UUID) -> str:
    """The durability of a topic's records."""
    return durability_of_bytes(lasting_id.bytes)


def durability_of_bytes(lasting_id: bytes) -> str:
    """`durability_of_id` for the bytes of an id."""
    return durability_of_sequence(int.from_bytes(lasting_id[-_SEQUENCE_BITS // 8 :], "big"))


@lru_cache(1024)
def _head(inventory: UUID, shard: int) -> int:
    digest = blake2b(shard.to_bytes(4, "big"), digest_size=9, key=inventory.bytes).digest()
    return (shard << _SALT_BITS) | (int.from_bytes(digest, "big") >> (72 - _SALT_BITS))


def topic_id(inventory: UUID, key: TopicKey) -> UUID:
    """The lasting id of a topic; `inventory` is the id of the inventory's stream."""
    return UUID(bytes=topic_id_bytes(inventory, key))


def topic_id_bytes(inventory: UUID, key: TopicKey) -> bytes:
    """The bytes of `topic_id`."""
    return ((_head(inventory, key.shard) << _SEQUENCE_BITS) | key.sequence).to_bytes(16, "big")


def topic_key(inventory: UUID, lasting_id: UUID, shards: int) -> TopicKey:
    """The key of a topic in rows. Raises TopicNotFound for an id of another inventory."""
    head, sequence = lasting_id.int >> _SEQUENCE_BITS, lasting_id.int & LARGEST_SEQUENCE
    shard = head >> _SALT_BITS
    if shard >= shards or head != _head(inventory, shard):
        raise TopicNotFound(f"there is no topic with the id {lasting_id}")
    return TopicKey(shard, sequence)
