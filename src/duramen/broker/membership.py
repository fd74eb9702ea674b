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

    def on_event(self, event: Event) -> None:
        """Handle an event that has taken effect."""

    def restored(self) -> None:
        """Handle the replacement of the whole state."""

    def partition(self, place: PartitionId) -> Partition:
        """A partition of a stream in the metadata. Raises StreamNotFound."""

    def has(self, place: PartitionId) -> bool:
        """Whether a partition is created: those of a large stream are created in steps."""

    def when_made(self, stream_id: StreamId, action: Callable[[], None]) -> None:
        """Call `action` once all partitions of a stream are created, or the stream is deleted; at once if they are."""

    def on_leader_change(self, place: PartitionId, leader_epoch: int | None) -> None:
        """Note that this node now leads a partition, in that epoch; None: it no longer leads it."""

    def handle_request(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Answer a request of another node's broker."""


class NodeMembership(Changes, Protocol):
    """The membership of a node in a cluster, or a standalone node."""

    @property
    def first_role(self) -> Role | None:
        """The role of this node for a partition before the metadata gives it one; None on a standalone node."""

    @property
    def nodes(self) -> Sequence[Node]:
        """The live nodes with their registrations; empty on a standalone node."""

    @property
    def shown_nodes(self) -> Sequence[Node]:
        """Nodes listed in Metadata: live ones, and removed ones for a grace period."""

    @property
    def cluster_id(self) -> UUID:
        """The id of the cluster, on a standalone node that of its data directory."""

    @property
    def controller_id(self) -> int:
        """The active controller; -1 if none is known."""

    @property
    def most_replicas(self) -> int:
        """The largest replication factor."""

    def partition(self, place: PartitionId) -> PartitionState:
        """The leader and the replicas of a partition."""

    def preferred_replica(self, partition: Partition, rack_id: str, offset: int) -> int:
        """The node for a consumer of a rack that reads from an offset; -1: the node that got the request (KIP-392).

        Only a leader redirects consumers, and only to a replica that has the offset.
        """

    def heard_ms(self, node_id: int) -> int:
        """The time of the last message from another node's replicas, in ms since 1970; 0: none since the start."""

    def behind(self) -> Iterator[Sequence[Behind]]:
        """For each partition that this node leads, the followers that are behind."""

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """Send a request to the broker of another node; `done` gets the response, or None if the connection ends first.

        False if there is no connection: then nothing was sent, and `done` is never called.
        """

    def start(self, listener: MetadataListener, done: Callable[[DuramenError | None], None]) -> None:
        """Load the present metadata, then call `done(None)`; the listener receives all later events."""

    def leader_of(self, epoch: int) -> int:
        """The id of the node that led the logs of this directory in an epoch before the start; -1 if not known."""

    def is_gone(self, stream_id: StreamId) -> bool:
        """Whether a stream that the metadata does not know is known to have been deleted."""

    def join(self, done: Done) -> None:
        """Join the cluster after `start`; `done` is called once the other nodes know."""

    def stop(self) -> None:
        """Leave the cluster."""
