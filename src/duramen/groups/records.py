"""Records of `__consumer_offsets`, byte for byte as Apache Kafka's, so that its tools can read them.

    key    int16 version   0, 1: offset commit: string group, string topic, int32 partition
                           2: group metadata: string group
                           3 to 16: of groups of other kinds: string group, then what is the kind's own
    value  offset commit, int16 version 3: int64 offset, int32 leader epoch, string metadata, int64 commit time
           group metadata, int16 version 3: string protocol type, int32 generation, nullable string protocol,
           nullable string leader, int64 state time, array of members: string member id, nullable string instance
           id, string client id, string client host, int32 rebalance timeout, int32 session timeout, bytes
           subscription, bytes assignment

Strings have an int16 length, bytes and arrays an int32. A null value is a tombstone.
"""

import struct
from functools import lru_cache
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt
from duramen.codec.kafka.fields import FieldReader
from duramen.groups.values import GroupSnapshot, MemberSnapshot

__all__ = [
    "CommittedOffset",
    "GroupKey",
    "OffsetKey",
    "OtherKey",
    "decode_group",
    "decode_key",
    "decode_offset",
    "encode_group",
    "encode_key",
    "encode_offset",
    "partition_for",
]

_OFFSET_KEY_VERSION: Final = 1
_GROUP_KEY_VERSION: Final = 2
_LAST_KEY_VERSION: Final = 16  # of what other kinds of groups store; beyond are kinds that are not known here
_VALUE_VERSION: Final = 3
_INT16, _INT32, _INT64 = struct.Struct(">h"), struct.Struct(">i"), struct.Struct(">q")


class OffsetKey(NamedTuple):
    """Where a group's offset of a partition is kept."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """Where a group's metadata is kept."""

    group: str


class OtherKey(NamedTuple):
    """Where a group of another kind keeps something: the whole key, the group's name in it included."""

    group: str
    record_key: bytes


class CommittedOffset(NamedTuple):
    """The next offset a group will read, as it was committed at `commit_ms`."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int


@lru_cache(maxsize=1 << 14)
def partition_for(group: str, partitions: int) -> int:
    """The partition of `__consumer_offsets` that keeps a group: Java's hash of the string, as Kafka does it."""
    value = 0
    for unit in struct.iter_unpack(">H", group.encode("utf-16-be", "surrogatepass")):
        value = (31 * value + unit[0]) & 0xFFFFFFFF
    if value >= 1 << 31:
        value = (1 << 32) - value  # the absolute value of a negative int32 …
    return 0 if value == 1 << 31 else value % partitions  # … of which the smallest has none


def _text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _binary(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def encode_key(key: OffsetKey | GroupKey | OtherKey) -> bytes:
    """The key's bytes."""
    if isinstance(key, OtherKey):
        return key.record_key
    if isinstance(key, OffsetKey):
        partition = struct.pack(">i", key.partition)
        return struct.pack(">h", _OFFSET_KEY_VERSION) + _text(key.group) + _text(key.topic) + partition
    return struct.pack(">h", _GROUP_KEY_VERSION) + _text(key.group)


def decode_key(data: bytes) -> OffsetKey | GroupKey | OtherKey | None:
    """The key in `data`; None for a kind that this version does not know. Raises BatchCorrupt."""
    try:
        reader = FieldReader(data)
        version = reader.number(_INT16)
        if version in (0, _OFFSET_KEY_VERSION):
            return OffsetKey(reader.text(), reader.text(), reader.number(_INT32))
        if version == _GROUP_KEY_VERSION:
            return GroupKey(reader.text())
        return OtherKey(reader.text(), bytes(data)) if _GROUP_KEY_VERSION < version <= _LAST_KEY_VERSION else None
    except (ValueError, struct.error) as error:
        raise BatchCorrupt(f"a key of __consumer_offsets is damaged: {error}") from None


def encode_offset(committed: CommittedOffset) -> bytes:
    """The value's bytes."""
    head = struct.pack(">hqi", _VALUE_VERSION, committed.offset, committed.leader_epoch)
    return head + _text(committed.metadata) + struct.pack(">q", committed.commit_ms)


def decode_offset(data: bytes) -> CommittedOffset:
    """The value in `data`. Raises BatchCorrupt."""
    try:
        reader = FieldReader(data)
        if reader.number(_INT16) != _VALUE_VERSION:
            raise ValueError("its version is not known")
        return CommittedOffset(reader.number(_INT64), reader.number(_INT32), reader.text(), reader.number(_INT64))
    except (ValueError, struct.error) as error:
        raise BatchCorrupt(f"an offset in __consumer_offsets is damaged: {error}") from None


def encode_group(snapshot: GroupSnapshot, now_ms: int) -> bytes:
    """The value's bytes."""
    parts = [
        struct.pack(">h", _VALUE_VERSION),
        _text(snapshot.protocol_type),
        struct.pack(">i", snapshot.generation),
        _text(snapshot.protocol),
        _text(snapshot.leader_id),
        struct.pack(">qi", now_ms, len(snapshot.members)),
    ]
    for member in snapshot.members:
        parts += (
            _text(member.member_id),
            _text(member.instance_id),
            _text(member.client_id),
            _text(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            _binary(member.subscription),
            _binary(member.assignment),
        )
    return b"".join(parts)


def decode_group(data: bytes) -> tuple[GroupSnapshot, int]:
    """The value in `data`, and when it was written (ms). Raises BatchCorrupt."""
    try:
        reader = FieldReader(data)
        if reader.number(_INT16) != _VALUE_VERSION:
            raise ValueError("its version is not known")
        protocol_type, generation = reader.text(), reader.number(_INT32)
        protocol, leader_id = reader.nullable_text(), reader.nullable_text()
        written_ms = reader.number(_INT64)
        members = []
        for _ in range(reader.number(_INT32)):
            member_id, instance_id = reader.text(), reader.nullable_text()
            client_id, client_host = reader.text(), reader.text()
            rebalance_timeout_ms, session_timeout_ms = reader.number(_INT32), reader.number(_INT32)
            members.append(
                MemberSnapshot(
                    member_id, instance_id, client_id, client_host, session_timeout_ms, rebalance_timeout_ms,
                    reader.take(reader.number(_INT32)), reader.take(reader.number(_INT32)),
                )
            )  # fmt: skip
        return GroupSnapshot(generation, protocol_type, protocol, leader_id, tuple(members)), written_ms
    except (ValueError, struct.error) as error:
        raise BatchCorrupt(f"a group in __consumer_offsets is damaged: {error}") from None
