"""Node membership: standalone node or cluster node, as far as the broker needs to know."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol
from uuid import UUID

from duramen.base.errors import DuramenError
from duramen.base.ids import StreamId
from duramen.base.ports import Buffer
from duramen.broker.changes import Changes, Done
from duramen.broker.partition import Partition
from duramen.broker.role import Role
from duramen.metadata.events import Event
from duramen.metadata.nodes import Node
from duramen.metadata.partitions import PartitionId, PartitionState
from duramen.replication.machine import Behind

__all__ = ["MetadataListener", "NodeMembership"]


class MetadataListener(Protocol):
    """Receives metadata events after those that `start` has loaded."""

    def happened(self, event: Event) -> None:
        """An event has taken effect."""

    def restored(self) -> None:
        """The state is another as a whole."""

    def partition(self, place: PartitionId) -> Partition:
        """A partition that the metadata has. Raises StreamNotFound."""

    def has(self, place: PartitionId) -> bool:
        """Whether a partition is made already: many are made a few at a time."""

    def when_made(self, stream_id: StreamId, action: Callable[[], None]) -> None:
        """Do `action` once all partitions of a stream are made: now, or later, or when it is deleted."""

    def led(self, place: PartitionId, leader_epoch: int | None) -> None:
        """From here on this node leads a partition, in that epoch; None: no more."""

    def asked(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """The broker of another node asks."""


class NodeMembership(Changes, Protocol):
    """A node's place among others."""

    @property
    def first_role(self) -> Role | None:
        """The role of this node for a partition until it learns it; None: standalone, it leads all."""

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes that are live, as they registered; empty where the node is alone."""

    @property
    def shown_nodes(self) -> Sequence[Node]:
        """Nodes listed in Metadata: live ones, and removed ones for a grace period."""

    @property
    def cluster_id(self) -> UUID:
        """The id of the cluster; that of its directory where the node is alone."""

    @property
    def controller_id(self) -> int:
        """The node that decides; -1 where none is known."""

    @property
    def most_replicas(self) -> int:
        """How many replicas a partition may have."""

    def partition(self, place: PartitionId) -> PartitionState:
        """The leader and the replicas of a partition."""

    def preferred_replica(self, partition: Partition, rack_id: str, offset: int) -> int:
        """The node for a consumer of a rack that reads from an offset; -1: the node that it asked (KIP-392).

        Only a leader redirects consumers, and only to a replica that has the offset.
        """

    def heard_ms(self, node_id: int) -> int:
        """When replicas of another node were last heard of, in ms since 1970; 0: not since the start."""

    def behind(self) -> Iterator[Sequence[Behind]]:
        """For each partition that this node leads, the followers that are behind."""

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """Send a request to the broker of another node; `done` gets the response, or None if the connection ends first.

        False if there is no connection: then nothing was sent, and `done` is never called.
        """

    def start(self, listener: MetadataListener, done: Callable[[DuramenError | None], None]) -> None:
        """Load the present metadata, then `done(None)`; listeners receive all later events."""

    def leader_of(self, epoch: int) -> int:
        """The id of the node that led the logs of this directory in an epoch before the start; -1 if not known."""

    def is_gone(self, stream_id: StreamId) -> bool:
        """Whether a stream that the metadata does not know is known to have been deleted."""

    def join(self, done: Done) -> None:
        """Join the cluster after `start`; `done` once the other nodes know."""

    def stop(self) -> None:
        """Leave the cluster."""
