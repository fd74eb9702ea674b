"""What all who ask other nodes for their clients' sake work with."""

from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from duramen.base.errors import DuramenError, NodeStopping, NotLeader, OffsetNotAvailable
from duramen.base.ports import Buffer
from duramen.broker.broker import Broker
from duramen.broker.forwarding.room import Room
from duramen.broker.partition import Partition
from duramen.controller.partitions import PartitionId

__all__ = ["FIRST_RETRY_MS", "LAST_RETRY_MS", "Way", "Ways", "is_elsewhere"]

FIRST_RETRY_MS: Final = 20
LAST_RETRY_MS: Final = 500
"""How soon a leader is looked for again: twice as late each time."""


class Way(Protocol):
    """How records go to other nodes."""

    def ask_records(self, node_id: int, body: Buffer, done: Callable[[Buffer | None], None]) -> bool:
        """Ask another node; `done` gets the answer, or None where the connection ends before it.

        False where there is no way to it now: then nothing was sent, and `done` is never called.
        """


class Ways(NamedTuple):
    """The broker of this node, the way to others, and the memory for what goes there or comes from there."""

    broker: Broker
    way: Way
    room: Room

    def leader_of(self, partition: Partition) -> int | None:
        """Who leads a partition, as far as is known here; None where nobody does."""
        return self.broker.standing.partition(PartitionId(partition.log.key.stream_id, partition.index)).leader


def is_elsewhere(error: DuramenError | OSError) -> bool:
    """Whether the node that says this has done nothing, and another, or it itself later, may.

    A node that stops leads no more in a moment.
    """
    return isinstance(error, NodeStopping | NotLeader | OffsetNotAvailable)
