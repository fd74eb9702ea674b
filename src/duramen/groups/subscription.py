"""The topics in a consumer's subscription, which is otherwise opaque to brokers.

    int16 version, array of string topics, nullable bytes user data, from 1 on owned partitions, then more
    https://kafka.apache.org/protocol (ConsumerProtocolSubscription)

A static member that rejoins owns nothing yet, so its subscription differs from its previous one. Only a change of its
topics counts.
"""

import struct

__all__ = ["same_topics", "subscribes_to"]

_INT16 = struct.Struct(">h")
_HEAD = struct.Struct(">hi")


def same_topics(one: bytes, other: bytes) -> bool:
    """Whether both are consumers' subscriptions to the same topics."""
    topics = _topics(one)
    return topics is not None and topics == _topics(other)


def subscribes_to(subscription: bytes, topic: str) -> bool:
    """Whether it is a consumer's subscription to the topic, or one that cannot be read and may be."""
    topics = _topics(subscription)
    return topics is None or topic.encode() in topics


def _topics(subscription: bytes) -> set[bytes] | None:
    topics = set()
    try:
        _, count = _HEAD.unpack_from(subscription)
        position = _HEAD.size
        if count * _INT16.size > len(subscription) - position:
            return None
        for _ in range(count):
            (length,) = _INT16.unpack_from(subscription, position)
            position += _INT16.size + length
            if length < 0 or position > len(subscription):
                return None
            topics.add(subscription[position - length : position])
    except struct.error:
        return None
    return topics
