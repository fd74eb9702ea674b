"""Steps about groups of the consumer protocol (KIP-848)."""

import time
from typing import Any, Final
from uuid import UUID

from tests.differential.committing import offsets
from tests.differential.drawing import TOPICS, Drawing, Making, Step
from tests.differential.peer import Beside, Peer, Symbol

from duramen.codec.kafka.versions import ApiKey

__all__ = ["ConsumerGroupSteps"]

_MEMBERS: Final = ("m1", "m2")
_REBALANCE_MS: Final = 1_800_000
_SETTLE_S: Final = 15.0
_PAUSE_S: Final = 0.05


class ConsumerGroupSteps:
    """Draws them. Their groups are this seed's own, for members stay behind."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw
        self._groups = (f"c1-{draw.seed}", f"c2-{draw.seed}")

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [
            (5, self._join), (9, self._stay), (3, self._leave), (4, self._wrong), (5, self._describe),
            (3, self._commit), (2, self._fetch_offsets), (2, self._other_protocol), (1, self._delete),
        ]  # fmt: skip

    def _group(self) -> str:
        return str(self._draw.one(*self._groups))

    def _place(self) -> tuple[str, str, str]:
        """One group has one member; the other has two, of the assignor whose outcome is laid down."""
        group = self._group()
        member = _MEMBERS[0] if group == self._groups[0] else self._draw.one(*_MEMBERS)
        return group, f"{group}-{member}", f"{group}/{member}"

    def _beat(self, name: str, wish: dict[str, Any], version: int = 1) -> Step:
        def learn(peer: Peer, answer: dict[str, Any]) -> None:
            if answer["error_code"]:
                return
            peer.learn(Symbol("member_epoch", name), answer["member_epoch"])
            if answer["assignment"] is not None:
                peer.learn(Symbol("owned", name), answer["assignment"]["topic_partitions"])
            if answer["member_epoch"] <= 0:
                peer.learn(Symbol("owned", name), [])

        whole = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None, **wish}
        return Step(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, whole, learn)

    def _topics(self) -> list[str]:
        names = self._draw.chance.sample(TOPICS, self._draw.number(1, 4))
        return names if self._draw.often() else self._draw.one([], ["absent"], ["alpha", "alpha"], ["a/b"])

    def _join(self) -> Step:
        group, member, name = self._place()
        wish = {
            "group_id": group, "member_id": member, "member_epoch": 0, "rebalance_timeout_ms": _REBALANCE_MS,
            "topic_partitions": [], "subscribed_topic_names": self._topics(),
            "server_assignor": self._assignor(group) if self._draw.often() else "none",
            "instance_id": None if self._draw.often() else name,
        }  # fmt: skip
        return self._beat(name, wish)

    def _assignor(self, group: str) -> str | None:
        return self._draw.one(None, None, "uniform", "range") if group == self._groups[0] else "range"

    def _stay(self) -> Step:
        group, member, name = self._place()
        wish: dict[str, Any] = {
            "group_id": group, "member_id": member, "member_epoch": Symbol("member_epoch", name),
            "topic_partitions": Symbol("owned", name) if self._draw.often() else None,
        }  # fmt: skip
        if self._draw.sometimes(0.2):
            wish["subscribed_topic_names"] = self._topics()
        return self._beat(name, wish)

    def _leave(self) -> Step:
        group, member, name = self._place()
        epoch = -1 if self._draw.often() else -2
        instance = None if epoch == -1 and self._draw.often() else name
        return self._beat(
            name, {"group_id": group, "member_id": member, "member_epoch": epoch, "instance_id": instance}
        )

    def _wrong(self) -> Step:
        group, member, name = self._place()
        epoch = Symbol("member_epoch", name)
        wish = {
            "group_id": group, "member_id": member, "member_epoch": 0, "rebalance_timeout_ms": _REBALANCE_MS,
            "topic_partitions": [], "subscribed_topic_names": ["alpha"], "server_assignor": "range",
        } | self._draw.one(
            {"group_id": ""}, {"member_id": ""}, {"member_epoch": -3}, {"member_epoch": 99, "topic_partitions": None},
            {"member_epoch": Beside(epoch, 1)}, {"member_epoch": Beside(epoch, -1)}, {"rebalance_timeout_ms": -1},
            {"topic_partitions": None}, {"subscribed_topic_names": None}, {"instance_id": ""}, {"rack_id": ""},
            {"server_assignor": "none"}, {"server_assignor": ""}, {"member_id": "nobody", "member_epoch": 3},
            {"member_id": "nobody", "member_epoch": -1}, {"member_epoch": -2},
            {"group_id": self._draw.groups[0], "member_epoch": 5},
            {"subscribed_topic_names": None, "subscribed_topic_regex": "["},
            {"topic_partitions": [{"topic_id": Symbol("topic_id", "alpha"), "partitions": [0]}]},
        )  # fmt: skip
        # In version 0 a member without an id would get one, of each broker's own.
        newer = "subscribed_topic_regex" in wish or not wish["member_id"]
        return self._beat(name, wish, 1 if newer else self._draw.version(ApiKey.CONSUMER_GROUP_HEARTBEAT))

    def _describe(self) -> Step:
        groups = [self._group() if self._draw.often() else self._draw.one(*self._draw.groups, "", "nobody's")]
        version = self._draw.version(ApiKey.CONSUMER_GROUP_DESCRIBE)
        wish = {"group_ids": groups}

        def finish(peer: Peer, answer: dict[str, Any]) -> dict[str, Any]:
            """Ask until no topic is named that is gone: Apache Kafka's coordinators hear of it a little later."""
            until = time.monotonic() + _SETTLE_S
            while not _assigned(answer) <= _there(peer) and time.monotonic() < until:
                time.sleep(_PAUSE_S)
                answer = peer.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, version, wish)
            return answer

        return Step(ApiKey.CONSUMER_GROUP_DESCRIBE, version, wish, finish=finish)

    def _commit(self) -> Step:
        group, member, name = self._place()
        epoch: Any = Symbol("member_epoch", name)
        wish = {
            "group_id": group, "member_id": member if self._draw.often() else self._draw.one("", "nobody"),
            "generation_id_or_member_epoch": epoch if self._draw.often() else self._draw.one(-1, 0, Beside(epoch, 1)),
            "topics": offsets(self._draw),
        }  # fmt: skip
        return Step(ApiKey.OFFSET_COMMIT, self._draw.version(ApiKey.OFFSET_COMMIT), wish)

    def _fetch_offsets(self) -> Step:
        group, member, name = self._place()
        topics = [{"name": self._draw.name(), "partition_indexes": [0, self._draw.partition()]}]
        asked: dict[str, Any] = {"group_id": group, "topics": topics}
        version = self._draw.version(ApiKey.OFFSET_FETCH, 8)
        if version >= 9 and self._draw.sometimes(0.7):
            epoch = Symbol("member_epoch", name)
            asked |= {"member_id": member, "member_epoch": epoch if self._draw.often() else Beside(epoch, 1)}
        return Step(ApiKey.OFFSET_FETCH, version, {"groups": [asked], "require_stable": False})

    def _other_protocol(self) -> Step:
        """What a group of one protocol answers to the other's requests."""
        group, member, _ = self._place()
        kind = self._draw.number(3)
        if kind == 0:
            return Step(ApiKey.DESCRIBE_GROUPS, self._draw.version(ApiKey.DESCRIBE_GROUPS), {"groups": [group]})
        wish = {"group_id": group, "generation_id": 1, "member_id": member}
        if kind == 1:
            return Step(ApiKey.HEARTBEAT, self._draw.version(ApiKey.HEARTBEAT), wish)
        topics = [{"name": self._draw.name(), "partitions": [{"partition_index": 0}]}]
        return Step(ApiKey.OFFSET_DELETE, 0, {"group_id": group, "topics": topics})

    def _delete(self) -> Step:
        version = self._draw.version(ApiKey.DELETE_GROUPS)
        return Step(ApiKey.DELETE_GROUPS, version, {"groups_names": [self._group()]})


def _assigned(answer: dict[str, Any]) -> set[UUID]:
    """The topics that members have or are to have."""
    members = [member for group in answer["groups"] for member in group["members"]]
    assignments = [member[name] for member in members for name in ("assignment", "target_assignment")]
    return {topic["topic_id"] for one in assignments for topic in one["topic_partitions"]}


def _there(peer: Peer) -> set[UUID]:
    asked = {"topics": None, "allow_auto_topic_creation": False}
    return {topic["topic_id"] for topic in peer.ask(ApiKey.METADATA, 12, asked)["topics"]}
