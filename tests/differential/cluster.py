"""Steps about what is where: directories, topics by pages, producers."""

from typing import Any, Final

from tests.differential.drawing import TOPICS, Drawing, Making, Step
from tests.differential.peer import Peer

from duramen.codec.kafka.versions import ApiKey

__all__ = ["ClusterSteps"]

_EARLIEST: Final = -2
_LATEST: Final = -1


class ClusterSteps:
    """Draws them."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [(4, self._log_dirs), (5, self._topic_partitions), (3, self._producers)]

    def _log_dirs(self) -> Step:
        topics = [
            {"topic": self._draw.name(), "partitions": [self._draw.partition() for _ in range(self._draw.number(1, 3))]}
            for _ in range(self._draw.number(3))
        ]
        recompressed = frozenset(self._draw.recompressed)
        version = self._draw.version(ApiKey.DESCRIBE_LOG_DIRS)
        return Step(
            ApiKey.DESCRIBE_LOG_DIRS, version, {"topics": topics},
            finish=lambda peer, answer: _with_kinds_of_sizes(peer, answer, recompressed),
        )  # fmt: skip

    def _topic_partitions(self) -> Step:
        # Named once each: Apache Kafka answers as often as it is asked, Duramen once.
        names = list(dict.fromkeys(self._draw.name() for _ in range(self._draw.number(1, 4))))
        if "" in names:
            names = [""]
        cursor = None
        if self._draw.sometimes(0.4):
            name = self._draw.one(*names) if self._draw.often() else self._draw.name()
            cursor = {"topic_name": name, "partition_index": self._draw.one(0, 1, 2, 5, -1)}
        wish = {
            "topics": [{"name": name} for name in names], "cursor": cursor,
            "response_partition_limit": self._draw.one(2000, 1, 2, 3) if self._draw.often() else self._draw.one(0, -1),
        }  # fmt: skip
        version = self._draw.version(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
        return Step(ApiKey.DESCRIBE_TOPIC_PARTITIONS, version, wish)

    def _producers(self) -> Step:
        names = list(dict.fromkeys((self._draw.name(), self._draw.one(*TOPICS))))
        topics = [
            {"name": name, "partition_indexes": [0, self._draw.partition()]}
            for name in names[: 1 if self._draw.often() else 2]
        ]
        version = self._draw.version(ApiKey.DESCRIBE_PRODUCERS)
        return Step(ApiKey.DESCRIBE_PRODUCERS, version, {"topics": topics})


def _with_kinds_of_sizes(peer: Peer, answer: dict[str, Any], recompressed: frozenset[str]) -> dict[str, Any]:
    """A size that each broker may have of its own says why; any other is compared as it is."""
    for result in answer["results"]:
        for topic in result["topics"]:
            for partition in topic["partitions"]:
                size = partition["partition_size"]
                if _is_empty(peer, topic["name"], partition["partition_index"]):
                    partition["partition_size"] = f"{size} bytes without records"
                elif topic["name"] in recompressed:
                    partition["partition_size"] = f"{size} bytes compressed anew"
    return answer


def _is_empty(peer: Peer, topic: str, index: int) -> bool:
    def offset(stamp: int) -> int:
        topics = [{"name": topic, "partitions": [{"partition_index": index, "timestamp": stamp}]}]
        wish = {"replica_id": -1, "isolation_level": 0, "topics": topics}
        answer = peer.ask(ApiKey.LIST_OFFSETS, 7, wish)
        return int(answer["topics"][0]["partitions"][0]["offset"])

    return offset(_EARLIEST) == offset(_LATEST)
