"""Steps about share groups (KIP-932) as a whole: members, descriptions, offsets."""

from typing import Any, Final

from tests.differential.configs import group_config
from tests.differential.drawing import TOPICS, Drawing, Making, Step
from tests.differential.peer import Beside, Peer, Symbol
from tests.differential.settling import settled

from duramen.codec.kafka.versions import ApiKey

__all__ = ["ShareGroupSteps", "share_groups"]

_MEMBERS: Final = ("m1", "m2")


def share_groups(draw: Drawing) -> tuple[str, str]:
    """The groups of this seed: their members stay behind."""
    return f"s1-{draw.seed}", f"s2-{draw.seed}"


class ShareGroupSteps:
    """Draws them."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw
        self._groups = share_groups(draw)

    def begin(self) -> list[Step]:
        """One group begins at the first records, as its members will expect."""
        find = [Step(ApiKey.FIND_COORDINATOR, 3, {"key": group, "key_type": 0}) for group in self._groups]
        return [*find, group_config(self._groups[0], "share.auto.offset.reset", "earliest")]

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [
            (5, self._join), (6, self._stay), (2, self._leave), (3, self._wrong), (4, self._describe),
            (4, self._describe_offsets), (3, self._alter_offsets), (2, self._delete_offsets), (1, self._delete),
        ]  # fmt: skip

    def _group(self) -> str:
        return str(self._draw.one(*self._groups))

    def _place(self) -> tuple[str, str, str]:
        """One group has one member; which of the other's two reads a partition is not promised."""
        group, member = self._group(), self._draw.one(*_MEMBERS)
        if group == self._groups[0]:
            member = _MEMBERS[0]
        return group, f"{group}-{member}", f"{group}/{member}"

    def _beat(self, name: str, wish: dict[str, Any]) -> Step:
        def learn(peer: Peer, answer: dict[str, Any]) -> None:
            if not answer["error_code"]:
                peer.learn(Symbol("member_epoch", name), answer["member_epoch"])

        def finish(peer: Peer, answer: dict[str, Any]) -> dict[str, Any]:
            last = settled(peer, wish["group_id"], wish["member_id"], answer)
            learn(peer, last)
            return last

        return Step(ApiKey.SHARE_GROUP_HEARTBEAT, 1, {"subscribed_topic_names": None, **wish}, learn, finish=finish)

    def _topics(self) -> list[str]:
        names = self._draw.chance.sample(TOPICS, self._draw.number(1, 3))
        return names if self._draw.often() else self._draw.one([], ["absent"], ["alpha", "alpha"], ["a/b"])

    def _join(self) -> Step:
        group, member, name = self._place()
        wish = {"group_id": group, "member_id": member, "member_epoch": 0, "subscribed_topic_names": self._topics()}
        return self._beat(name, wish)

    def _stay(self) -> Step:
        group, member, name = self._place()
        wish: dict[str, Any] = {"group_id": group, "member_id": member, "member_epoch": Symbol("member_epoch", name)}
        if self._draw.sometimes(0.2):
            wish["subscribed_topic_names"] = self._topics()
        return self._beat(name, wish)

    def _leave(self) -> Step:
        group, member, name = self._place()
        return self._beat(name, {"group_id": group, "member_id": member, "member_epoch": -1})

    def _wrong(self) -> Step:
        group, member, name = self._place()
        epoch = Symbol("member_epoch", name)
        wish = {
            "group_id": group, "member_id": member, "member_epoch": 0, "subscribed_topic_names": ["alpha"],
        } | self._draw.one(
            {"group_id": ""}, {"member_id": ""}, {"member_epoch": -2}, {"member_epoch": 99}, {"rack_id": ""},
            {"member_epoch": Beside(epoch, 1)}, {"member_epoch": Beside(epoch, -1)}, {"subscribed_topic_names": None},
            {"subscribed_topic_names": []}, {"member_id": "nobody", "member_epoch": 3},
            {"group_id": self._draw.groups[0], "member_id": "m1"}, {"member_id": "nobody", "member_epoch": -1},
        )  # fmt: skip
        return self._beat(name if wish["group_id"] == group else f"{wish['group_id']}/m1", wish)

    def _any(self) -> str:
        return self._group() if self._draw.often() else str(self._draw.one(*self._draw.groups, "", "nobody's"))

    def _describe(self) -> Step:
        return Step(ApiKey.SHARE_GROUP_DESCRIBE, 1, {"group_ids": [self._any()]}, finish=_with_all_that_is_read)

    def _describe_offsets(self) -> Step:
        topics: Any = None
        if self._draw.sometimes(0.6):
            # Apache Kafka takes half a minute for a partition that is not there.
            partition = self._draw.partition() if self._draw.sometimes(0.2) else 0
            topics = [{"topic_name": self._draw.name(), "partitions": [partition]}]
        version = self._draw.version(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
        wish = {"groups": [{"group_id": self._any(), "topics": topics}]}
        return Step(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, wish)

    def _alter_offsets(self) -> Step:
        group = self._group() if self._draw.often() else ""
        # After one below 0 Apache Kafka does not assign the topic for half a minute; one that is not there makes the
        # topic one that the group reads. So what may not be there is asked of a group that nobody joins.
        index = max(0, self._draw.partition())
        if group and index:
            group = f"s3-{self._draw.seed}"
        partition = {"partition_index": index, "start_offset": self._draw.one(0, 1, 3, 100, -1)}
        topics = [{"topic_name": self._draw.name(), "partitions": [partition]}]
        return Step(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, {"group_id": group, "topics": topics})

    def _delete_offsets(self) -> Step:
        wish = {"group_id": self._any(), "topics": [{"topic_name": self._draw.name()}]}
        return Step(ApiKey.DELETE_SHARE_GROUP_OFFSETS, 0, wish)

    def _delete(self) -> Step:
        version = self._draw.version(ApiKey.DELETE_GROUPS)
        return Step(ApiKey.DELETE_GROUPS, version, {"groups_names": [self._group()]})


def _with_all_that_is_read(_: Peer, answer: dict[str, Any]) -> dict[str, Any]:
    groups = []
    for group in answer["groups"]:
        topics = [topic for member in group["members"] for topic in member["assignment"]["topic_partitions"]]
        read = {(topic["topic_name"], index) for topic in topics for index in topic["partitions"]}
        groups.append({**group, "read": sorted(read)})
    return {**answer, "groups": groups}
