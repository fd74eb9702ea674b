"""The streams as groups of the consumer protocol see topics."""

from collections.abc import Callable, Iterable
from typing import Protocol
from uuid import UUID

from duramen.base.ids import StreamId
from duramen.broker.streams import BrokerStreams
from duramen.groups.topics import GroupTopic

__all__ = ["StreamTopics"]


class NamedTopic(Protocol):
    """A topic of one partition that is no stream."""

    name: str
    id: UUID


class StreamTopics:
    """The streams as groups of every kind see topics, and topics that are no streams."""

    def __init__(self, streams: BrokerStreams) -> None:
        self._streams = streams
        self.light: Callable[[str | UUID], NamedTopic | None] = lambda _: None
        """Finds the topics that are no streams, by name or id: they are not among the names."""

    def find(self, name: str) -> GroupTopic | None:
        """The topic of that name."""
        stream = self._streams.readable(name)
        if stream is not None:
            return GroupTopic(name, stream.id, len(stream.partitions))
        light = self.light(name)
        return None if light is None else GroupTopic(light.name, light.id, 1)

    def name_of(self, topic_id: StreamId) -> str | None:
        """The name of the topic with that id."""
        found = self._streams.readable(topic_id) or self.light(topic_id)
        return None if found is None else found.name

    def names(self) -> Iterable[str]:
        """Every name."""
        return [*self._streams.by_name, *(topic.name for topic in self._streams.live_topics)]
