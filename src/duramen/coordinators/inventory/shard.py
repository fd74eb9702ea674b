"""A metadata shard of the inventory: topics are rows; shard 0 also has tenants and namespaces in memory."""

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from typing import Final, TypeAlias
from uuid import UUID

from duramen.base.ports import StateRows
from duramen.broker.streams import BrokerStreams, Stream
from duramen.codec.batch import DecodedRecord
from duramen.codec.exports import OS, SYNC
from duramen.coordinators.runtime.shard import CoordinatorShard, Decision, RowKind, ShardKind
from duramen.inventory.changes import changes
from duramen.inventory.directory import Directory, DirectoryCommand, directory_keys
from duramen.inventory.directory_history import DirectoryHistory
from duramen.inventory.events import DirectoryEvent, InventoryEvent, decode_event, encode_event
from duramen.inventory.ids import durability_of_id
from duramen.inventory.machine import TopicCommand, TopicShardState, topic_keys

__all__ = [
    "DIRECTORY_SHARD",
    "INVENTORY_CONFIG",
    "INVENTORY_QUEUES",
    "INVENTORY_STREAM",
    "OS_QUEUES",
    "QUEUE_SPACES",
    "InventoryShard",
    "ShardCommand",
    "inventory_kind",
    "queue_space_of",
    "queue_spaces",
]

INVENTORY_STREAM: Final = "__inventory"
INVENTORY_CONFIG: Final = {
    "cleanup.policy": "delete", "durability": "sync", "retention.ms": "-1", "retention.bytes": "-1",
}  # fmt: skip
INVENTORY_QUEUES: Final = "__inventory_queues"
"""The queue space with the records of topics; a queue's name is the topic's lasting id in hex."""
OS_QUEUES: Final = "__inventory_queues_os"
"""The same for topics with durability=os."""
QUEUE_SPACES: Final[Mapping[str, str]] = {SYNC: INVENTORY_QUEUES, OS: OS_QUEUES}
"""The queue spaces by durability."""
DIRECTORY_SHARD: Final = 0


def queue_space_of(lasting_id: UUID) -> str:
    """The queue space with the records of a topic."""
    return QUEUE_SPACES[durability_of_id(lasting_id)]


def queue_spaces(streams: BrokerStreams) -> dict[str, Stream]:
    """The existing queue spaces with the records of topics, by durability."""
    found = ((durability, streams.find(name)) for durability, name in QUEUE_SPACES.items())
    return {durability: space for durability, space in found if space is not None}


ShardCommand: TypeAlias = TopicCommand | DirectoryCommand


class InventoryShard(CoordinatorShard[ShardCommand]):
    """Names of topics; shard 0 also has the directory of tenants and namespaces with their policies."""

    def __init__(self, index: int) -> None:
        self.index = index
        self._topics = TopicShardState(index)
        self.directory = Directory()
        self.told: Callable[[int, int, InventoryEvent], None] | None = None
        """Gets this shard, the offset of an event, and the event, once it is applied."""

        self.loads = 0
        """The number of times that the memory was rebuilt from rows; changes applied meanwhile are not reported."""

        self.history = DirectoryHistory()
        """The directory state for other nodes."""

    def keys_of(self, command: ShardCommand) -> Collection[Hashable]:
        if isinstance(command, DirectoryCommand):
            return directory_keys(command)
        return topic_keys(command)

    def decide(self, command: ShardCommand, rows: StateRows, now_ms: int) -> Decision:
        del now_ms
        if isinstance(command, DirectoryCommand):
            events, response = self.directory.decide(command)
        else:
            events, response = self._topics.decide(command, rows)
        return Decision([(None, encode_event(event)) for event in events], response)

    def apply(self, record: DecodedRecord) -> None:
        if self.index != DIRECTORY_SHARD and self.told is None:
            return
        event = decode_event(record)
        if self.index == DIRECTORY_SHARD:
            self.directory.apply(event)
            if isinstance(event, DirectoryEvent):
                self.history.add(record.value or b"")
        if self.told is not None:
            self.told(self.index, record.offset, event)

    def loaded(self, rows: StateRows) -> Iterator[None]:
        self.loads += 1
        self._topics.load(rows)
        self.directory = Directory()
        if self.index == DIRECTORY_SHARD:
            self.directory.load(rows)
            self.history.loaded()
        return iter(())


def inventory_kind(checkpoint_records: int = 100_000) -> ShardKind[ShardCommand]:
    """The shard kind of the inventory."""
    rows = RowKind(changes, checkpoint_records, has_memory=True)
    return ShardKind(INVENTORY_STREAM, InventoryShard, rows)
