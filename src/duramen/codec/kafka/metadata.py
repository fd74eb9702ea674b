"""Metadata of many topics: requests that name all of them, and responses in which only names and ids differ."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from duramen.base.ports import Buffer
from duramen.codec.kafka.messages import RESPONSES
from duramen.codec.kafka.schema import LARGEST_ELEMENTS, LARGEST_TEXT_BYTES, Message
from duramen.codec.kafka.versions import APIS, ApiKey
from duramen.codec.varint import encode_uvarint, read_uvarint

__all__ = ["TopicsByName", "encode_topic", "read_named", "topic_end"]

_TOPICS: Final = RESPONSES[ApiKey.METADATA]
_FLEXIBLE: Final = APIS[ApiKey.METADATA].flexible
_HAS_ID: Final = 10
_HAS_CLUSTER_OPERATIONS: Final = (8, 9, 10)
_ID_BYTES: Final = 16
_NULL_ID: Final = UUID(int=0)
_NO_ID: Final = bytes(_ID_BYTES)
_NO_ERROR: Final = b"\0\0"
_LONGEST_IN_A_BYTE: Final = 127


class TopicsByName(list[str]):
    """The topics of a request that names all of them, each once."""


def read_named(version: int, frame: Buffer, position: int) -> Message | None:
    """A request that names all its topics, with `TopicsByName`; None if the schema has to decode it."""
    if version < _FLEXIBLE:
        return None
    data, skipped = bytes(frame), _ID_BYTES if version >= _HAS_ID else 0
    try:
        count, position = read_uvarint(data, position)
        if not 1 <= count <= LARGEST_ELEMENTS:
            return None
        names = list[str]()
        for _ in range(count - 1):
            if skipped and data[position : position + skipped] != _NO_ID:
                return None
            length = data[position + skipped]
            start = position + skipped + 1
            if length > _LONGEST_IN_A_BYTE:
                length, start = read_uvarint(data, start - 1)
            position = start + length
            if not 1 <= length <= LARGEST_TEXT_BYTES or data[position - 1]:
                return None  # a null name, or tagged fields
            names.append(data[start : position - 1].decode())
        creates = bool(data[position])
        position += 1
        if version in _HAS_CLUSTER_OPERATIONS:
            of_cluster, position = bool(data[position]), position + 1
        else:
            of_cluster = False
        of_topics, tags = bool(data[position]), data[position + 1]
    except (IndexError, ValueError):
        return None
    if tags:
        return None
    return {
        "topics": TopicsByName(dict.fromkeys(names)),
        "allow_auto_topic_creation": creates,
        "include_cluster_authorized_operations": of_cluster,
        "include_topic_authorized_operations": of_topics,
    }


@lru_cache(1024)
def topic_end(version: int, operations: int, partition: tuple[tuple[str, Any], ...]) -> bytes:
    """The bytes of a topic with one partition, whose fields these are, after the topic's name and id."""
    topic: Mapping[str, Any] = {
        "name": "", "topic_id": _NULL_ID, "partitions": [dict(partition)], "topic_authorized_operations": operations,
    }  # fmt: skip
    encoded = _TOPICS.encode_element(version, "topics", topic)
    before = len(_NO_ERROR) + (1 if version >= _FLEXIBLE else 2) + (_ID_BYTES if version >= _HAS_ID else 0)
    return encoded[before:]


def encode_topic(version: int, name: str, topic_id: bytes, end: bytes) -> bytes:
    """A topic without an error, by its name, the bytes of its id, and its `topic_end`."""
    text = name.encode()
    length = encode_uvarint(len(text) + 1) if version >= _FLEXIBLE else len(text).to_bytes(2, "big")
    return b"".join((_NO_ERROR, length, text, topic_id if version >= _HAS_ID else b"", end))
