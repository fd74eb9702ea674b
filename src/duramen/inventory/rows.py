"""The rows of a shard's view. Pure.

    n, uint32 namespace, name       uint40 sequence; or uint8 flags, uint24 shard, uint40 sequence; or none: deleted
    b, uint32 namespace, last name  uint40 first sequence, uint32 count, body: names of topics created together
    i, uint40 last sequence         uint32 namespace, uint32 count, body: the same by sequence; or 0x02, the last name
    m, uint40 sequence              uint32 namespace, name: the present place of a moved or renamed topic; 0: deleted
    a, uint40 sequence, uint32 namespace, name   nothing: an alias of a topic
    p, uint32 namespace, name       the pending change of the name (`PendingChange`)
    c, uint32 namespace             uint64: number of topics with a name in this shard; namespace 0: in all namespaces
    d, uint32 namespace             nothing: the namespace is dropped
    o, uint40 sequence              the topic's own policies, if it has some
    f                               uint64: the least token of steps of changes (`ChangesFenced`); on clusters
    q                               uint40: the next sequence; qo: that of topics with durability=os
    t, uint32 tenant                a tenant, and s, uint32 namespace: a namespace, as their events; in shard 0
    u, level, account or uint32     policies of an account, a tenant or a namespace, as their event; in shard 0
    k                               uint32, uint32: the next tenant and the next namespace; in shard 0

Keys are big-endian. The key of topics created together is their last sequence, so that one seek finds any of them. The
key of a block of names is its last name. No two blocks of a namespace overlap. A name's own row takes precedence over a
block with the name (`name_rows`).
"""

import struct
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from duramen.base.errors import TopicNotFound
from duramen.base.ports import StateRows
from duramen.codec.exports import FIRST_SEQUENCES, OS, SYNC
from duramen.inventory.ids import LARGEST_SEQUENCE, TopicKey
from duramen.inventory.packing import empty_names, unpack_names

__all__ = [
    "ALIAS",
    "ARRIVED",
    "BEHIND_NAMES",
    "FENCE_KEY",
    "LEAVING",
    "NEXT_IDS_KEY",
    "NEXT_KEYS",
    "POLICIES_END",
    "POLICIES_FIRST",
    "SEQUENCE_BYTES",
    "TOTAL",
    "Block",
    "CreatedTogether",
    "NameRow",
    "Place",
    "alias_end",
    "alias_key",
    "block_end",
    "block_key",
    "block_reference",
    "block_value",
    "body_key",
    "body_row",
    "body_value",
    "count_key",
    "current_namespace",
    "current_place",
    "dropped_key",
    "name_end",
    "name_key",
    "name_row",
    "name_value",
    "names_of_body",
    "namespace_key",
    "next_ids_value",
    "next_sequence",
    "pending_key",
    "place_key",
    "place_of",
    "place_value",
    "policies_key",
    "read_block",
    "read_next_ids",
    "sequence_of_policies",
    "split_name",
    "tenant_key",
    "topic_policies_key",
]

ALIAS: Final = 1
"""The name is an alias: its topic's own shard decides whether it is valid."""
LEAVING: Final = 2
"""A change of the name is in progress: its topic's own shard decides whether it took effect."""
ARRIVED: Final = 4
"""The topic was created under another name: its own shard decides whether this one is its present name."""

SEQUENCE_BYTES: Final = 5
BEHIND_NAMES: Final = b"\xff"
"""After the names of all topics, which are UTF-8."""
TOTAL: Final = 0
POLICIES_FIRST: Final = b"u"
POLICIES_END: Final = b"v"
NEXT_KEYS: Final[Mapping[str, bytes]] = {SYNC: b"q", OS: b"qo"}
"""The keys of the next sequences, by durability."""
FENCE_KEY: Final = b"f"
NEXT_IDS_KEY: Final = b"k"
_U32: Final = struct.Struct(">I")
_BODY: Final = struct.Struct(">II")
_IN_BLOCK: Final = b"\x02"
_IDS: Final = struct.Struct(">II")


class NameRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The target of a name."""

    flags: int
    key: TopicKey


class Place(NamedTuple):
    """The present name of a topic, and its namespace; namespace 0: the topic is deleted."""

    namespace: int
    name: bytes


class CreatedTogether(NamedTuple):
    """Topics created together in a namespace: their number, their last sequence, and the body with their names."""

    last: int
    namespace: int
    topics: int
    body: bytes


def name_key(namespace: int, name: bytes) -> bytes:
    """The key of a topic's name."""
    return b"n" + _U32.pack(namespace) + name


def name_end(namespace: int) -> bytes:
    """The end of all names of a namespace."""
    return b"n" + _U32.pack(namespace + 1)


def split_name(key: bytes) -> tuple[int, bytes]:
    """The namespace and the name in the key of a name, or of its pending change."""
    return _U32.unpack_from(key, 1)[0], key[5:]


def name_value(row: NameRow, shard: int) -> bytes:
    """A name's row in a shard: short for the topics that the shard has created."""
    flags, (home, sequence) = row.flags, row.key
    if not flags and home == shard:
        return sequence.to_bytes(SEQUENCE_BYTES, "big")
    return ((flags << 64) | (home << 40) | sequence).to_bytes(4 + SEQUENCE_BYTES, "big")


def name_row(value: bytes, shard: int) -> NameRow:
    """The decoded row of a name in a shard."""
    if len(value) == SEQUENCE_BYTES:
        return NameRow(0, TopicKey(shard, int.from_bytes(value, "big")))
    number = int.from_bytes(value, "big")
    return NameRow(number >> 64, TopicKey((number >> 40) & 0xFFFFFF, number & LARGEST_SEQUENCE))


class Block(NamedTuple):
    """Topics that were created together: the sequence of the first of them, and their names."""

    first: int
    size: int
    body: bytes


