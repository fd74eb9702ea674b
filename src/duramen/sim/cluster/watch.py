"""Observation points of a running node."""

from collections.abc import Callable
from typing import Protocol
from uuid import UUID
from zlib import crc32

from duramen.base.errors import DuramenError
from duramen.broker.partition import Partition
from duramen.controller.quorum.applier import ControllerView
from duramen.controller.quorum.entries import data_of
from duramen.controller.quorum.snapshot_chunks import Wire
from duramen.metadata.events import Event
from duramen.metadata.partitions import PartitionId
from duramen.raft.effects import Effect as QuorumEffect
from duramen.raft.messages import EntryBatch
from duramen.raft.voters import Voters
from duramen.replication.effects import Effect
from duramen.service.broker import Broker
from duramen.storage.log.log import Log
from duramen.storage.store import Store

__all__ = ["NodeWatcher", "Onlooker", "WatchedBroker", "WatchedStore", "WatchedView"]


class NodeWatcher(Protocol):
    """Observes the nodes, by their ids."""

    def belongs(self, node_id: int, cluster_id: UUID, founders: Voters) -> None:
        """The node belongs to the cluster from here on; nodes that formed it know the `founders`."""

    def applied(self, node_id: int, batch: EntryBatch) -> None:
        """A batch of the metadata log is committed for this node, and takes effect."""

    def restored(self, node_id: int, digest: int) -> None:
        """The node begins with a snapshot of the metadata: `digest` is of the batches that it was made of."""

    def said(self, node_id: int, message: Wire) -> None:
        """The node's replica of the quorum says something."""

    def governed(self, node_id: int, effect: QuorumEffect) -> None:
        """The node's replica of the quorum has done that."""

    def opens(self, node_id: int, place: PartitionId) -> None:
        """The node's replica of a partition is about to begin."""

    def led(self, node_id: int, place: PartitionId, leader_epoch: int | None) -> None:
        """The node leads a partition, in that epoch; None: no more."""

    def carried_out(self, node_id: int, place: PartitionId, effect: Effect) -> None:
        """The node's replica of a partition has done that."""

    def failed(self, node_id: int, error: DuramenError) -> None:
        """The node takes no part any more until it is started again."""

    def reported(self, node_id: int, finding: str) -> None:
        """A message to the node's operator."""


class Onlooker(Protocol):
    """Observes a node's operations on one log."""

    def cuts(self, node_id: int, log: Log, offset: int) -> None:
        """The node is about to delete records below `offset`."""

    def carried_out(self, node_id: int, place: PartitionId, effect: Effect) -> None:
        """As of `NodeWatcher`."""


class WatchedStore(Store):
    """The logs of a node, which are seen when they are cut."""

    cuts: Callable[[Log, int], None]

    def delete_before(
        self, log: Log, offset: int, done: Callable[[DuramenError | None], None], *, patient: bool = False
    ) -> None:
        self.cuts(log, offset)
        super().delete_before(log, offset, done, patient=patient)

    def _to_compact(self) -> list[Log]:
        """Those with a view: the witness compares all others whole."""
        return [log for log in super()._to_compact() if log.view is not None]


class WatchedView(ControllerView):
    """The controller's state, and beside it a checksum of the batches that it was made of."""

    def __init__(
        self,
        node_id: int,
        watcher: NodeWatcher,
        on_event: Callable[[Event, int], None],
        on_restored: Callable[[], None],
    ) -> None:
        super().__init__(on_event, on_restored)
        self._node_id = node_id
        self._watcher = watcher
        self._digest = 0

    def apply(self, batch: EntryBatch) -> None:
        self._digest = crc32(data_of(batch), self._digest)
        self._watcher.applied(self._node_id, batch)
        super().apply(batch)

    def image(self) -> bytes:
        return self._digest.to_bytes(4, "big") + super().image()

    def restore(self, image: bytes) -> None:
        self._digest = int.from_bytes(image[:4], "big")
        self._watcher.restored(self._node_id, self._digest)
        super().restore(image[4:])


class WatchedBroker(Broker):
    """The broker of a node, whose replicas are seen when they begin, and when they lead."""

    watcher: NodeWatcher

    def partition(self, place: PartitionId) -> Partition:
        self.watcher.opens(self.node_id, place)
        return super().partition(place)

    def on_leader_change(self, place: PartitionId, leader_epoch: int | None) -> None:
        super().on_leader_change(place, leader_epoch)
        self.watcher.led(self.node_id, place, leader_epoch)
