"""The effects of a replica; the caller executes them in order.

Nothing waits for the disk: batches are written, and `Machine.synced` is called when they are synced. Cut, Restart and
StartAt are like appends: until a sync covers them, the disk may still have the earlier state.
"""

from typing import NamedTuple

from duramen.replication.messages import AlterPartition, ReplicaBatch, ReplicaFetch, ReplicaFetchAnswer, ReplicaRefusal
from duramen.replication.replication_wait import ReplicationWaitOutcome

__all__ = [
    "AdvanceHighWatermark",
    "AppendRecords",
    "Effect",
    "ProposeInSyncSet",
    "Release",
    "Restart",
    "SendReplicaMessage",
    "ServeReplicaFetch",
    "Settle",
    "Show",
    "StartAt",
    "TransferLeadership",
    "TruncateRecords",
]


class AppendRecords(NamedTuple):
    """Write a batch to the end of the log, at its `first_offset`; `leader_id` is its leader, -1: unknown."""

    batch: ReplicaBatch
    leader_id: int


class TruncateRecords(NamedTuple):
    """Truncate the log at `end_offset`: none of the removed records was acknowledged under acks=all."""

    end_offset: int


class Restart(NamedTuple):
    """Delete all records: the log restarts at `start_offset`."""

    start_offset: int


class StartAt(NamedTuple):
    """Delete the records below `start_offset`, as the leader did."""

    start_offset: int


class SendReplicaMessage(NamedTuple):
    """Send a message to a node."""

    node_id: int
    message: ReplicaFetch | ReplicaFetchAnswer


class ServeReplicaFetch(NamedTuple):
    """Send the response with batches of the log from `answer.asked.end.offset` on, as many as fit."""

    node_id: int
    answer: ReplicaFetchAnswer


class ProposeInSyncSet(NamedTuple):
    """Send a proposal to the controller."""

    proposal: AlterPartition


class AdvanceHighWatermark(NamedTuple):
    """The high watermark has reached this offset: records below it may be shown."""

    high_watermark: int


class Show(NamedTuple):
    """Let the tail of a chain show the records below this offset, independently of the high watermark."""

    offset: int


class Release(NamedTuple):
    """Complete a request with acks=all: acknowledged, or the error."""

    waiter: object
    refusal: ReplicaRefusal | None


class TransferLeadership(NamedTuple):
    """Ask the controller for another leader from the in-sync set: this disk is slow, or this state lacks records.

    `node_id` is the proposed leader; None: any in-sync replica.
    """

    leader_epoch: int
    node_id: int | None = None


class Settle(NamedTuple):
    """Complete a wait for a record."""

    waiter: object
    outcome: ReplicationWaitOutcome


Effect = (
    AppendRecords
    | TruncateRecords
    | Restart
    | StartAt
    | SendReplicaMessage
    | ServeReplicaFetch
    | ProposeInSyncSet
    | AdvanceHighWatermark
    | Show
    | Release
    | TransferLeadership
    | Settle
)