def block_key(namespace: int, last: bytes) -> bytes:
    """The key of a block of names; without one, before all those of a namespace."""
    return b"b" + _U32.pack(namespace) + last


def block_end(namespace: int) -> bytes:
    """The end of all blocks of a namespace."""
    return b"b" + _U32.pack(namespace + 1)


def block_value(block: Block) -> bytes:
    """The encoded block of names."""
    return block.first.to_bytes(SEQUENCE_BYTES, "big") + _U32.pack(block.size) + block.body


def read_block(value: bytes) -> Block:
    """The decoded block of names."""
    return Block(int.from_bytes(value[:SEQUENCE_BYTES], "big"), _U32.unpack_from(value, SEQUENCE_BYTES)[0], value[9:])


def block_reference(last: bytes) -> bytes:
    """A reference to the block that ends with this name, in place of names."""
    return _IN_BLOCK + last


def body_key(last: int) -> bytes:
    """The key of topics that were created together."""
    return b"i" + last.to_bytes(SEQUENCE_BYTES, "big")


def body_value(namespace: int, count: int, body: bytes) -> bytes:
    """The row of topics that were created together."""
    return _BODY.pack(namespace, count) + body


def body_row(key: bytes, value: bytes) -> CreatedTogether:
    """The decoded row of topics that were created together."""
    namespace, topics = _BODY.unpack_from(value)
    return CreatedTogether(int.from_bytes(key[1:], "big"), namespace, topics, value[_BODY.size :])


def place_key(sequence: int) -> bytes:
    """The key of a topic's present place."""
    return b"m" + sequence.to_bytes(SEQUENCE_BYTES, "big")


def place_value(namespace: int, name: bytes) -> bytes:
    """A topic's place as a row's value."""
    return _U32.pack(namespace) + name


def place_of(value: bytes) -> Place:
    """A topic's place from a row's value."""
    return Place(_U32.unpack_from(value)[0], value[4:])


def names_of_body(rows: StateRows, namespace: int, count: int, body: bytes) -> bytes:
    """The names of topics that were created together, packed; empty ones if their namespace was dropped."""
    if body[:1] != _IN_BLOCK:
        return body
    block = rows.get(block_key(namespace, body[1:]))
    return empty_names(count) if block is None else read_block(block).body


def current_place(rows: StateRows, sequence: int) -> Place:
    """The present place of a topic, in the rows of the shard that created it.

    Raises TopicNotFound if it created none.
    """
    value = rows.get(place_key(sequence))
    if value is not None:
        return place_of(value)
    last, namespace, count, body = _created_with(rows, sequence)
    body = names_of_body(rows, namespace, count, body)
    return Place(namespace, unpack_names(body)[sequence - (last - count + 1)])


def current_namespace(rows: StateRows, sequence: int) -> int:
    """As of `current_place`, without unpacking names."""
    value = rows.get(place_key(sequence))
    return _created_with(rows, sequence).namespace if value is None else place_of(value).namespace


def _created_with(rows: StateRows, sequence: int) -> CreatedTogether:
    found = next(rows.scan(body_key(sequence), body_key(LARGEST_SEQUENCE) + b"\x00"), None)
    together = None if found is None else body_row(*found)
    if together is None or sequence <= together.last - together.topics:
        raise TopicNotFound("there is no topic with this id")
    return together


def alias_key(sequence: int, namespace: int = 0, name: bytes = b"") -> bytes:
    """The key of an alias; without one, before all those of a topic."""
    return b"a" + sequence.to_bytes(SEQUENCE_BYTES, "big") + (_U32.pack(namespace) + name if namespace else b"")


def alias_end(sequence: int) -> bytes:
    """The end of all aliases of a topic."""
    return b"a" + (sequence + 1).to_bytes(SEQUENCE_BYTES, "big")


def pending_key(namespace: int, name: bytes) -> bytes:
    """The key of a name's pending change."""
    return b"p" + _U32.pack(namespace) + name


def count_key(namespace: int) -> bytes:
    """The key of the number of topics in a namespace, or of TOTAL."""
    return b"c" + _U32.pack(namespace)


@lru_cache(4096)
def dropped_key(namespace: int) -> bytes:
    """The key that marks a dropped namespace."""
    return b"d" + _U32.pack(namespace)


def next_sequence(rows: StateRows, durability: str) -> int:
    """The sequence after those of all topics of a shard with that durability."""
    value = rows.get(NEXT_KEYS[durability])
    return FIRST_SEQUENCES[durability] if value is None else int.from_bytes(value, "big")


def tenant_key(tenant: int) -> bytes:
    """The key of a tenant."""
    return b"t" + _U32.pack(tenant)


def namespace_key(namespace: int) -> bytes:
    """The key of a namespace."""
    return b"s" + _U32.pack(namespace)


def next_ids_value(tenant: int, namespace: int) -> bytes:
    """The ids of the next tenant and the next namespace, encoded."""
    return _IDS.pack(tenant, namespace)


def read_next_ids(value: bytes | None) -> tuple[int, int]:
    """The ids of the next tenant and the next namespace."""
    return (1, 1) if value is None else _IDS.unpack(value)


def policies_key(level: str, account: str = "", number: int = 0) -> bytes:
    """The key of policies of an account, a tenant or a namespace."""
    return POLICIES_FIRST + level[:1].encode() + (account.encode() if account else _U32.pack(number))


def topic_policies_key(sequence: int) -> bytes:
    """The key of a topic's own policies."""
    return b"o" + sequence.to_bytes(SEQUENCE_BYTES, "big")


def sequence_of_policies(key: bytes) -> int:
    """The topic of a row with a topic's own policies."""
    return int.from_bytes(key[1:], "big")
