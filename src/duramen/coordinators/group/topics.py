"""The streams as groups of the consumer protocol see topics."""

from collections.abc import Iterable

from duramen.base.ids import StreamId
from duramen.broker.streams import BrokerStreams
from duramen.groups.topics import GroupTopic

__all__ = ["StreamTopics"]


class StreamTopics:
    """The streams as groups of every kind see topics."""

    def __init__(self, streams: BrokerStreams) -> None:
        self._streams = streams

    def find(self, name: str) -> GroupTopic | None:
        """The topic of that name."""
        stream = self._streams.readable(name)
        return None if stream is None else GroupTopic(name, stream.id, len(stream.partitions))

    def name_of(self, topic_id: StreamId) -> str | None:
        """The name of the topic with that id."""
        stream = self._streams.readable(topic_id)
        return None if stream is None else stream.name

    def names(self) -> Iterable[str]:
        """Every name."""
        return [*self._streams.by_name, *(topic.name for topic in self._streams.live_topics)]
