"""Steps about the records of share groups: fetched by a share session, then acknowledged.

They have groups and a topic to themselves: what a share partition answers while its state is being prepared, or
without any, is a matter of timing in Apache Kafka.
"""

from typing import Any, Final

from tests.differential.batches import batch, produce_step
from tests.differential.configs import group_config
from tests.differential.drawing import Drawing, Making, Step
from tests.differential.peer import Beside, Peer, Symbol
from tests.differential.settling import settled

from duramen.codec.kafka.versions import ApiKey

__all__ = ["PARTITIONS", "SHARED", "Shares"]

SHARED: Final = "shared"
PARTITIONS: Final = 1

_WAIT_MS: Final = 300
_ACCEPT: Final = 1
_RELEASE: Final = 2
_REJECT: Final = 3


class Shares:
    """Draws them."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw
        self._places = [(f"{name}-{draw.seed}", f"{name}-{draw.seed}-m1") for name in ("f1", "f2")]

    def begin(self) -> list[Step]:
        """A member in each group, one of which begins at the first records."""
        steps = [group_config(self._places[0][0], "share.auto.offset.reset", "earliest")]
        for group, member in self._places:
            steps += [
                Step(ApiKey.FIND_COORDINATOR, 3, {"key": group, "key_type": 0}), self._join(group, member),
                Step(
                    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, {"groups": [{"group_id": group, "topics": None}]},
                    until=_is_prepared,
                ),
                self._fetch_all(group, member),
            ]  # fmt: skip
        return steps

    def _join(self, group: str, member: str) -> Step:
        wish = {"group_id": group, "member_id": member, "member_epoch": 0, "subscribed_topic_names": [SHARED]}
        return Step(
            ApiKey.SHARE_GROUP_HEARTBEAT, 1, wish, finish=lambda peer, answer: settled(peer, group, member, answer)
        )

    def _fetch_all(self, group: str, member: str) -> Step:
        """The first fetch, with which the partitions are begun."""
        partitions = [{"partition_index": index, "acknowledgement_batches": []} for index in range(PARTITIONS)]
        wish = {
            "group_id": group, "member_id": member, "share_session_epoch": 0, "max_wait_ms": 2000, "min_bytes": 1,
            "max_bytes": 1 << 24, "max_records": 1, "batch_size": 1, "forgotten_topics_data": [],
            "topics": [{"topic_id": Symbol("topic_id", SHARED), "partitions": partitions}],
        }  # fmt: skip
        return self._step(ApiKey.SHARE_FETCH, wish)

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [(8, self._fetch), (6, self._acknowledge), (4, self._produce), (2, self._describe_offsets)]

    def _produce(self) -> Step:
        records = bytes(batch(self._draw, self._draw.number(1, 5)))
        return produce_step(self._draw, SHARED, self._draw.number(PARTITIONS), records)

    def _describe_offsets(self) -> Step:
        # Apache Kafka takes half a minute for a partition that is not there.
        partitions = [0] if self._draw.often() else [0, 1, 5]
        topics = self._draw.one(None, [{"topic_name": SHARED, "partitions": partitions}])
        group, _ = self._draw.one(*self._places)
        version = self._draw.version(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
        return Step(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, {"groups": [{"group_id": group, "topics": topics}]})

    def _epoch(self, group: str, member: str) -> Any:
        """The next one of the session, a new session's, its end's, or one out of order."""
        session = Symbol("share_epoch", f"{group}/{member}")
        if self._draw.often():
            return session
        return self._draw.one(0, 0, -1, Beside(session, 1), Beside(session, -1), -2)

    def _step(self, api: ApiKey, wish: dict[str, Any]) -> Step:
        def learn(peer: Peer, answer: dict[str, Any]) -> None:
            session = Symbol("share_epoch", f"{wish['group_id']}/{wish['member_id']}")
            sent = wish["share_session_epoch"]
            if answer["error_code"] or sent == -1:
                peer.learn(session, 0)
            else:
                peer.learn(session, 1 if sent == 0 else peer.known(session) + 1)

        return Step(api, self._draw.version(api), wish, learn)

    def _batches(self) -> list[dict[str, Any]]:
        first = self._draw.number(12)
        last = first + self._draw.one(0, 0, 1, 3) if self._draw.often() else first - 1
        kinds = self._draw.one([_ACCEPT], [_ACCEPT], [_RELEASE], [_REJECT])
        if not self._draw.often():
            kinds = self._draw.one([], [9], [0], [4], [_ACCEPT, _RELEASE])
        return [{"first_offset": first, "last_offset": last, "acknowledge_types": kinds}]

    def _topics(self, *, acknowledged: bool) -> list[dict[str, Any]]:
        name = SHARED if self._draw.often() else "absent"
        batches = self._batches() if acknowledged else []
        partition = {
            "partition_index": 0 if self._draw.often() else 5,
            "acknowledgement_batches": batches,
        }
        return [{"topic_id": Symbol("topic_id", name), "partitions": [partition]}]

    def _fetch(self) -> Step:
        group, member = self._draw.one(*self._places)
        if not self._draw.often():
            group, member = self._draw.one(("", member), (group, ""), (group, "nobody"))
        wish = {
            "group_id": group, "member_id": member, "share_session_epoch": self._epoch(group, member),
            "max_wait_ms": _WAIT_MS, "min_bytes": 1, "max_bytes": 1 << 24, "max_records": self._draw.one(500, 500, 2),
            "batch_size": self._draw.one(500, 1), "forgotten_topics_data": [],
            "topics": self._topics(acknowledged=self._draw.sometimes(0.3)) if self._draw.often() else [],
        }  # fmt: skip
        return self._step(ApiKey.SHARE_FETCH, wish)

    def _acknowledge(self) -> Step:
        group, member = self._draw.one(*self._places)
        if not self._draw.often():
            group, member = self._draw.one(("", member), (group, ""), (group, "nobody"))
        wish = {
            "group_id": group, "member_id": member, "share_session_epoch": self._epoch(group, member),
            "topics": self._topics(acknowledged=True),
        }  # fmt: skip
        return self._step(ApiKey.SHARE_ACKNOWLEDGE, wish)


def _is_prepared(answer: dict[str, Any]) -> bool:
    topics = answer["groups"][0]["topics"]
    return bool(topics) and len(topics[0]["partitions"]) == PARTITIONS
