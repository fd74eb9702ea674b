"""Messages between replicas of a partition, and between them and the controller. Pure values.

Messages may be lost, delayed, duplicated and reordered. An end, `Position(epoch of the last record, offset after it)`,
identifies a whole history. The end of a log that never had records is (-1, 0).
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
    """The reason of a refusal by a replica or the controller, with the names of Kafka's errors."""

    NOT_LEADER = "it does not lead this partition, or has nothing to pass on"
    FENCED_LEADER_EPOCH = "the leader epoch of the request is over"
    UNKNOWN_LEADER_EPOCH = "the request has a later leader epoch, which this replica did not learn in time"
    OFFSET_OUT_OF_RANGE = "the log begins after that offset, or what was before its start is unknown"
    NOT_ENOUGH_REPLICAS = "too few replicas are in sync: nothing was appended"
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = "too few replicas are in sync: what was appended is not acknowledged"
    INVALID_UPDATE_VERSION = "the partition epoch of the request is over"
    INELIGIBLE_REPLICA = "a proposed replica is fenced, or was started again since"


class ReplicaBatch(NamedTuple):
    """Consecutive records from `first_offset` on, written by the leader of `epoch`.

    The machine does not read `payload`.
    """

    epoch: int
    first_offset: int
    records: int = 1
    payload: object = None


class Reach(NamedTuple):
    """A replica's progress in the log of the epoch's leader: the records below `covered` are on its disk.

    `broker_epoch` is the registration under which the replica reported this (KIP-903).
    """

    node_id: int
    broker_epoch: int
    covered: int


class ReplicationCheckpoint(NamedTuple):
    """The older checkpoint of the state beside a replica's log: from `offset` on the state can be rebuilt."""

    node_id: int
    broker_epoch: int
    offset: int


class SnapshotBound(NamedTuple):
    """The report of a keyed stream's replica on its S0 snapshots: it opens no snapshot before `oldest`.

    Each replica that may lead has at least `agreed` on its disk; compaction may proceed up to there.
    """

    oldest: int
    agreed: int


class Permit(NamedTuple):
    """The records below `offset` are on the disks of `nodes`; a later leader can come only from `members`.

    If all members are in `nodes`, the records below `offset` can be shown: every later leader has them.
    """

    members: tuple[int, ...]
    nodes: tuple[int, ...]
    offset: int


class ReplicaFetch(NamedTuple):
    """Request of the records after `end`, the end of the sender's log.

    `reaches` are the acknowledgements: first the sender's own, then those of the replicas that fetch from it.
    `confirmed`: the leader has responded to the sender in this epoch; only the leader responds to unconfirmed senders.
    A fetch with `reports` asks for no batches and leaves the sender's parked fetch waiting. `number` identifies the
    fetch among the sender's fetches. `high_watermark` and `permitted` are the values that the sender already has
    (KIP-1166). The receiver may park the fetch for `wait_ms`. `checkpoints` are those of the sender and of the replicas
    that fetch from it, if they keep a state beside the log.
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
    """The response to `asked`: the batches from its end on, or the reason why there are none.

    `diverging`: the histories diverge, and this is the end of the leader's part. `takeovers` are the leaderships of the
    sender's log in later epochs than that of the asked end. `forgotten_id` is that of the sender's log (see
    `storage.producers`); None from an older version. `snapshots` is the sender's bound, None if the stream is not
    keyed. The machine does not read these two.
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
    """A replica and the registration under which it caught up."""

    node_id: int
    broker_epoch: int


class AlterPartition(NamedTuple):
    """Proposal of the epoch's leader to replace the in-sync set of `partition_epoch` with this one.

    If its checks pass, the controller raises the partition epoch, even if the set is the same. This invalidates every
    proposal of the last partition epoch that may still be in transit.
    """

    node_id: int
    broker_epoch: int
    leader_epoch: int
    partition_epoch: int
    in_sync: tuple[InSyncReplica, ...]


class AlterPartitionAnswer(NamedTuple):
    """The controller's response: the new state, or the reason of a refusal."""

    asked: AlterPartition
    state: ReplicatedPartition | None = None
    refusal: ReplicaRefusal | None = None


Message = ReplicaFetch | ReplicaFetchAnswer | AlterPartitionAnswer
"""The messages that a replica receives."""
