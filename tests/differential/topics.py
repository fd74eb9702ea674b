"""Steps about topics."""

from typing import Any

from tests.differential.configs import draw_config, note_compression
from tests.differential.drawing import Drawing, Making, Step
from tests.differential.peer import Peer, Symbol

from duramen.codec.kafka.versions import ApiKey

__all__ = ["Topics", "learn_topics", "topic_wish"]


class Topics:
    """Draws them."""

    def __init__(self, draw: Drawing) -> None:
        self._draw = draw

    def making(self) -> list[Making]:
        """The steps of this family."""
        return [
            (6, self._create_topics), (2, self._delete_topics), (3, self._create_partitions), (4, self._metadata),
        ]  # fmt: skip

    def _create_topics(self) -> Step:
        partitions = self._draw.one(1, 3) if self._draw.often() else self._draw.one(0, -1, -2)
        factor = 1 if self._draw.often() else self._draw.one(-1, 2, 0)
        configs = [draw_config(self._draw)] if self._draw.sometimes(0.4) else []
        topics = [topic_wish(self._draw.name(), partitions, configs, factor)]
        note_compression(self._draw, topics[0]["name"], configs)
        if self._draw.sometimes(0.1):
            topics.append(topic_wish("alpha", 1))
        only = self._draw.sometimes(0.2)
        version = self._draw.version(ApiKey.CREATE_TOPICS, 4 if partitions == -1 or factor == -1 else 0)
        wish = {"topics": topics, "timeout_ms": 30_000, "validate_only": only}
        # Where a request only checks, Apache Kafka names ids that nothing will have.
        return Step(ApiKey.CREATE_TOPICS, version, wish, None if only else learn_topics, settle=True)

    def _delete_topics(self) -> Step:
        version = self._draw.version(ApiKey.DELETE_TOPICS)
        name = self._draw.name()
        if version < 6:
            return Step(ApiKey.DELETE_TOPICS, version, {"topic_names": [name], "timeout_ms": 30_000}, settle=True)
        topic: dict[str, Any] = {"name": name}
        if self._draw.sometimes(0.5):
            topic = {"topic_id": Symbol("topic_id", name), "name": None}
        return Step(ApiKey.DELETE_TOPICS, version, {"topics": [topic], "timeout_ms": 30_000}, settle=True)

    def _create_partitions(self) -> Step:
        topic = {"name": self._draw.name(), "count": self._draw.one(1, 2, 3, 4, 0, -1), "assignments": None}
        wish = {"topics": [topic], "timeout_ms": 30_000, "validate_only": self._draw.sometimes(0.3)}
        return Step(ApiKey.CREATE_PARTITIONS, self._draw.version(ApiKey.CREATE_PARTITIONS), wish, settle=True)

    def _metadata(self) -> Step:
        version = self._draw.version(ApiKey.METADATA)
        topics: list[dict[str, Any]] = [{"name": self._draw.name()} for _ in range(self._draw.number(1, 3))]
        if version >= 12 and self._draw.sometimes(0.3):
            topics = [{"name": None, "topic_id": Symbol("topic_id", self._draw.name())}]
        auto = version < 4
        return Step(
            ApiKey.METADATA, version, {"topics": topics, "allow_auto_topic_creation": auto}, settle=auto
        )  # fmt: skip


def topic_wish(name: str, partitions: int, configs: Any = (), factor: int = 1) -> dict[str, Any]:
    return {
        "name": name, "num_partitions": partitions, "replication_factor": factor, "assignments": [],
        "configs": list(configs),
    }  # fmt: skip


def learn_topics(peer: Peer, answer: dict[str, Any]) -> None:
    for topic in answer.get("topics", ()):
        if topic["error_code"] == 0 and topic.get("topic_id") is not None and topic["topic_id"].int:
            peer.learn(Symbol("topic_id", topic["name"]), topic["topic_id"])
