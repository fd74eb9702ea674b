"""Heartbeats of share groups, repeated until all is prepared.

Apache Kafka prepares share partitions beside the heartbeat that wants them, and assigns them with a later one.
"""

import time
from typing import Any, Final

from tests.differential.peer import Peer, Symbol

from duramen.codec.kafka.versions import ApiKey

__all__ = ["settled"]

_PAUSE_S: Final = 0.05
_SETTLE_S: Final = 15.0


def settled(peer: Peer, group: str, member: str, answer: dict[str, Any]) -> dict[str, Any]:
    """The member's last answer once all is prepared that the group reads, with the last assignment that it was told.

    Whether an assignment is told again is each broker's own affair; what it is now is not.
    """
    if answer["error_code"] or answer["member_epoch"] <= 0:
        return answer
    last = _last(peer, group, member, answer)
    held = Symbol("held", f"{group}/{member}")
    if last["assignment"] is not None:
        peer.learn(held, last["assignment"])
    return last | {"assignment": peer.known(held)}


def _last(peer: Peer, group: str, member: str, answer: dict[str, Any]) -> dict[str, Any]:
    until = time.monotonic() + _SETTLE_S
    while time.monotonic() < until:
        prepared = _wanted(peer, group) <= _prepared(peer, group)
        wish = {
            "group_id": group, "member_id": member, "member_epoch": answer["member_epoch"],
            "subscribed_topic_names": None,
        }  # fmt: skip
        again = peer.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, wish)
        if again["error_code"] or (prepared and again["assignment"] is None):
            return answer
        answer = again if again["assignment"] is not None else again | {"assignment": answer["assignment"]}
        if not prepared:
            time.sleep(_PAUSE_S)
    return answer


def _wanted(peer: Peer, group: str) -> set[tuple[str, int]]:
    """The partitions of the topics that members of the group want."""
    (found,) = peer.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [group]})["groups"]
    names = sorted({name for member in found["members"] for name in member["subscribed_topic_names"]})
    asked = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    topics = peer.ask(ApiKey.METADATA, 12, asked)["topics"]
    return {(topic["name"], one["partition_index"]) for topic in topics for one in topic["partitions"]}


def _prepared(peer: Peer, group: str) -> set[tuple[str, int]]:
    (found,) = peer.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": group, "topics": None}]})[
        "groups"
    ]
    return {(topic["topic_name"], one["partition_index"]) for topic in found["topics"] for one in topic["partitions"]}
