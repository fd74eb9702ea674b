"""Records of `__consumer_offsets` for groups of the consumer protocol, byte for byte as Apache Kafka's.

    key    int16 kind, string group, then for 5, 7 and 8 string member, for 16 string regular expression;
           strings have an int16 length
    value  int16 version 0, then a flexible message (KIP-482): the tables below

kind 3 the group · 4 its topics (as Kafka 4.0 kept them; read past) · 5 a member's subscription · 6 the target's epoch ·
7 a member's target · 8 what a member has · 16 what a regular expression matches. A null value is a tombstone.
"""

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from duramen.base.errors import BatchCorrupt, RequestInvalid
from duramen.codec.kafka.fields import FieldReader
from duramen.codec.kafka.schema import Message, Schema
from duramen.groups.consumer_values import ClassicSide, ConsumerMember, MemberState
from duramen.groups.topics import TopicPartition

__all__ = [
    "Key",
    "RecordKind",
    "decode_assignment",
    "decode_key",
    "decode_member",
    "decode_metadata",
    "decode_pattern",
    "decode_places",
    "decode_target_epoch",
    "encode_assignment",
    "encode_key",
    "encode_member",
    "encode_metadata",
    "encode_pattern",
    "encode_places",
    "encode_target_epoch",
]


class RecordKind(IntEnum):
    """The type of a record."""

    GROUP = 3
    TOPICS = 4
    MEMBER = 5
    TARGET_EPOCH = 6
    TARGET = 7
    ASSIGNMENT = 8
    PATTERN = 16


class Key(NamedTuple):
    """A record's key; `name` is the member's id or the regular expression, where the kind has one."""

    kind: RecordKind
    group: str
    name: str = ""


_VERSION: Final = 0
_FLEXIBLE: Final = 0
_NAMED: Final = frozenset({RecordKind.MEMBER, RecordKind.TARGET, RecordKind.ASSIGNMENT, RecordKind.PATTERN})
_INT16: Final = struct.Struct(">h")

_GROUP: Final = Schema(
    "ConsumerGroupMetadataValue",
    _FLEXIBLE,
    """
    epoch int32
    metadata_hash int64 tag 0 = 0
    """,
)
_MEMBER: Final = Schema(
    "ConsumerGroupMemberMetadataValue",
    _FLEXIBLE,
    """
    instance_id string?
    rack_id string?
    client_id string
    client_host string
    subscribed_topic_names []string
    subscribed_topic_regex string?
    rebalance_timeout_ms int32 = -1
    server_assignor string?
    classic_member_metadata {}? tag 0
      session_timeout_ms int32
      supported_protocols []
        name string
        metadata bytes
    """,
)
_TARGET_EPOCH: Final = Schema(
    "ConsumerGroupTargetAssignmentMetadataValue",
    _FLEXIBLE,
    """
    assignment_epoch int32
    assignment_timestamp int64 tag 0 = 0
    """,
)
_TARGET: Final = Schema(
    "ConsumerGroupTargetAssignmentMemberValue",
    _FLEXIBLE,
    """
    topic_partitions []
      topic_id uuid
      partitions []int32
    """,
)
_ASSIGNMENT: Final = Schema(
    "ConsumerGroupCurrentMemberAssignmentValue",
    _FLEXIBLE,
    """
    member_epoch int32
    previous_member_epoch int32
    state int8
    assigned_partitions []
      topic_id uuid
      partitions []int32
      assignment_epochs []int32? tag 0
    partitions_pending_revocation []
      topic_id uuid
      partitions []int32
      assignment_epochs []int32? tag 0
    """,
)
_PATTERN: Final = Schema(
    "ConsumerGroupRegularExpressionValue",
    _FLEXIBLE,
    """
    topics []string
    version int64
    timestamp int64
    """,
)


def _text(value: str) -> bytes:
    encoded = value.encode()
    return _INT16.pack(len(encoded)) + encoded


def encode_key(key: Key) -> bytes:
    """The key's bytes."""
    return _INT16.pack(key.kind) + _text(key.group) + (_text(key.name) if key.kind in _NAMED else b"")


def decode_key(data: bytes) -> Key | None:
    """The key in `data`; None where it is of another kind of group. Raises BatchCorrupt."""
    try:
        kind = RecordKind(*_INT16.unpack_from(data))
    except ValueError:
        return None
    except struct.error as error:
        raise BatchCorrupt(f"a key of a consumer group is damaged: {error}") from None
    reader = FieldReader(data, _INT16.size)
    try:
        return Key(kind, reader.text(), reader.text() if kind in _NAMED else "")
    except (ValueError, struct.error) as error:
        raise BatchCorrupt(f"a key of a consumer group is damaged: {error}") from None


def _encode(schema: Schema, message: Message) -> bytes:
    return _INT16.pack(_VERSION) + schema.encode(_VERSION, message)


def _decode(schema: Schema, data: bytes) -> Message:
    try:
        if _INT16.unpack_from(data) != (_VERSION,):
            raise BatchCorrupt("a record of a consumer group has a version that is not known")
        return schema.decode(_VERSION, data, _INT16.size)
    except (RequestInvalid, struct.error) as error:
        raise BatchCorrupt(f"a record of a consumer group is damaged: {error}") from None


