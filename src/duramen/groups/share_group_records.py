"""The record of `__consumer_offsets` with the topics of a share group, byte for byte as Apache Kafka's.

    key    int16 15, string group
    value  int16 version 0, then a flexible message: the table below

A group's partitions are *initializing* before their state is stored and *initialized* afterwards, also during a reset;
the states of other partitions are being deleted. A record without a value ends the group.
"""

import struct
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple
from uuid import UUID

from duramen.base.errors import BatchCorrupt, RequestInvalid
from duramen.codec.kafka.schema import Message, Schema
from duramen.groups.share_assignor import Place

__all__ = ["GroupPlaces", "decode_places", "encode_places", "encode_places_key"]

_KIND: Final = 15
_VERSION: Final = b"\0\0"
_LENGTH: Final = struct.Struct(">hh")
_VALUE: Final = Schema(
    "ShareGroupStatePartitionMetadataValue",
    0,
    """
    initializing_topics []
      topic_id uuid
      topic_name string
      partitions []int32
    initialized_topics []
      topic_id uuid
      topic_name string
      partitions []int32
    deleting_topics []
      topic_id uuid
      topic_name string
    """,
)


class GroupPlaces(NamedTuple):
    """The partitions of a share group: those of which state is kept, and those of which that is not sure."""

    kept: frozenset[Place] = frozenset()
    unsure: frozenset[Place] = frozenset()

    @property
    def every(self) -> frozenset[Place]:
        """All of which something may be kept."""
        return self.kept | self.unsure


def encode_places_key(group: str) -> bytes:
    """The key's bytes."""
    encoded = group.encode()
    return _LENGTH.pack(_KIND, len(encoded)) + encoded


def encode_places(places: GroupPlaces, name_of: Callable[[UUID], str]) -> bytes:
    """The value's bytes; `name_of` gives a topic's name."""
    message = {
        "initializing_topics": _by_topic(places.unsure, name_of),
        "initialized_topics": _by_topic(places.kept, name_of),
        "deleting_topics": [],
    }
    return _VERSION + _VALUE.encode(0, message)


def decode_places(data: bytes) -> tuple[GroupPlaces, dict[UUID, str]]:
    """The value in `data`, and the names of its topics when it was encoded. Raises BatchCorrupt."""
    if data[:2] != _VERSION:
        raise BatchCorrupt("a record of a share group has a version that is not known")
    try:
        found = _VALUE.decode(0, data, len(_VERSION))
    except RequestInvalid as error:
        raise BatchCorrupt(f"a record of a share group is damaged: {error}") from None
    kept, unsure = found["initialized_topics"], found["initializing_topics"]
    return GroupPlaces(_places(kept), _places(unsure)), {one["topic_id"]: one["topic_name"] for one in [*kept, *unsure]}


def _by_topic(places: Iterable[Place], name_of: Callable[[UUID], str]) -> list[Message]:
    topics: dict[UUID, list[int]] = {}
    for topic_id, index in sorted(places):
        topics.setdefault(topic_id, []).append(index)
    return [
        {"topic_id": topic_id, "topic_name": name_of(topic_id), "partitions": indexes}
        for topic_id, indexes in topics.items()
    ]


def _places(topics: Iterable[Any]) -> frozenset[Place]:
    return frozenset((topic["topic_id"], index) for topic in topics for index in topic["partitions"])
