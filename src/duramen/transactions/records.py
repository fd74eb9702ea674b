"""Records of `__transaction_state`, byte for byte as Apache Kafka's, so that its tools can read them.

    key    int16 version 0: string transactional id
    value  int16 version 0, 1: int64 producer id, int16 epoch, int32 timeout (ms), int8 state, nullable array of topics:
           string name, array of int32 partitions; int64 time of the last change, int64 time of the start (ms).
           From version 1 on lengths are compact and structures end in tagged fields: 0 int64 producer id of the
           transaction before, 1 int64 the next producer id, 2 int16 version of the client's transactions, 3 int16
           epoch of the next producer id; of ours 10000 int64 commit sequence of the newest that was decided

A null value is a tombstone.
"""

import struct
from typing import Final

from duramen.base.errors import BatchCorrupt
from duramen.codec.kafka.fields import FieldReader
from duramen.codec.varint import encode_uvarint
from duramen.transactions.values import NO_PRODUCER, NO_SEQUENCE, PartitionName, TransactionalId, TransactionState

__all__ = ["decode_key", "decode_value", "encode_key", "encode_value"]

_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 1
_PREVIOUS, _NEXT, _CLIENT_VERSION = 0, 1, 2
_SEQUENCE = 10_000  # Kafka drops tags that it does not know

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_HEAD = struct.Struct(">qhib")
_TIMES = struct.Struct(">qq")


def encode_key(id_: str) -> bytes:
    """The key of a transactional id's records."""
    encoded = id_.encode()
    return _INT16.pack(_KEY_VERSION) + _INT16.pack(len(encoded)) + encoded


def decode_key(data: bytes) -> str | None:
    """The transactional id; None for a key of another version. Raises BatchCorrupt."""
    try:
        if _INT16.unpack_from(data)[0] != _KEY_VERSION:
            return None
        (length,) = _INT16.unpack_from(data, 2)
        if length < 0 or 4 + length != len(data):
            raise ValueError("its length is wrong")
        return data[4:].decode()
    except (ValueError, struct.error) as error:
        raise BatchCorrupt(f"a key in __transaction_state is damaged: {error}") from None


def encode_value(one: TransactionalId) -> bytes:
    """A transaction as it is stored."""
    parts = [
        _INT16.pack(_VALUE_VERSION),
        _HEAD.pack(one.producer_id, one.epoch, one.timeout_ms, one.state),
    ]
    if one.state is TransactionState.EMPTY:
        parts.append(b"\0")
    else:
        topics: dict[str, list[int]] = {}
        for topic, partition in sorted(one.partitions):
            topics.setdefault(topic, []).append(partition)
        parts.append(encode_uvarint(len(topics) + 1))
        for topic, partitions in topics.items():
            encoded = topic.encode()
            parts += (encode_uvarint(len(encoded) + 1), encoded, encode_uvarint(len(partitions) + 1))
            parts += map(_INT32.pack, partitions)
            parts.append(b"\0")
    parts.append(_TIMES.pack(one.updated_ms, one.started_ms))
    tags = []
    if one.previous_producer_id != NO_PRODUCER:
        tags.append((_PREVIOUS, _INT64.pack(one.previous_producer_id)))
    if one.next_producer_id != NO_PRODUCER:
        tags.append((_NEXT, _INT64.pack(one.next_producer_id)))
    if one.version:
        tags.append((_CLIENT_VERSION, _INT16.pack(one.version)))
    if one.sequence != NO_SEQUENCE:
        tags.append((_SEQUENCE, _INT64.pack(one.sequence)))
    parts.append(encode_uvarint(len(tags)))
    for tag, content in tags:
        parts += (encode_uvarint(tag), encode_uvarint(len(content)), content)
    return b"".join(parts)


class _Reader(FieldReader):
    def __init__(self, data: bytes) -> None:
        super().__init__(data, _INT16.size)
        self.flexible = _INT16.unpack_from(data)[0] >= _VALUE_VERSION

    def length(self, layout: struct.Struct) -> int:
        return self.uvarint() - 1 if self.flexible else self.number(layout)

    def tags(self) -> dict[int, bytes]:
        if not self.flexible:
            return {}
        return {self.uvarint(): self.take(self.uvarint()) for _ in range(self.uvarint())}


def _partitions(reader: _Reader) -> frozenset[PartitionName]:
    found = set()
    for _ in range(max(0, reader.length(_INT32))):
        topic = reader.take(reader.length(_INT16)).decode()
        for _ in range(reader.length(_INT32)):
            found.add(PartitionName(topic, reader.number(_INT32)))
        reader.tags()
    return frozenset(found)


def decode_value(id_: str, data: bytes) -> TransactionalId:
    """The transaction in `data`. Raises BatchCorrupt."""
    try:
        if not 0 <= _INT16.unpack_from(data)[0] <= _VALUE_VERSION:
            raise ValueError("its version is not known")
        reader = _Reader(data)
        producer_id, epoch, timeout_ms, state = reader.unpack(_HEAD)
        partitions = _partitions(reader)
        updated_ms, started_ms = reader.unpack(_TIMES)
        tags = reader.tags()
        return TransactionalId(
            id_,
            producer_id,
            epoch,
            previous_producer_id=_tag(tags, _PREVIOUS, _INT64, NO_PRODUCER),
            next_producer_id=_tag(tags, _NEXT, _INT64, NO_PRODUCER),
            timeout_ms=timeout_ms,
            state=TransactionState(state),
            partitions=partitions,
            started_ms=started_ms,
            updated_ms=updated_ms,
            version=_tag(tags, _CLIENT_VERSION, _INT16, 0),
            sequence=_tag(tags, _SEQUENCE, _INT64, NO_SEQUENCE),
        )
    except (ValueError, struct.error) as error:
        raise BatchCorrupt(f"the transaction of {id_} in __transaction_state is damaged: {error}") from None


def _tag(tags: dict[int, bytes], tag: int, layout: struct.Struct, default: int) -> int:
    return int(layout.unpack(tags[tag])[0]) if tag in tags else default
