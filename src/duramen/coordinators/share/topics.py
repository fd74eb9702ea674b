"""Topics as share groups read them: streams, and queues as topics of one partition whose offsets have gaps.

State is stored under the topic's id, also for a queue. The shard that stores a queue is found by the queue's name, so
a node that has only the id learns the name from the group's record.
"""

from collections.abc import Callable, Mapping
from typing import Protocol
from uuid import UUID

from duramen.base.catalogue.queues import QUEUES
from duramen.base.errors import DuramenError
from duramen.base.ids import shard_of
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.groups.share_assignor import Place
from duramen.metadata.partitions import PartitionId
from duramen.queues.topics import SharedRead, space_number

__all__ = ["ShareTopics", "SharedQueue", "SharedQueues"]

OffsetDone = Callable[[int, int, DuramenError | OSError | None], None]


class SharedQueue(Protocol):
    """A queue as a topic. `partition` is the shard that stores it."""

    name: str
    id: UUID
    partition: Partition

    def find_offset(self, timestamp: int, done: OffsetDone) -> None:
        """As that of a partition."""

    def is_settled(self) -> bool:
        """Whether the queue is trimmed to its retention limits. Raises NotLeader."""

    def settle(self, then: Callable[[], None]) -> None:
        """Trim the queue to its retention limits, then continue."""

    def read_shared(self, offset: int, wanted: Callable[[int], int | None], most: int, max_bytes: int) -> SharedRead:
        """The wanted entries: see `duramen.queues.topics.read_shared`. Raises NotLeader."""

    def left_of(self, start: int, is_over: Callable[[int], bool]) -> tuple[int, int]:
        """The first entry from an offset on that is not over, else the end; and their number, bounded.

        Raises NotLeader.
        """

    def wait(self, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` once something happens to the queue; the result cancels this. Raises NotLeader."""


class SharedQueues(Protocol):
    """The queues that are topics."""

    def shared(self, key: str | UUID) -> SharedQueue | None:
        """The queue whose topic has that name or id, as far as this node knows. A name is known from then on."""

    def name_of(self, id_: UUID) -> str | None:
        """The name of a topic with that id that this node has found before."""


class ShareTopics:
    """The topics that share groups may read. `queues` is set once the node has them."""

    def __init__(self, streams: BrokerStreams) -> None:
        self._streams = streams
        self.queues: SharedQueues | None = None
        self._spaces: dict[UUID, int] = {}  # the numbers of spaces, which the topic ids of their queues begin with
        streams.listeners.append(self._changed)
        for stream in streams:
            self._changed(stream)

    def _changed(self, stream: Stream) -> None:
        if stream.deleted:
            self._spaces.pop(stream.id, None)
        elif stream.kind == QUEUES:
            self._spaces[stream.id] = space_number(stream.state.number, stream.id)

    def queue(self, key: str | UUID) -> SharedQueue | None:
        """The queue whose topic has that name or id."""
        return None if self.queues is None else self.queues.shared(key)

    def find(self, name: str) -> tuple[UUID, int] | None:
        """The id and the number of partitions of a topic."""
        stream = self._streams.find(name)
        if stream is not None:
            return None if stream.internal else (stream.id, len(stream.partitions))
        queue = self.queue(name)
        return None if queue is None else (queue.id, 1)

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic with that id."""
        stream = self._streams.find_id(topic_id)
        found = self.queue(topic_id) if stream is None else stream
        return None if found is None else found.name

    def learn(self, names: Mapping[UUID, str]) -> None:
        """Names of topics at an earlier time, by their ids: of queues, which are not found by an id everywhere."""
        for topic_id, name in names.items():
            if self.queues is not None and name and shard_of(topic_id) and self.queues.name_of(topic_id) is None:
                self.queues.shared(name)

    def source(self, place: Place) -> tuple[Partition, SharedQueue | None] | None:
        """The partition of a stream, or a queue with the shard that stores it."""
        topic_id, index = place
        stream = self._streams.find_id(topic_id)
        if stream is not None:
            return (stream.partitions[index], None) if 0 <= index < len(stream.partitions) else None
        queue = None if index else self.queue(topic_id)
        return None if queue is None else (queue.partition, queue)

    def stored_in(self, place: Place) -> PartitionId:
        """The partition of a stream that stores a partition of a topic: its leader delivers the records."""
        queue = self.queue(place[0]) if self._streams.find_id(place[0]) is None else None
        if queue is None:
            return PartitionId(*place)
        return PartitionId(queue.partition.log.key.stream_id, queue.partition.index)

    def exists(self, topic_id: UUID) -> bool:
        """Whether there is a stream with that id, or a space whose queues have such ids."""
        return self._streams.find_id(topic_id) is not None or shard_of(topic_id) in self._spaces.values()

    def gone_with(self, stream: Stream) -> Callable[[UUID], bool]:
        """Which topics are gone now that a stream is deleted: the stream, and the queues of a space."""
        number = space_number(stream.state.number, stream.id) if stream.kind == QUEUES else 0
        return lambda topic_id: (
            topic_id == stream.id or (number > 0 and shard_of(topic_id) == number and not self.exists(topic_id))
        )
