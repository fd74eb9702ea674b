"""Ids that outlive a process, as values. Pure: the caller passes randomness.

A topic id has 128 bits like Kafka's (KIP-516) and is a version 8 UUID (RFC 9562). Its top 20 bits name the metadata
shard that owns the id, so that a request can be routed by the id alone:

    bits 127..108   shard (0 until there are several)
    bits 107..80    random
    bits  79..76    version, 8
    bits  75..64    random
    bits  63..62    variant, binary 10
    bits  61..0     random
"""

import base64
import uuid
from functools import lru_cache
from typing import Final, NamedTuple, NewType

__all__ = [
    "METADATA_LOG_ID",
    "METADATA_STREAM_ID",
    "SHARD_BITS",
    "LogId",
    "NodeId",
    "Position",
    "StreamId",
    "new_directory_id",
    "new_stream_id",
    "shard_of",
    "shown_cluster_id",
    "stream_id_of",
]

LogId = NewType("LogId", int)
"""A log on this node: 1, 2, 3 …; never used twice, so that old bytes cannot be taken for a new log's."""

NodeId = NewType("NodeId", int)

StreamId = uuid.UUID

METADATA_STREAM_ID: Final = StreamId(int=1)
"""The id that Apache Kafka gives `__cluster_metadata`."""

METADATA_LOG_ID: Final = LogId(1)
"""A node's first log is that of its metadata."""


class Position(NamedTuple):
    """The leader epoch and the offset of a record: positions of one log compare like histories."""

    leader_epoch: int
    offset: int


SHARD_BITS = 20


def new_stream_id(random_16: bytes, shard: int = 0) -> StreamId:
    """A fresh topic id from 16 random bytes, owned by `shard`."""
    low = int.from_bytes(random_16, "big") & ((1 << (128 - SHARD_BITS)) - 1)
    low &= ~(0xF << 76) & ~(0x3 << 62)
    return uuid.UUID(int=shard << (128 - SHARD_BITS) | low | 0x8 << 76 | 0x2 << 62)


@lru_cache(maxsize=1024)
def stream_id_of(text: str) -> StreamId:
    """The id in its text form, as events have it: many in a row are about one stream. Raises ValueError."""
    return uuid.UUID(text)


def shard_of(stream_id: StreamId) -> int:
    """The metadata shard that owns `stream_id`."""
    return stream_id.int >> (128 - SHARD_BITS)


def new_directory_id(random_16: bytes) -> uuid.UUID:
    """A fresh id of a data directory from 16 random bytes: a version 4 UUID."""
    return uuid.UUID(bytes=random_16, version=4)


def shown_cluster_id(cluster_id: uuid.UUID) -> str:
    """A cluster's id as clients see it: 22 characters of base64url, as in Kafka."""
    return base64.urlsafe_b64encode(cluster_id.bytes).decode().rstrip("=")
