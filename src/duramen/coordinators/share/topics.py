"""Topics as share groups read them: streams, and queues as topics of one partition whose offsets have gaps.

State is stored under the topic's id, also for a queue. The shard that stores a queue is found by the queue's name, so
a node that has only the id learns the name from the group's record. State of a topic of the inventory is stored under
its lasting id, so it stays with the topic after a rename; clients have another id of it for each of its names.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Protocol
from uuid import UUID

from duramen.base.catalogue.queues import QUEUES
from duramen.base.errors import DuramenError
from duramen.base.ids import shard_of
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.coordinators.group.topics import LASTING
from duramen.groups.share_assignor import Place
from duramen.metadata.partitions import PartitionId
from duramen.queues.topics import SharedRead, space_number

__all__ = ["LastingTopics", "ShareTopics", "SharedQueue", "SharedQueues"]

OffsetDone = Callable[[int, int, DuramenError | OSError | None], None]


class LastingTopics(Protocol):
    """Topics of the inventory by their lasting ids."""

    def is_lasting(self, id_: UUID) -> bool:
        """Whether an id is the lasting id of a topic of the inventory, which may be gone."""

    def find_gone(self, ids: Collection[UUID], done: Callable[[frozenset[UUID]], None]) -> None:
        """`done` gets the topics among these that can never exist again."""


class SharedQueue(Protocol):
    """A queue as a topic. `partition` is the shard that stores it."""

    name: str
    id: UUID
    partition: Partition

    @property
    def shared_as(self) -> UUID:
        """The id under which state is stored."""

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

    def lasting(self, id_: UUID) -> SharedQueue | None:
        """The queue of a topic of the inventory with that lasting id, whatever its name is."""

    def name_of_lasting(self, id_: UUID) -> str | None:
        """The present name of a topic of the inventory; None if this node does not know it."""

    def name_of(self, id_: UUID) -> str | None:
        """The name of a topic with that id that this node has found before."""


class ShareTopics:
    """The topics that share groups may read. `queues` is set once the node has them."""

    def __init__(self, streams: BrokerStreams, lasting: LastingTopics) -> None:
        self._streams = streams
        self.lasting = lasting
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
        """The queue whose topic has that name or id, or that state is stored under that id of."""
        if self.queues is None:
            return None
        if isinstance(key, UUID) and self.lasting.is_lasting(key):
            return self.queues.lasting(key)
        return self.queues.shared(key)

    def find(self, name: str) -> tuple[UUID, int] | None:
        """The id and the number of partitions of a topic."""
        stream = self._streams.find(name)
        if stream is not None:
            return None if stream.internal else (stream.id, len(stream.partitions))
        queue = self.queue(name)
        return None if queue is None else (queue.id, 1)

    def name_of(self, topic_id: UUID) -> str | None:
        """The name of the topic with that id; None if it is unknown."""
        stream = self._streams.find_id(topic_id)
        if stream is not None or self.queues is None:
            return None if stream is None else stream.name
        if self.lasting.is_lasting(topic_id):
            return self.queues.name_of_lasting(topic_id)
        queue = self.queues.shared(topic_id)
        return None if queue is None else queue.name

    def is_stream(self, topic_id: UUID) -> bool:
        """Whether the topic with that id is a stream; the others are light topics."""
        return self._streams.find_id(topic_id) is not None

    def key_name(self, topic_id: UUID) -> str | None:
        """What offsets of the topic are stored under: see `GroupTopics`. None if its name is unknown."""
        if self._streams.find_id(topic_id) is None and self.lasting.is_lasting(topic_id):
            return LASTING + topic_id.hex
        return self.name_of(topic_id)

    def stored_as(self, place: Place) -> Place | None:
        """The partition as state is stored of it; None if there is no such partition."""
        found = self.source(place)
        return None if found is None else place if found[1] is None else (found[1].shared_as, place[1])

    def learn(self, names: Mapping[UUID, str]) -> None:
        """Names of topics at an earlier time, by their ids: of queues, which are not found by an id everywhere."""
        for topic_id, name in names.items():
            if self.queues is None or not name or not shard_of(topic_id) or self.lasting.is_lasting(topic_id):
                continue
            if self.queues.name_of(topic_id) is None:
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
        """Whether there is a stream with that id, or a space whose queues have such ids.

        Also of every lasting id: `LastingTopics.find_gone` finds topics of the inventory that are gone.
        """
        if self._streams.find_id(topic_id) is not None or shard_of(topic_id) in self._spaces.values():
            return True
        return self.lasting.is_lasting(topic_id)

    def gone_with(self, stream: Stream) -> Callable[[UUID], bool]:
        """Which topics are gone now that a stream is deleted: the stream, and the queues of a space."""
        number = space_number(stream.state.number, stream.id) if stream.kind == QUEUES else 0
        return lambda topic_id: (
            topic_id == stream.id or (number > 0 and shard_of(topic_id) == number and not self.exists(topic_id))
        )
