"""The controller's state of a partition, and the replication configs of its stream. Pure values."""

from enum import Enum
from typing import NamedTuple

from duramen.base.insync import least_in_sync

__all__ = ["PartitionConfig", "ReplicatedPartition", "Topology"]


class Topology(Enum):
    """The shape of the fetch connections (`replication.topology`)."""

    FANOUT = "fanout"
    """All replicas fetch from the leader."""
    CHAIN = "chain"
    """Each replica fetches from the replica before it."""
    TREE = "tree"
    """Two replicas fetch from each."""


class PartitionConfig(NamedTuple):
    """`min_insync_replicas` is None if it follows the number of replicas.

    `min_synced_nodes`: a record is shown only once this number of nodes has it on disk.

    `lag_time_max_ms`: a replica that has not caught up for this time is out of sync (`replica.lag.time.max.ms`).
    `eject_latency_ms`: a replica that is slower than the others by more than this is out of sync too
    (`replica.eject.latency.ms`).
    """

    min_insync_replicas: int | None = 1
    min_synced_nodes: int = 1
    topology: Topology = Topology.FANOUT
    lag_time_max_ms: int = 30_000
    eject_latency_ms: int | None = None


class ReplicatedPartition(NamedTuple):
    """A partition in the metadata log. Each change raises `partition_epoch`, each leadership raises both epochs.

    `replicas` are in the order of the assignment, the preferred leader first. `observers` are read replicas: they
    follow, and no commit waits for them. Without a leader the partition waits for one. `adding` is the number of
    replicas that a reassignment adds.
    """

    leader_id: int | None
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    in_sync: frozenset[int]
    observers: tuple[int, ...] = ()
    adding: int = 0

    @property
    def nodes(self) -> tuple[int, ...]:
        """All nodes that have a replica."""
        return (*self.replicas, *self.observers)

    def followed_by(self, node_id: int) -> bool:
        """Whether that node must follow the leader."""
        return self.leader_id not in (None, node_id) and node_id in self.nodes

    def needed(self, config: PartitionConfig) -> int:
        """The number of in-sync nodes that the high watermark requires to rise."""
        least = least_in_sync(config.min_insync_replicas, len(self.replicas) - self.adding)
        return max(least, config.min_synced_nodes)
