"""Messages between consumers of a group through the broker: subscriptions and assignments. Pure.

int16 version, then the message; what newer versions add stands behind and may be left unread
https://kafka.apache.org/protocol (ConsumerProtocolSubscription, ConsumerProtocolAssignment)
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka.schema import Schema

__all__ = [
    "ConsumerSubscription",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "read_subscription",
]

_NEVER: Final = 1 << 14  # these messages have no flexible versions
_VERSION: Final = b"\0\0"
_NEWEST: Final = 3

_SUBSCRIPTION: Final = Schema(
    "ConsumerProtocolSubscription",
    _NEVER,
    """
    topics []string
    user_data bytes?
    owned_partitions [] 1+
      topic string 1+
      partitions []int32 1+
    generation_id int32 2+ = -1
    rack_id string? 3+
    """,
)
_ASSIGNMENT: Final = Schema(
    "ConsumerProtocolAssignment",
    _NEVER,
    """
    assigned_partitions []
      topic string
      partitions []int32
    user_data bytes?
    """,
)


class ConsumerSubscription(NamedTuple):
    """A member's subscription, and the partitions that it has kept, by topic."""

    topics: frozenset[str]
    owned: Mapping[str, Sequence[int]]
    rack_id: str | None


def read_subscription(data: bytes) -> ConsumerSubscription:
    """The whole subscription of a member. Raises RequestInvalid."""
    body = _body(data)
    message = _SUBSCRIPTION.decode(min(int.from_bytes(data[: len(_VERSION)], "big"), _NEWEST), body)
    owned: dict[str, Sequence[int]] = {one["topic"]: one["partitions"] for one in message["owned_partitions"]}
    return ConsumerSubscription(frozenset(message["topics"]), owned, message["rack_id"])


def encode_subscription(topics: Iterable[str]) -> bytes:
    """The subscription of a member to these topics."""
    return _VERSION + _SUBSCRIPTION.encode(0, {"topics": list(topics), "user_data": None})


def decode_subscription(data: bytes) -> list[str]:
    """The topics that a member wants. Raises RequestInvalid."""
    topics: list[str] = _SUBSCRIPTION.decode(0, _body(data))["topics"]
    return topics


def encode_assignment(partitions: Mapping[str, Sequence[int]]) -> bytes:
    """The assignment of a member: partitions of topics."""
    topics = [{"topic": topic, "partitions": list(indexes)} for topic, indexes in partitions.items()]
    return _VERSION + _ASSIGNMENT.encode(0, {"assigned_partitions": topics, "user_data": None})


def decode_assignment(data: bytes) -> dict[str, list[int]]:
    """The assignment of a member; empty without one. Raises RequestInvalid."""
    if not data:
        return {}
    topics = _ASSIGNMENT.decode(0, _body(data))["assigned_partitions"]
    return {topic["topic"]: topic["partitions"] for topic in topics}


def _body(data: bytes) -> bytes:
    if len(data) < len(_VERSION) or data[0] & 0x80:
        raise RequestInvalid("a consumer's message to its group has no version")
    return data[len(_VERSION) :]
