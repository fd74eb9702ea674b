"""Dependencies of a node's replicas: storage, ports, peers, and bounds."""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError
from duramen.base.ports import Buffer, Clock
from duramen.broker.replicas.bulk import BULK, BulkBytes
from duramen.broker.replicas.repair import RepairPeers
from duramen.broker.replicas.throttle.throttle import CatchUpThrottle
from duramen.metadata.partitions import PartitionId
from duramen.replication.effects import Effect
from duramen.replication.messages import AlterPartition, ReplicaFetch, ReplicaFetchAnswer
from duramen.replication.timeouts import TIMEOUTS, ReplicaTimeouts
from duramen.storage.store import Store

__all__ = ["FETCH_BYTES", "ReplicaDependencies", "ReplicaEffects"]

FETCH_BYTES: Final = 1 << 20


class ReplicaEffects(Protocol):
    """Dependencies of replicas."""

    def send(
        self, place: PartitionId, node_id: int, message: ReplicaFetch | ReplicaFetchAnswer, records: Sequence[Buffer]
    ) -> None:
        """Send a message to a node, behind an answer the bytes of whole record batches; it may be lost."""

    def propose(self, place: PartitionId, proposal: AlterPartition) -> None:
        """Send a proposal to the controller; it may be lost."""

    def move_leader(self, place: PartitionId, leader_epoch: int, node_id: int | None) -> None:
        """Ask the controller to let another replica lead in the place of this one: `node_id`, or any."""

    def leads(self, place: PartitionId, leader_epoch: int | None) -> None:
        """Called when this node starts to order batches, in that epoch; None: when it stops."""

    def carried_out(self, place: PartitionId, effect: Effect) -> None:
        """Called after each effect that completes at once: a batch is written, a log truncated."""

    def failed(self, place: PartitionId, error: DuramenError) -> None:
        """The replica cannot be written: it stops, or stays readable, until it is recreated."""

    def report(self, finding: str) -> None:
        """Report something to the operator."""


class ReplicaDependencies(NamedTuple):
    """`broker_epoch` is that of the node's registration; `fetch_bytes` of batches go into an answer, or one batch.

    `pace` is that of answers to replicas that are not in sync, `bulk` how much a replica lacks that takes it in bulk.
    `peers` are asked where a replica is damaged.
    """

    node_id: int
    broker_epoch: int
    store: Store
    clock: Clock
    deadlines: Deadlines
    outside: ReplicaEffects
    timeouts: ReplicaTimeouts = TIMEOUTS
    fetch_bytes: int = FETCH_BYTES
    pace: CatchUpThrottle | None = None
    bulk: BulkBytes = BULK
    peers: RepairPeers | None = None
