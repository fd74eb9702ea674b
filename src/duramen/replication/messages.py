"""Messages between replicas of a partition, and between them and the controller. Pure values.

They may be lost, delayed, duplicated and reordered. An end, `Position(epoch of the last record, offset after it)`,
identifies a whole history; that of a log that never had records is (-1, 0).
"""

from enum import Enum
from typing import NamedTuple

from duramen.base.ids import Position
from duramen.base.leader_epochs import Takeover
from duramen.replication.partition import ReplicatedPartition

__all__ = [
    "AlterPartition",
    "AlterPartitionAnswer",
    "InSyncReplica",
    "Message",
    "Permit",
    "Reach",
    "ReplicaBatch",
    "ReplicaFetch",
    "ReplicaFetchAnswer",
    "ReplicaRefusal",
    "ReplicationCheckpoint",
    "SnapshotBound",
]


class ReplicaRefusal(Enum):
    """Why something is not to be had from a replica, or from the controller, now; by the names of Kafka's errors."""

    NOT_LEADER = "it does not lead this partition, or has nothing to pass on"
    FENCED_LEADER_EPOCH = "the epoch of whoever asks is over"
    UNKNOWN_LEADER_EPOCH = "whoever asks is in a later epoch, and this replica did not hear of it in time"
    OFFSET_OUT_OF_RANGE = "the log begins behind that offset, or nobody knows what was before its start"
    NOT_ENOUGH_REPLICAS = "too few replicas are in sync: nothing was appended"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "too few replicas are in sync: what was appended is not acknowledged"
    INVALID_UPDATE_VERSION = "the partition epoch of whoever asks is over"
    INELIGIBLE_REPLICA = "a proposed replica is fenced, or was started again since"


class ReplicaBatch(NamedTuple):
    """Records next to each other: so many from `first_offset` on, ordered by the leader of `epoch`.

    `payload` is nobody's business here.
    """

    epoch: int
    first_offset: int
    records: int = 1
    payload: object = None


class Reach(NamedTuple):
    """How far a replica is in the log of the epoch's leader: below `covered` all is on its disk.

    `broker_epoch` is that of the registration under which it says so (KIP-903).
    """

    node_id: int
    broker_epoch: int
    covered: int


class ReplicationCheckpoint(NamedTuple):
    """A replica keeps a state beside its log, and could make it anew from `offset` on: from its older checkpoint."""

    node_id: int
    broker_epoch: int
    offset: int


class SnapshotBound(NamedTuple):
    """What a replica of a keyed stream says of S0: no snapshot before `oldest` is opened.

    Each replica that may lead has `agreed` on its disk, or more: so far compaction may go.
    """

    oldest: int
    agreed: int


class Permit(NamedTuple):
    """All below `offset` is on the disks of `nodes`; a later leader may come from `members` only.

    Where each member is one of the nodes, what is below `offset` can be shown: no later leader will lack it.
    """

    members: tuple[int, ...]
    nodes: tuple[int, ...]
    offset: int


class ReplicaFetch(NamedTuple):
    """The sender's log ends at `end`: what follows?

    What acknowledges is `reaches`, the sender's own first, then those of the replicas that fetch from it. `confirmed`:
    the leader has answered the sender in this epoch; only the leader answers who is not. A fetch that only `reports`
    wants no batches, and one that waits for them goes on waiting. `number` tells a sender's fetches apart;
    `high_watermark` and `permitted` are what the sender knows already (KIP-1166); it may be kept for `wait_ms`.
    `checkpoints` are those of the sender and of the replicas that fetch from it, where a state is kept beside the log.
    """

    node_id: int
    broker_epoch: int
    leader_epoch: int
    end: Position
    reaches: tuple[Reach, ...]
    high_watermark: int
    permitted: int
    number: int
    confirmed: bool
    reports: bool = False
    wait_ms: int = 500
    checkpoints: tuple[ReplicationCheckpoint, ...] = ()


class ReplicaFetchAnswer(NamedTuple):
    """The answer to `asked`: the batches from there on, or what stands in their way.

    `diverging`: the histories part, and this is the end of the leader's part. `takeovers` are those of the sender's log
    in later epochs than that of the asked end. `forgotten_id` is of the sender's log (see `storage.producers`); None
    where an older version does not say. `snapshots` is the sender's bound, None where the stream is not keyed. Both are
    nobody's business here.
    """

    node_id: int
    leader_epoch: int
    asked: ReplicaFetch
    refusal: ReplicaRefusal | None = None
    high_watermark: int = 0
    start_offset: int = 0
    permit: Permit | None = None
    diverging: Position | None = None
    takeovers: tuple[Takeover, ...] = ()
    batches: tuple[ReplicaBatch, ...] = ()
    forgotten_id: int | None = None
    snapshots: SnapshotBound | None = None


class InSyncReplica(NamedTuple):
    """A replica and the registration in which it caught up."""

    node_id: int
    broker_epoch: int


class AlterPartition(NamedTuple):
    """The leader of the epoch wants this to be the in-sync set, in the place of that of `partition_epoch`.

    Where its checks pass the controller raises the partition epoch, also if the set is the same: then it is over with
    whatever was proposed in the last one and may be on its way still.
    """

    node_id: int
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[InSyncReplica, ...]


class AlterPartitionAnswer(NamedTuple):
    """The controller's answer: the state that it made, or why it made none."""

    asked: AlterPartition
    state: ReplicatedPartition | None = None
    refusal: ReplicaRefusal | None = None


Message = ReplicaFetch | ReplicaFetchAnswer | AlterPartitionAnswer
"""What a replica is handed."""