def _by_topic(places: Iterable[TopicPartition]) -> list[Message]:
    topics: dict[UUID, list[int]] = {}
    for topic, index in sorted(places):
        topics.setdefault(topic, []).append(index)
    return [{"topic_id": topic, "partitions": indexes} for topic, indexes in topics.items()]


def _with_epochs(member: ConsumerMember, held: Iterable[TopicPartition]) -> list[Message]:
    topics = _by_topic(held)
    for topic in topics if member.since else ():
        places = [(topic["topic_id"], index) for index in topic["partitions"]]
        topic["assignment_epochs"] = [member.since.get(place, member.epoch) for place in places]
    return topics


def _places(topics: Iterable[Any]) -> frozenset[TopicPartition]:
    return frozenset((topic["topic_id"], index) for topic in topics for index in topic["partitions"])


def encode_metadata(epoch: int, metadata_hash: int) -> bytes:
    """A group's epoch, and the hash of the topics that it was reached with."""
    return _encode(_GROUP, {"epoch": epoch, "metadata_hash": metadata_hash})


def decode_metadata(data: bytes) -> tuple[int, int]:
    """A group's epoch and the hash. Raises BatchCorrupt, as all of these."""
    message = _decode(_GROUP, data)
    return message["epoch"], message["metadata_hash"]


def encode_member(member: ConsumerMember) -> bytes:
    """A member's identity and subscription."""
    classic = None
    if member.classic is not None:
        protocols = [{"name": name, "metadata": metadata} for name, metadata in member.classic.protocols]
        classic = {"session_timeout_ms": member.classic.session_timeout_ms, "supported_protocols": protocols}
    return _encode(
        _MEMBER,
        {
            "instance_id": member.instance_id,
            "rack_id": member.rack_id,
            "client_id": member.client_id,
            "client_host": member.client_host,
            "subscribed_topic_names": sorted(member.topics),
            "subscribed_topic_regex": member.pattern,
            "rebalance_timeout_ms": member.rebalance_timeout_ms,
            "server_assignor": member.assignor,
            "classic_member_metadata": classic,
        },
    )


def decode_member(member_id: str, data: bytes) -> ConsumerMember:
    """A member as it joined, with nothing assigned yet."""
    message = _decode(_MEMBER, data)
    classic = message["classic_member_metadata"]
    side = None
    if classic is not None:
        protocols = tuple((one["name"], bytes(one["metadata"])) for one in classic["supported_protocols"])
        side = ClassicSide(classic["session_timeout_ms"], protocols)
    return ConsumerMember(
        member_id,
        message["instance_id"],
        message["rack_id"],
        message["client_id"],
        message["client_host"],
        frozenset(message["subscribed_topic_names"]),
        message["subscribed_topic_regex"],
        message["rebalance_timeout_ms"],
        message["server_assignor"],
        side,
    )


def encode_target_epoch(epoch: int, now_ms: int) -> bytes:
    """The epoch of the group that the target was computed for, and when (ms since 1970)."""
    return _encode(_TARGET_EPOCH, {"assignment_epoch": epoch, "assignment_timestamp": now_ms})


def decode_target_epoch(data: bytes) -> int:
    """The epoch of the group that the target was computed for."""
    epoch: int = _decode(_TARGET_EPOCH, data)["assignment_epoch"]
    return epoch


def encode_places(places: Iterable[TopicPartition]) -> bytes:
    """A member's target."""
    return _encode(_TARGET, {"topic_partitions": _by_topic(places)})


def decode_places(data: bytes) -> frozenset[TopicPartition]:
    """A member's target."""
    return _places(_decode(_TARGET, data)["topic_partitions"])


def encode_assignment(member: ConsumerMember) -> bytes:
    """A member's assignment, and its epoch."""
    return _encode(
        _ASSIGNMENT,
        {
            "member_epoch": member.epoch,
            "previous_member_epoch": member.previous_epoch,
            "state": member.state,
            "assigned_partitions": _with_epochs(member, member.assigned),
            "partitions_pending_revocation": _with_epochs(member, member.revoking),
        },
    )


def decode_assignment(member: ConsumerMember, data: bytes) -> ConsumerMember:
    """The member with its assignment."""
    message = _decode(_ASSIGNMENT, data)
    state = message["state"]
    return member._replace(
        epoch=message["member_epoch"],
        previous_epoch=message["previous_member_epoch"],
        state=MemberState(state) if state in MemberState.__members__.values() else MemberState.UNKNOWN,
        assigned=_places(message["assigned_partitions"]),
        revoking=_places(message["partitions_pending_revocation"]),
        since={
            (topic["topic_id"], index): epoch
            for topic in (*message["assigned_partitions"], *message["partitions_pending_revocation"])
            for index, epoch in zip(topic["partitions"], topic["assignment_epochs"] or (), strict=False)
        },
    )


def encode_pattern(topics: Iterable[str], now_ms: int) -> bytes:
    """The topics that a regular expression matches, and when that was found (ms since 1970)."""
    return _encode(_PATTERN, {"topics": sorted(topics), "version": 0, "timestamp": now_ms})


def decode_pattern(data: bytes) -> frozenset[str]:
    """The topics that a regular expression matched."""
    return frozenset(_decode(_PATTERN, data)["topics"])
