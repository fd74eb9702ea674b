"""Steps about what is where: directories, topics by pages, producers."""

from tests.differential.drawing import TOPICS, Drawing, Making, Step

from duramen.codec.kafka.versions import ApiKey

__all__ = ["ClusterSteps"]


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
        return Step(ApiKey.DESCRIBE_LOG_DIRS, self._draw.version(ApiKey.DESCRIBE_LOG_DIRS), {"topics": topics})

    def _topic_partitions(self) -> Step:
        names = [self._draw.name() for _ in range(self._draw.number(1, 4))]
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
        names = (self._draw.name(), self._draw.one(*TOPICS))
        topics = [
            {"name": name, "partition_indexes": [0, self._draw.partition()]}
            for name in names[: 1 if self._draw.often() else 2]
        ]
        version = self._draw.version(ApiKey.DESCRIBE_PRODUCERS)
        return Step(ApiKey.DESCRIBE_PRODUCERS, version, {"topics": topics})
