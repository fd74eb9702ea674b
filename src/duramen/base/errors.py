"""The errors that callers can distinguish.

One class for each error; `id` is stable, and the doors, the docs and the command line use it. The doors map the
classes to the numbers of their protocols. Each class describes the error in its docstring. `safe` says what happened to
the data and whether a retry is safe, and `remedy` what to do.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

__all__ = [
    "AccountNotFound",
    "AnswerTypeUnavailable",
    "AssignorUnknown",
    "BatchCorrupt",
    "BatchInvalid",
    "BatchTooLarge",
    "BodyTooLarge",
    "BodyTypeUnsupported",
    "BugFound",
    "BytesQuotaExceeded",
    "CheckpointInvalid",
    "ClientClosed",
    "ClusterDiffers",
    "ClusterNotAuthorized",
    "ConcurrentTransactions",
    "ConfigInvalid",
    "CoordinatorLoading",
    "DeletionRefused",
    "DemoFailed",
    "DependencyMissing",
    "DirectoryRolledBack",
    "DirectoryTooNew",
    "DirectoryUnusable",
    "DuplicateTableFull",
    "DuramenError",
    "ElectionNotNeeded",
    "ExpectedStreamDiffers",
    "ExportExpired",
    "FencedInstance",
    "FencedLeaderEpoch",
    "FencedMemberEpoch",
    "GlobInvalid",
    "GroupFull",
    "GroupIdInvalid",
    "GroupNotAuthorized",
    "GroupNotEmpty",
    "GroupNotFound",
    "GroupSubscribed",
    "HostRefused",
    "IllegalGeneration",
    "InconsistentProtocol",
    "InputInvalid",
    "InventoryNameInvalid",
    "InventoryPositionLost",
    "InventoryTopicRefused",
    "KeyedTransactionRefused",
    "LeaderUnavailable",
    "LogDamaged",
    "MemberIdRequired",
    "MethodNotAllowed",
    "NameInvalid",
    "NameNotResolved",
    "NameReserved",
    "NamespaceExists",
    "NamespaceNotFound",
    "NatsProtocolInvalid",
    "NodeBusy",
    "NodeDuplicate",
    "NodeEpochStale",
    "NodeNotFound",
    "NodeStarting",
    "NodeStopping",
    "NotController",
    "NotCoordinator",
    "NotEnoughReplicas",
    "NotEnoughReplicasAfterAppend",
    "NotLeader",
    "OffsetMetadataTooLarge",
    "OffsetNotAvailable",
    "OffsetOutOfRange",
    "OptionInvalid",
    "OriginRefused",
    "OutOfOrderSequence",
    "OutcomeUnknown",
    "PageTokenInvalid",
    "PartitionsInvalid",
    "PathNotFound",
    "PatternInvalid",
    "PipelineBusy",
    "PipelineFailed",
    "PipelineInvalid",
    "PolicyInvalid",
    "PolicyNotEffective",
    "ProduceRateExceeded",
    "ProducerFenced",
    "ProducerIdUnknown",
    "QueueBatchTooLarge",
    "QueueEntryGone",
    "QueueEntryTooLarge",
    "QueueHistoryRewritten",
    "QueueNameInvalid",
    "QueuePositionFuture",
    "QueuePositionUnknown",
    "QueueRequestReused",
    "QueueShardsFixed",
    "QueueSpaceFull",
    "QueueSpaceNotFound",
    "QueueTopicRefused",
    "QueueTransactionRefused",
    "QueueVersionStale",
    "ReassignmentNotFound",
    "RebalanceInProgress",
    "RecordCut",
    "RecordStateInvalid",
    "RecordsLost",
    "ReplicaAssignmentInvalid",
    "ReplicationFactorInvalid",
    "RequestInvalid",
    "RequestTimedOut",
    "SecretUnusable",
    "ServerUnreachable",
    "SessionTimeoutInvalid",
    "SettingInvalid",
    "ShareGroupUnknown",
    "ShareSessionEpochInvalid",
    "ShareSessionLimitReached",
    "ShareSessionNotFound",
    "SnapshotCut",
    "SnapshotLeaseExpired",
    "SnapshotLeaseNotFound",
    "SnapshotNotReached",
    "SnapshotStartOver",
    "SnapshotTooOld",
    "SparkFailed",
    "StaleMemberEpoch",
    "StateDamaged",
    "StorageFailed",
    "StorageFull",
    "StreamDiffers",
    "StreamExists",
    "StreamNoTable",
    "StreamNotFound",
    "StreamNotKeyed",
    "SubjectInvalid",
    "SystemFailed",
    "TableAhead",
    "TableConflict",
    "TableDamaged",
    "TableForeign",
    "TableStorageFailed",
    "TableUnsupported",
    "TenantExists",
    "TenantNotFound",
    "TimestampInvalid",
    "TopicAliasCycle",
    "TopicAliasDangling",
    "TopicBusy",
    "TopicExists",
    "TopicHasAliases",
    "TopicIsAlias",
    "TopicNotAuthorized",
    "TopicNotFound",
    "TopicQuotaExceeded",
    "TransactionAbortable",
    "TransactionStateInvalid",
    "TransactionTimeoutInvalid",
    "TransactionalIdMissing",
    "TransactionalIdNotAuthorized",
    "TransactionalIdNotFound",
    "TransactionsFull",
    "UnknownLeaderEpoch",
    "UnknownMember",
    "UnreleasedInstance",
    "UnsupportedFeature",
    "UsageWrong",
    "VersionTooOld",
    "VoterDuplicate",
    "VoterNotFound",
    "VotersUnsettled",
]


class DuramenError(Exception):
    """Base of every error that Duramen raises on purpose; the message is one line for people.

    `stored` has the positions of entries of queues that were stored although others of the request were not, by their
    numbers in the request; only clients set it.
    """

    stored: Mapping[int, str] = MappingProxyType({})

    id: ClassVar[str] = "error"
    safe: ClassVar[str] = ""
    remedy: ClassVar[str] = ""
    outcome_known: ClassVar[bool] = True
    """False: a write that ends with this error may have been made, or may still be."""


class SettingInvalid(DuramenError):
    """A setting has an unknown name or a value that is invalid."""

    id = "setting-invalid"
    safe = "Nothing was started or changed."
    remedy = "Correct the setting that the message names; docs/settings.md lists valid values."


class OptionInvalid(DuramenError):
    """An option of a Spark source or sink has an unknown name or an invalid value."""

    id = "option-invalid"
    safe = "No job was started and nothing was written."
    remedy = "Correct the option that the message names; docs/doors/spark.md lists them."


class CheckpointInvalid(DuramenError):
    """A query's checkpoint is for other streams, from another version, or contradicts its table."""

    id = "checkpoint-invalid"
    safe = "The query read and wrote nothing; the checkpoint is unchanged."
    remedy = (
        "Restore the query's checkpoint, or start with a new one, and a new table if it writes to one, at the "
        "position that startingOffsets names (docs/doors/spark.md)."
    )


class StreamNoTable(DuramenError):
    """The stream has no table."""

    id = "stream-no-table"
    safe = "Nothing was started; the stream is unchanged."
    remedy = "Enable one with `duramen table enable STREAM --format delta --location URI`."


class SparkFailed(DuramenError):
    """Spark did not start, or a round of a table failed: an executor was lost, or a worker process failed."""

    id = "spark-failed"
    safe = "The table has nothing of this round; the next round repeats it."
    remedy = "Check what the message names, and Spark's own log, which has details."


class PipelineInvalid(DuramenError):
    """A pipeline's file is invalid; each problem is named with its line and column."""

    id = "pipeline-invalid"
    safe = "Nothing was started and nothing was written."
    remedy = "Fix the named problems; `duramen pipeline validate` checks the whole file and runs nothing."


class PipelineFailed(DuramenError):
    """Queries of a pipeline ended with errors that a restart does not resolve; the others continued."""

    id = "pipeline-failed"
    safe = "Committed data stays. A failed query continues from its checkpoint when the pipeline runs again."
    remedy = "Check `duramen pipeline status`, fix what each error names, and run the pipeline again."


class PipelineBusy(DuramenError):
    """Another application runs a pipeline with the same checkpoints."""

    id = "pipeline-busy"
    safe = "Nothing was started; the other application continues."
    remedy = "Stop the other application first, or choose other checkpoints with `--checkpoints`."


class DependencyMissing(DuramenError):
    """A dependency that Duramen does not install itself is missing or too old; the message names it."""

    id = "dependency-missing"
    safe = "Nothing was started."
    remedy = "Install what the message names; `duramen doctor` lists what else the machine lacks."


class UsageWrong(DuramenError):
    """A command was called with unknown or missing arguments."""

    id = "usage"
    safe = "Nothing was done."
    remedy = "Read the help that the message names."


class SystemFailed(DuramenError):
    """The operating system refused an operation of a command, such as on a file or standard output."""

    id = "system-failed"
    safe = "Acknowledged data is kept. The command ended early."
    remedy = "Fix what the message names, and run the command again."


class BugFound(DuramenError):
    """Duramen has a bug."""

    id = "bug"
    safe = "Acknowledged data is kept. The command ended early."
    remedy = "Run it again with DURAMEN_TRACEBACK=1, and report what that prints."


class DemoFailed(DuramenError):
    """A step of `make demo` failed, or its output does not match its input."""

    id = "demo-failed"
    safe = "Only the demo's own directory was touched."
    remedy = "Run `make demo` again; if it fails again, report it with what it printed."


class DirectoryUnusable(DuramenError):
    """The data directory is used by another node, has foreign files, or cannot be written."""

    id = "directory-unusable"
    safe = "The directory was not changed."
    remedy = (
        "Follow the message: stop the other node, fix the directory's permissions, or choose another with --data-dir."
    )


class DirectoryTooNew(DirectoryUnusable):
    """A newer version of Duramen wrote the data directory."""

    id = "directory-too-new"
    safe = "The directory was not changed."
    remedy = "Use that version of Duramen, or a newer one."


class SecretUnusable(DuramenError):
    """The cluster's secret file is missing, invalid or readable by others; or a new one cannot be created."""

    id = "secret-unusable"
    safe = "Nothing was started, and no file was overwritten."
    remedy = "Fix what the message names, or create a new secret with `duramen cluster secret FILE`."


class ServerUnreachable(DuramenError):
    """No node answered at an address within the time allowed."""

    id = "server-unreachable"
    safe = "Before the first answer nothing was done; a record without an acknowledgement may be stored."
    remedy = (
        "Check that the node runs and that the address is right, then retry; with idempotence, a Nats-Msg-Id or a "
        "request_id a retry stores nothing twice."
    )
    outcome_known = False


class ClientClosed(DuramenError):
    """The client was closed during a call, or used after it was closed."""

    id = "client-closed"
    safe = "Calls in progress may have been executed; reads change nothing."
    remedy = "Connect again."
    outcome_known = False


class RequestTimedOut(DuramenError):
    """The request was not completed in time; it may still complete."""

    id = "request-timed-out"
    safe = "The request may be executed; an idempotent producer and a Nats-Msg-Id make a retry safe."
    remedy = "Check whether it was done, then retry, with a longer timeout if the node is busy."
    outcome_known = False


class RequestInvalid(DuramenError):
    """A request contradicts itself or the protocol."""

    id = "request-invalid"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Correct what the message names."


class DeletionRefused(DuramenError):
    """Records of this stream cannot be deleted by request: it is only compacted, or it is internal."""

    id = "deletion-refused"
    safe = "Nothing was deleted; a retry gives the same answer."
    remedy = (
        "In a queue space delete entries, or purge queues. In other streams set a cleanup.policy with `delete`, or "
        "write tombstones: records with the key and no value."
    )


class InputInvalid(DuramenError):
    """A line or a row of the input is not a record in the selected format, or has no name; the message names it."""

    id = "input-invalid"
    safe = (
        "`duramen produce` has written the records of earlier lines, and not that line and later ones;"
        " a bulk creation creates the topics of all other lines and rows."
    )
    remedy = "Fix the line or the row and repeat the rest; for `duramen produce` another `--format` may be right."


class NatsProtocolInvalid(DuramenError):
    """The server at the NATS address does not support the NATS protocol with headers."""

    id = "nats-protocol-invalid"
    safe = "Nothing from that connection was stored after the error; the interval is recorded as a gap."
    remedy = "Set --nats to a NATS server of version 2.2 or newer."


class UnsupportedFeature(DuramenError):
    """A request needs a feature that this version does not support."""

    id = "unsupported-feature"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Avoid the feature that the message names, or use a version that has it."


class NodeStopping(DuramenError):
    """The node is stopping and accepts no new requests."""

    id = "node-stopping"
    safe = "This request wrote nothing; acknowledged data is kept."
    remedy = "Retry when the node is ready again; Kafka clients do so automatically."


class StorageFull(DuramenError):
    """The disk is full: writes are refused until there is space; reads continue."""

    id = "storage-full"
    safe = "Nothing was written; acknowledged data is kept, and a retry is safe."
    remedy = "Free some space, or shorten the retention of streams; writes then succeed without a restart."


class ShareGroupUnknown(DuramenError):
    """A share group has no state for the partition: it was never assigned, or it was removed."""

    id = "share-group-unknown"
    safe = "Nothing was changed."
    remedy = "Join the group and wait until the partition is assigned; clients do so automatically."


class ShareSessionEpochInvalid(DuramenError):
    """A request of a share session has the wrong epoch."""

    id = "share-session-epoch-invalid"
    safe = "Nothing was changed: records of the consumer stay locked until its session or their lock ends."
    remedy = "Open a new share session; clients do so automatically."


class ShareSessionLimitReached(DuramenError):
    """The node has the maximum number of share sessions."""

    id = "share-session-limit-reached"
    safe = "Nothing was changed."
    remedy = "Close consumers, or raise group.share.max.share.sessions."


class ShareSessionNotFound(DuramenError):
    """The share session does not exist, or has ended."""

    id = "share-session-not-found"
    safe = "Records of the consumer are delivered again."
    remedy = "Open a new share session; clients do so automatically."


class SnapshotCut(DuramenError):
    """A snapshot has records that the stream has lost since, for example in a power failure."""

    id = "snapshot-cut"
    safe = "Nothing was read; a retry gives the same answer."
    remedy = "Drop the state and read a whole snapshot."


class SnapshotLeaseExpired(DuramenError):
    """The lease of a snapshot has ended."""

    id = "snapshot-lease-expired"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Open a new snapshot, and renew its lease before it ends."


class SnapshotLeaseNotFound(DuramenError):
    """The snapshot has no such lease."""

    id = "snapshot-lease-not-found"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Open a new snapshot."


class SnapshotNotReached(DuramenError):
    """A snapshot is ahead of the view of its stream, of the stream's end, or of the position of a reader."""

    id = "snapshot-not-reached"
    safe = "Nothing was read; a retry is safe."
    remedy = (
        "Read the newest snapshot, or retry in a moment if the view is behind. If the message says that the"
        " partition ends before the offset, a retry succeeds only after new records."
    )


class SnapshotStartOver(DuramenError):
    """A reader requests changes since a snapshot that is too old: deletions since then may be missing."""

    id = "snapshot-start-over"
    safe = "Nothing was read; a retry gives the same answer."
    remedy = "Drop the state and read a whole snapshot; `delete.retention.ms` is how long deletions are kept."


class SnapshotTooOld(DuramenError):
    """A snapshot is older than the oldest that can be read, so some of its records may be gone."""

    id = "snapshot-too-old"
    safe = "Nothing was read; a retry gives the same answer."
    remedy = "Read a newer one; `snapshot.retention.ms` keeps snapshots for longer."


class StorageFailed(DuramenError):
    """A write or sync failed: the node, or the log, accepts no writes until the node is restarted."""

    id = "storage-failed"
    safe = "Acknowledged data is kept; whether the records of this request are stored is known after a restart."
    remedy = "Check the disk and the node's log, then restart the node."
    outcome_known = False


class LogDamaged(DuramenError):
    """The requested records are damaged on disk; records around them can be read."""

    id = "log-damaged"
    safe = "Records around the damage are kept and can be read; those in it cannot."
    remedy = "Seek past the damage, or stop the node and restore the file that its log names from a backup."


class StateDamaged(DuramenError):
    """A shard's rows are damaged or missing, and its log no longer has the records to rebuild them."""

    id = "state-damaged"
    safe = "Nothing was done. Other shards are not affected; damaged files are kept."
    remedy = (
        "Start the other replicas, restore the data directory from a backup, or delete the queue space"
        " (docs/operations.md#damaged-rows)."
    )


class BatchCorrupt(DuramenError):
    """A record batch does not match its CRC, or its fields contradict each other."""

    id = "batch-corrupt"
    safe = "The batch was not stored; a retry is safe."
    remedy = "Send it again; if it fails again, check the network and the memory of the client's machine."


class BatchInvalid(DuramenError):
    """A record batch is intact but not allowed here. `records`: the invalid records with reasons (KIP-467)."""

    records: Sequence[tuple[int, str]] = ()

    id = "batch-invalid"
    safe = "The batch was not stored; an unchanged retry gives the same answer."
    remedy = "Correct what the message names: a missing key, a reserved header, or a client older than Kafka 0.11."


class StreamNotKeyed(DuramenError):
    """The stream is not keyed, so it has no snapshots."""

    id = "stream-not-keyed"
    safe = "Nothing was read; a retry gives the same answer."
    remedy = "Set `keyed=true`; a stream needs `cleanup.policy=compact` for it."


class LiveTopicReadOnly(DuramenError):
    """The name is that of a keyed stream's live topic, which consumers can only read."""

    id = "live-topic-read-only"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Name the stream that the topic shows instead; `keyed.live.topic` of the stream names its live topic."


class QueueSpaceNotFound(DuramenError):
    """There is no queue space with that name."""

    id = "queue-space-not-found"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Create one with `duramen queue space create NAME`; `duramen queue space list` lists existing ones."


class QueueNameInvalid(DuramenError):
    """A queue's name is empty, too long or not UTF-8."""

    id = "queue-name-invalid"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Give the queue a name of 1 to 255 bytes of UTF-8."


class QueuePositionUnknown(DuramenError):
    """A position belongs to another queue, or to records that a new leader has replaced."""

    id = "queue-position-unknown"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Use positions from responses about this queue; `start` reads the queue from its first entry."


class QueuePositionFuture(DuramenError):
    """A position is after the end of the queue's shard."""

    id = "queue-position-future"
    safe = "Nothing was done; a retry fails until the queue's shard has grown to that position."
    remedy = "Use `next` of a response about this queue; `end` waits for new entries."


class QueueEntryGone(DuramenError):
    """An entry to edit, delete, acknowledge, return or extend does not exist any more."""

    id = "queue-entry-gone"
    safe = (
        "Nothing of an edit or a deletion was done; `ack`, `nack` and `extend` were executed for all entries that the "
        "response does not name. A retry gives the same answer."
    )
    remedy = "Retrieve the queue's current entries, and omit the position that the message names."


class QueueVersionStale(DuramenError):
    """An entry has another version than the request expects: it was edited meanwhile."""

    id = "queue-version-stale"
    safe = "Nothing of the request was done; a retry gives the same answer."
    remedy = "Retrieve the entry again, and decide on its current value."


class QueueHistoryRewritten(DuramenError):
    """The position is in a range of entries that a replace has revoked; the message names its start and the reason.

    Attributes: `start`, the first revoked position; `by` and `reason` of the replace.
    """

    start: str = ""
    by: str = ""
    reason: str = ""

    id = "history-rewritten"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Undo the effects of entries from that position on, and retrieve from there: the new entries follow."


class QueueLeaseExpired(DuramenError):
    """A lease on an entry has expired or was returned, or another client has leased the entry since."""

    id = "queue-lease-expired"
    safe = "This entry was not changed; the request was executed for all entries that the response does not name."
    remedy = "Discard the result: the entry is delivered again. Use longer leases, or extend them in time."


class QueueRequestReused(DuramenError):
    """A request with other content has used this request id in the last minutes."""

    id = "queue-request-reused"
    safe = "Nothing was done in this shard; a retry gives the same answer while the node remembers the id."
    remedy = "Use a new id for each request, such as a random UUID; reuse it only to repeat the same request."


class QueueBatchTooLarge(DuramenError):
    """A request has too many entries or bytes."""

    id = "queue-batch-too-large"
    safe = "Nothing of the request was done; an unchanged retry gives the same answer."
    remedy = "Send fewer entries at a time, or raise max.message.bytes of the space."


class QueueSpaceFull(DuramenError):
    """A shard of a queue space has as many entries or bytes as a limit of the space allows."""

    id = "queue-space-full"
    safe = "No entry was stored in this shard; a retry is safe, and fails until there is room."
    remedy = (
        "Acknowledge, delete or purge entries of the space's queues, or raise the limit that the message names with "
        "`duramen stream alter SPACE --config NAME=VALUE`."
    )


class QueueEntryTooLarge(DuramenError):
    """An entry is larger than a response over NATS can be."""

    id = "queue-entry-too-large"
    safe = "Nothing was leased, and no delivery was counted; a retry gives the same answer."
    remedy = "Read or lease this queue over HTTP, with the Python client or with `duramen queue`."


class KeyedTransactionRefused(DuramenError):
    """A producer sent a batch of a transaction to a keyed stream of a cluster whose feature level is below 6."""

    id = "keyed-transaction-refused"
    safe = "The batch was not stored; a retry gives the same answer until the feature level is raised."
    remedy = "Once all nodes run this version, run `duramen cluster upgrade`. Until then write without a transaction."


class QueueTopicRefused(DuramenError):
    """A request is not supported on the topic of a queue, because a queue is not a stream."""

    id = "queue-topic-refused"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Change the queue space, or change the queue through the API of queues; transactions need a stream."


class InventoryTopicRefused(QueueTopicRefused):
    """A request is not supported on a topic of the inventory, because it is not a stream."""

    id = "inventory-topic-refused"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = (
        "Use `duramen topic` with TENANT/NAMESPACE/TOPIC, or `duramen policy set` instead of configs; transactions need"
        " a stream."
    )


class QueueTransactionRefused(DuramenError):
    """A producer sent a transactional batch to a queue space, which does not support transactions."""

    id = "queue-transaction-refused"
    safe = "The batch was not stored; a retry gives the same answer."
    remedy = "Abort the transaction and write without one, or to a stream that is not a queue space."


class QueueShardsFixed(DuramenError):
    """The number of shards of a queue space cannot change: it determines the shard of each queue."""

    id = "queue-shards-fixed"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Create another space with more shards, and copy the queues to it."


class BatchTooLarge(DuramenError):
    """A record batch is larger than max.message.bytes of its stream."""

    id = "batch-too-large"
    safe = "The batch was not stored; an unchanged retry gives the same answer."
    remedy = "Send smaller batches, or raise max.message.bytes of the stream."


class TimestampInvalid(DuramenError):
    """A record's timestamp is too far from the broker's clock. `records`: the invalid records."""

    records: Sequence[tuple[int, str]] = ()

    id = "timestamp-invalid"
    safe = "The batch was not stored; an unchanged retry gives the same answer."
    remedy = (
        "Correct the clock, or raise message.timestamp.before.max.ms or message.timestamp.after.max.ms of the stream."
    )


class DuplicateTableFull(DuramenError):
    """There is no memory for another Nats-Msg-Id, so a duplicate of the message could not be detected."""

    id = "duplicate-table-full"
    safe = "The message was not stored; a retry is safe."
    remedy = "Wait until older ids leave duplicate.window.ms, shorten it, or raise memory.limit.bytes."


class ExpectedStreamDiffers(DuramenError):
    """A NATS publisher expects an answer from a stream that is not bound to the subject."""

    id = "expected-stream-differs"
    safe = "Streams that answer did not store the message; streams with nats.ack=never did."
    remedy = "Correct Nats-Expected-Stream, or bind that stream to the subject."


class ExportExpired(DuramenError):
    """An export of a queue space or of the inventory does not exist any more."""

    id = "export-expired"
    safe = "Nothing was read; a retry fails."
    remedy = (
        "Open another export, or run the query again. A node keeps the 32 exports that were read last, each for ten"
        " minutes after its last read, and deletes all of them at a restart."
    )


class OffsetNotAvailable(DuramenError):
    """The node does not know the high watermark of the partition yet, or has not reached it."""

    id = "offset-not-available"
    safe = "Nothing was read or changed; records that were readable before are not lost."
    remedy = "Retry; clients do so automatically. It takes one round trip to the in-sync replicas."


class OffsetOutOfRange(DuramenError):
    """There is no record at that offset: it is below the log start or beyond the end."""

    id = "offset-out-of-range"
    safe = "Nothing was read and nothing changed."
    remedy = "Read from the log's start or end; consumers do so automatically by auto.offset.reset."


class RecordStateInvalid(DuramenError):
    """A consumer of a share group acknowledges records that it has not locked, or whose lock has expired."""

    id = "record-state-invalid"
    safe = "Nothing was changed: the records may have been delivered to another consumer."
    remedy = "Process records faster than share.record.lock.duration.ms, or give the group more time."


class RecordCut(DuramenError):
    """The awaited record is lost: records of a new leader have replaced it."""

    id = "record-cut"
    safe = "The record was not acknowledged with acks=all, and is lost; records acknowledged with acks=all are kept."
    remedy = "Write it again, with acks=all if it must not be lost."


class RecordsLost(DuramenError):
    """Records were deleted before they were read; the message names them and the reason."""

    id = "records-lost"
    safe = "Records in the log are intact; those that the message names are gone."
    remedy = (
        "Continue at the start of the remaining records (in Spark with failOnDataLoss=false), and raise retention.ms "
        "or read sooner."
    )


class OutOfOrderSequence(DuramenError):
    """An idempotent producer's sequence does not follow the last one."""

    id = "out-of-order-sequence"
    safe = "This node did not store the batch; a later leader may have it."
    remedy = "Create a new producer, or get a new producer id, and send unacknowledged records again."


class ProduceRateExceeded(DuramenError):
    """NATS publishers send much more than the policy `producer_byte_rate` of the topic or what it is in allows."""

    id = "produce-rate-exceeded"
    safe = "The message was not stored; a retry is safe, after a pause."
    remedy = "Publish slower and wait for acknowledgements, or raise `producer_byte_rate` with `duramen policy set`."


class ProducerFenced(DuramenError):
    """A newer epoch of this producer id has written."""

    id = "producer-fenced"
    safe = "The batch was not stored; the newer producer continues."
    remedy = "Close this producer: a newer one has replaced it."


class ProducerIdUnknown(DuramenError):
    """The transactional id is unknown, or has another producer id."""

    id = "producer-id-unknown"
    safe = "Nothing was stored."
    remedy = "Call `init_transactions` again: the transactional id has expired, or another producer uses it."


class ConcurrentTransactions(DuramenError):
    """The previous transaction of this producer is still being completed or aborted."""

    id = "concurrent-transactions"
    safe = "Nothing was changed; a retry is safe."
    remedy = "Retry a little later; clients do so automatically."


class TransactionStateInvalid(DuramenError):
    """The request is not allowed in the state of the transaction."""

    id = "transaction-state-invalid"
    safe = "Nothing was changed."
    remedy = "Begin a transaction before writing in it, and end it once."


class TransactionAbortable(DuramenError):
    """The partition is not in an ongoing transaction of this producer: it has ended, or was never begun."""

    id = "transaction-abortable"
    safe = "The batch was not stored; earlier records of the transaction are not visible before its commit."
    remedy = "Abort the transaction and begin it again."


class TransactionTimeoutInvalid(DuramenError):
    """A producer requests a transaction timeout that is not positive, or above `transaction.max.timeout.ms`."""

    id = "transaction-timeout-invalid"
    safe = "Nothing was changed."
    remedy = "Lower the producer's `transaction.timeout.ms`, or raise `transaction.max.timeout.ms` of the node."


class TransactionalIdMissing(DuramenError):
    """A batch is transactional, but the request has no transactional id."""

    id = "transactional-id-missing"
    safe = "The batch was not stored."
    remedy = "Give the producer a `transactional.id`."


class TransactionalIdNotFound(DuramenError):
    """There is no such transactional id, or it has expired."""

    id = "transactional-id-not-found"
    safe = "Nothing was changed."
    remedy = "List transactions to see existing ids."


class TransactionsFull(DuramenError):
    """The transactional ids of the node, with the partitions in their transactions, use their whole share of memory."""

    id = "transactions-full"
    safe = "Nothing was changed; existing transactions continue. A later retry is safe."
    remedy = "Raise memory.limit.bytes, or use fewer transactional ids; unused ones expire."


class QueryFenced(DuramenError):
    """A newer run of the Spark query writes, or the batch is already decided: the message names both."""

    id = "query-fenced"
    safe = "Refused records are not visible; records of the newer run are there once."
    remedy = "Stop the older driver. Run one driver for each checkpoint."


class BatchDiffers(DuramenError):
    """A batch of a Spark query is repeated, but it, or a later one, was written from another range of offsets."""

    id = "batch-differs"
    safe = "The batch was not written again; the first write stays."
    remedy = "Restore the checkpoint. If it is lost, start with a new one, at offsets after those that were written."


class AttemptLost(DuramenError):
    """The transaction of a Spark task ended before its batch was committed, usually by a timeout."""

    id = "attempt-lost"
    safe = "The batch is not visible; it is written again when the query continues."
    remedy = "Raise kafka.transaction.timeout.ms, or make batches smaller (maxOffsetsPerTrigger)."


class FencedLeaderEpoch(DuramenError):
    """The client knows an older leader epoch than the log."""

    id = "fenced-leader-epoch"
    safe = "Nothing was done; a retry with new metadata is safe."
    remedy = "Refresh the metadata; clients do so automatically."


class UnknownLeaderEpoch(DuramenError):
    """The client knows a newer leader epoch than the log."""

    id = "unknown-leader-epoch"
    safe = "Nothing was done; a retry is safe."
    remedy = "Retry; if it fails again, the data directory was restored from an older backup: restart the consumer."


class StreamNotFound(DuramenError):
    """No stream, or no partition of it, with that name or id."""

    id = "stream-not-found"
    safe = "Nothing was done."
    remedy = "Correct the name (`duramen stream list` shows them), or create the stream."


class StreamExists(DuramenError):
    """A stream with that name exists."""

    id = "stream-exists"
    safe = "The existing stream was not changed."
    remedy = "Use the existing stream, choose another name, or delete it first."


class StreamDiffers(StreamExists):
    """A stream with that name exists with another definition; the message names the difference."""

    id = "stream-differs"
    safe = "The existing stream was not changed."
    remedy = "Change it with `duramen stream alter`, or choose another name."


class NameInvalid(DuramenError):
    """A stream's name is empty, too long, or has characters that Kafka does not allow."""

    id = "name-invalid"
    safe = "Nothing was created."
    remedy = "Use letters, digits, `.`, `_` and `-`, at most 249 characters, and no leading `__`."


class NameReserved(NameInvalid):
    """A stream cannot have this name: it is that of a topic of the inventory, since its first part names a tenant."""

    id = "name-reserved"
    safe = "Nothing was created."
    remedy = "Create the topic with `duramen topic create TENANT/NAMESPACE/TOPIC`, or choose another first part."


class SubjectInvalid(DuramenError):
    """A NATS subject is malformed or may not be bound."""

    id = "subject-invalid"
    safe = "Nothing was created or bound."
    remedy = "Separate tokens with dots; `*` matches one token, a final `>` the rest."


class PartitionsInvalid(DuramenError):
    """The number of partitions is invalid."""

    id = "partitions-invalid"
    safe = "Nothing was changed."
    remedy = "Use at least one partition; the number of partitions can only grow."


class ConfigInvalid(DuramenError):
    """A stream's config has an unknown name or an invalid value."""

    id = "config-invalid"
    safe = "No setting of the stream was changed."
    remedy = "Correct the setting that the message names; docs/settings.md lists valid values."


class GroupIdInvalid(DuramenError):
    """A consumer group's id is empty."""

    id = "group-id-invalid"
    safe = "Nothing was done."
    remedy = "Give the consumer a group.id."


class GroupNotFound(DuramenError):
    """No consumer group with that id."""

    id = "group-not-found"
    safe = "Nothing was done."
    remedy = "Correct the group's id; a group exists after a member has joined or an offset was committed."


class GroupNotEmpty(DuramenError):
    """The consumer group still has members."""

    id = "group-not-empty"
    safe = "The group and its offsets were not changed."
    remedy = "Stop its members, or wait for their session timeout, then retry."


class GroupSubscribed(DuramenError):
    """Members of the consumer group read the stream."""

    id = "group-subscribed"
    safe = "The offsets of that stream were not changed."
    remedy = "Stop the members that subscribe to the stream, then retry."


class GroupFull(DuramenError):
    """The consumer group has group.max.size members."""

    id = "group-full"
    safe = "The member did not join; the others continue."
    remedy = "Raise group.max.size or memory.limit.bytes, or run fewer members."


class CoordinatorLoading(DuramenError):
    """The node has become coordinator of the group and is still loading its state."""

    id = "coordinator-loading"
    safe = "Nothing was done; a retry is safe."
    remedy = "Retry after a moment; clients do so automatically."


class UnknownMember(DuramenError):
    """The group does not know this member id."""

    id = "unknown-member"
    safe = "Offsets of this request were not committed; earlier ones are kept."
    remedy = "Join the group again; clients do so automatically."


class MemberIdRequired(DuramenError):
    """A new member must join again with the id in the response."""

    id = "member-id-required"
    safe = "Nothing was done; a retry is safe."
    remedy = "Join again with the id in the response; clients do so automatically."

    def __init__(self, member_id: str) -> None:
        super().__init__("join again with the member id given")
        self.member_id = member_id


class FencedInstance(DuramenError):
    """Another member has taken over this group.instance.id."""

    id = "fenced-instance"
    safe = "This member's commit was refused; the other member continues."
    remedy = "Give every running member a group.instance.id of its own."


class FencedMemberEpoch(DuramenError):
    """A request of a group member has another epoch than its newest."""

    id = "fenced-member-epoch"
    safe = "Offsets of this request were not committed; earlier ones are kept."
    remedy = "Release all partitions and join again; clients do so automatically."


class StaleMemberEpoch(DuramenError):
    """A group member commits or reads offsets with an old epoch."""

    id = "stale-member-epoch"
    safe = "Offsets of this request were not committed; earlier ones are kept."
    remedy = "Retry with the epoch of the last heartbeat response; clients do so automatically."


class UnreleasedInstance(DuramenError):
    """Another member of the consumer group has this group.instance.id and has not left."""

    id = "unreleased-instance"
    safe = "The member did not join; the other one continues."
    remedy = "Give every running member its own group.instance.id, or wait until the other's session ends."


class AssignorUnknown(DuramenError):
    """The member requests an unknown server-side assignor."""

    id = "assignor-unknown"
    safe = "The member did not join; the others continue."
    remedy = "Request an assignor of group.consumer.assignors, or none."


class PatternInvalid(DuramenError):
    """The regular expression of a subscription or of a search is not valid in RE2."""

    id = "pattern-invalid"
    safe = "Nothing was read. A member with such a subscription did not join its group; the others continue."
    remedy = "Correct the expression; https://github.com/google/re2/wiki/Syntax has the syntax."


class GlobInvalid(PatternInvalid):
    """The glob of a search is not valid."""

    id = "glob-invalid"
    safe = "Nothing was read."
    remedy = "Use `*`, `?`, `[abc]`, `[a-z]` and `[!abc]`; `[*]`, `[?]` and `[[]` are the characters themselves."


class VersionTooOld(DuramenError):
    """The version of the request lacks a required field."""

    id = "version-too-old"
    safe = "Nothing was done."
    remedy = "Use a client with full support of the consumer protocol, or the classic protocol."


class IllegalGeneration(DuramenError):
    """The member has another generation of the group."""

    id = "illegal-generation"
    safe = "Offsets of this request were not committed; earlier ones are kept."
    remedy = "Join the group again; clients do so automatically, and read uncommitted records again."


class RebalanceInProgress(DuramenError):
    """The group is rebalancing: the member must join again."""

    id = "rebalance-in-progress"
    safe = "Nothing is lost; records after the last commit may be read twice."
    remedy = "Join the group again; clients do so automatically."


class InconsistentProtocol(DuramenError):
    """The member shares no assignment protocol with the group."""

    id = "inconsistent-protocol"
    safe = "The member did not join; the others continue."
    remedy = "Configure all members of the group with a common assignment strategy."


class SessionTimeoutInvalid(DuramenError):
    """A session timeout outside group.min.session.timeout.ms to group.max.session.timeout.ms."""

    id = "session-timeout-invalid"
    safe = "The member did not join."
    remedy = "Choose session.timeout.ms between group.min.session.timeout.ms and group.max.session.timeout.ms."


class OffsetMetadataTooLarge(DuramenError):
    """A committed offset's metadata is longer than offset.metadata.max.bytes."""

    id = "offset-metadata-too-large"
    safe = "The offset was not committed."
    remedy = "Shorten the metadata, or raise offset.metadata.max.bytes."


class NameNotResolved(DuramenError):
    """The topic in a request could not be looked up within its timeout."""

    id = "name-not-resolved"
    safe = "Nothing was done; a retry is safe."
    remedy = "Retry; clients do so automatically."


class TopicNotAuthorized(DuramenError):
    """The principal lacks the right to do this to the topic."""

    id = "topic-not-authorized"
    safe = "Nothing was done."
    remedy = "Ask an administrator to grant the operation that the message names."


class GroupNotAuthorized(DuramenError):
    """The principal lacks the right to do this to the group."""

    id = "group-not-authorized"
    safe = "Nothing was done."
    remedy = "Ask an administrator to grant the operation that the message names."


class ClusterNotAuthorized(DuramenError):
    """The principal lacks the right to do this to the cluster."""

    id = "cluster-not-authorized"
    safe = "Nothing was done."
    remedy = "Ask an administrator to grant the operation that the message names."


class TransactionalIdNotAuthorized(DuramenError):
    """The principal lacks the right to do this to the transactional id."""

    id = "transactional-id-not-authorized"
    safe = "Nothing was done."
    remedy = "Ask an administrator to grant the operation that the message names."


class NodeStarting(DuramenError):
    """The node does not accept requests yet, or is stopping."""

    id = "node-starting"
    safe = "Nothing was done; a retry is safe."
    remedy = "Wait until `/readyz` answers 200; until then it gives the reason."


class NodeBusy(DuramenError):
    """The requests in progress use all memory, or all connections, of the HTTP door."""

    id = "node-busy"
    safe = "Nothing was done; a retry is safe."
    remedy = "Retry a second later, with fewer concurrent requests."


class NotController(DuramenError):
    """The node is not the active controller."""

    id = "not-controller"
    safe = "Nothing was done; a retry is safe."
    remedy = "Send the request to the node that the message names; if it names none, retry a second later."


class NotCoordinator(DuramenError):
    """The node is not the coordinator of the group."""

    id = "not-coordinator"
    safe = "Nothing was done, or the outcome is unknown if the coordinator has just changed; a retry is safe."
    remedy = "Find the coordinator again; clients do so automatically."
    outcome_known = False


class AccountNotFound(DuramenError):
    """There is no account with that name: no tenant and no policy is in it."""

    id = "account-not-found"
    safe = "Nothing was done; a retry gives the same answer until a tenant is created in the account."
    remedy = "Correct the name: `duramen account list` shows them."


class InventoryNameInvalid(DuramenError):
    """An account, a tenant, a namespace or a topic of the inventory cannot have this name, or these labels."""

    id = "inventory-name-invalid"
    safe = "Nothing was created for this name; a bulk request created the other names. A retry gives the same answer."
    remedy = "Correct the name or the labels as the message says."


class InventoryPositionLost(DuramenError):
    """A subscription to the inventory starts at a position that the log no longer has, or never had."""

    id = "inventory-position-lost"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Search for the existing topics, and subscribe from the position of that response."


class NamespaceExists(DuramenError):
    """A namespace cannot get this name: its tenant has another namespace with it."""

    id = "namespace-exists"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Choose another name, or delete the other namespace."


class NamespaceNotFound(DuramenError):
    """The tenant has no namespace with that name: it was never created, or was renamed, moved or deleted."""

    id = "namespace-not-found"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Create one with `duramen namespace create`; `duramen namespace list` lists existing ones."


class PageTokenInvalid(DuramenError):
    """A page token is malformed, or belongs to another query."""

    id = "page-token-invalid"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Request the next page with the query of the previous page, or start with the first page."


class PolicyInvalid(DuramenError):
    """A policy has an unknown name or an invalid value, or cannot be set at this level."""

    id = "policy-invalid"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Correct the policy that the message names; `duramen policy describe` shows names and values."


class PolicyNotEffective(DuramenError):
    """A change of policies is stored, but a node has not confirmed in time that it applies the change."""

    id = "policy-not-effective"
    safe = "The change is stored. The named nodes apply it as soon as they can be reached. A retry is safe."
    remedy = "Find out why the named nodes do not answer, then repeat the change to wait again."


class TenantExists(DuramenError):
    """A tenant cannot get this name: the account has another tenant with it."""

    id = "tenant-exists"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Choose another name, or delete the other tenant."


class TenantNotFound(DuramenError):
    """The account has no tenant with that name: it was never created, or was renamed or deleted."""

    id = "tenant-not-found"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Create one with `duramen tenant create`; `duramen tenant list` lists existing ones."


class TopicAliasCycle(DuramenError):
    """An alias would refer to itself."""

    id = "topic-alias-cycle"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Give the alias another name, or let it refer to a topic."


class TopicBusy(DuramenError):
    """Another request is changing the topic's name."""

    id = "topic-busy"
    safe = "This request changed nothing; a retry is safe."
    remedy = "Retry in a moment."


class TopicExists(DuramenError):
    """A topic or an alias cannot get this name: another topic or alias has it."""

    id = "topic-exists"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Choose another name, or delete the other topic or alias."


class TopicHasAliases(DuramenError):
    """The topic cannot be deleted, because it has aliases."""

    id = "topic-has-aliases"
    safe = "Nothing was changed; a retry gives the same answer until the aliases are deleted."
    remedy = "Delete the aliases first: the topic's description lists them."


class TopicIsAlias(DuramenError):
    """The request is supported for topics only, and the name is an alias."""

    id = "topic-is-alias"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Change the topic that the alias refers to, or delete the alias and create another."


class TopicNotFound(DuramenError):
    """The inventory has no topic with that name or id: it was never created, or was renamed, moved or deleted."""

    id = "topic-not-found"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Search the namespace with `duramen topic search`, or look the topic up by its id."


class TopicAliasDangling(TopicNotFound):
    """The name is an alias whose topic was deleted together with the topic's namespace."""

    id = "topic-alias-dangling"
    safe = "Nothing was done; a retry gives the same answer."
    remedy = "Delete the alias with `duramen topic delete`; its name is free then."


class BytesQuotaExceeded(DuramenError):
    """The topics of a namespace, its tenant or its account store as many bytes as the policy `quota.bytes` allows."""

    id = "bytes-quota-exceeded"
    safe = "Nothing was stored; a retry is safe, and fails until there is room."
    remedy = (
        "Raise `quota.bytes` of what the message names with `duramen policy set`, lower retention, or delete topics."
    )


class TopicQuotaExceeded(DuramenError):
    """A namespace, its tenant or its account has as many topics as its policy `quota.topics` allows."""

    id = "topic-quota-exceeded"
    safe = "The topic was not created or moved; a bulk request created or moved the others. A retry is safe."
    remedy = "Delete topics, or raise `quota.topics` of the entity that the message names with `duramen policy set`."


class NotLeader(DuramenError):
    """The node is not, or no longer, the leader of the partition."""

    id = "not-leader"
    safe = "It is unknown whether a batch was stored; an idempotent producer may send it again."
    remedy = "Refresh the metadata and send the request to the leader; clients do so automatically."
    outcome_known = False


class NotEnoughReplicas(DuramenError):
    """A batch has acks=all, and fewer replicas are in sync than `min.insync.replicas`."""

    id = "not-enough-replicas"
    safe = "Nothing was stored; a retry is safe."
    remedy = "Start nodes that are down, or find out why they lag; producers retry automatically."


class NotEnoughReplicasAfterAppend(DuramenError):
    """After a batch with acks=all was stored, fewer replicas were in sync than `min.insync.replicas`."""

    id = "not-enough-replicas-after-append"
    safe = "It is not known yet whether the batch is kept; an idempotent producer may send it again."
    remedy = "Start nodes that are down, or find out why they lag; producers retry automatically."
    outcome_known = False


class OutcomeUnknown(DuramenError):
    """A leader changed, failed or became unreachable, or the node stopped, before a request was confirmed.

    The request is a change of the metadata, or stores records that another node has forwarded to their leader.
    """

    id = "outcome-unknown"
    safe = (
        "It is unknown whether the change was made. It is made as a whole or not at all. "
        "Each batch of records is stored as a whole or not at all."
    )
    remedy = "Check whether the change was made, or the records are stored, before you retry."
    outcome_known = False


class PathNotFound(DuramenError):
    """The HTTP door has no such path."""

    id = "path-not-found"
    safe = "Nothing was done."
    remedy = "Find the path in docs/http-api.md, or in `/v1/openapi.json`."


class MethodNotAllowed(DuramenError):
    """A path of the HTTP door does not support the method."""

    id = "method-not-allowed"
    safe = "Nothing was done."
    remedy = "Use one of the methods in the response's header `Allow`."


class BodyTooLarge(DuramenError):
    """The body of an HTTP request is too large."""

    id = "body-too-large"
    safe = "Nothing was done."
    remedy = "Send fewer entries in a request. Bodies of NDJSON and Arrow for bulk creation have no limit."


class AnswerTypeUnavailable(DuramenError):
    """The response format in the header Accept needs a package that the node does not have."""

    id = "answer-type-unavailable"
    safe = "Nothing was read."
    remedy = "Request another format, or install the named package in the node's environment."


class BodyTypeUnsupported(DuramenError):
    """The body of an HTTP request is declared with a type or an encoding that the path does not support."""

    id = "body-type-unsupported"
    safe = "Nothing was done."
    remedy = "Send a type and an encoding that the message names; `curl --json` sends JSON."


class HostRefused(DuramenError):
    """The Host header of an HTTP request is not a name of the node: a web page may have sent it (DNS rebinding)."""

    id = "host-refused"
    safe = "Nothing was done."
    remedy = "Use an address or `localhost`, or add the name to `http.allowed.hosts`."


class OriginRefused(DuramenError):
    """A web page of another origin sent an HTTP request."""

    id = "origin-refused"
    safe = "Nothing was done."
    remedy = "Send the request from the page's server instead of the browser."


class ClusterDiffers(DuramenError):
    """A node belongs to another cluster than the one that it tries to join."""

    id = "cluster-differs"
    safe = "The node did not join; neither it nor the cluster was changed."
    remedy = "Start it with the seeds of its cluster, or with an empty data directory."


class ElectionNotNeeded(DuramenError):
    """The partition already has the leader that an election would select."""

    id = "election-not-needed"
    safe = "Nothing was changed; a retry is safe."
    remedy = "No action is needed."


class LeaderUnavailable(DuramenError):
    """The requested leader is not live, not in sync, refuses writes, or is stopping."""

    id = "leader-unavailable"
    safe = "Nothing was changed; a retry is safe."
    remedy = "Wait until the node is back and in sync, then retry."


class NodeDuplicate(DuramenError):
    """A node with this id, or with this data directory, is already in the cluster."""

    id = "node-duplicate"
    safe = "The node did not join; the existing one continues."
    remedy = "Stop one of the two, or give the new one another id and directory."


class DirectoryRolledBack(DuramenError):
    """A node's data directory is an older copy: the cluster knows a newer state of it."""

    id = "directory-rolled-back"
    safe = "The node did not join, and its data is not used; the others continue."
    remedy = "Restore the newest state of the directory if possible; otherwise start the node with an empty one."


class NodeEpochStale(DuramenError):
    """A node's request belongs to an earlier registration of that node."""

    id = "node-epoch-stale"
    safe = "Nothing was changed."
    remedy = "Nodes register again automatically; if it recurs, two processes run as the same node: stop one."


class NodeNotFound(DuramenError):
    """There is no node with this id."""

    id = "node-not-found"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Correct the id."


class ReassignmentNotFound(DuramenError):
    """The partition has no reassignment in progress."""

    id = "reassignment-not-found"
    safe = "Nothing was changed; a retry is safe."
    remedy = "No action is needed."


class ReplicaAssignmentInvalid(DuramenError):
    """The named replicas are not possible for the partition."""

    id = "replica-assignment-invalid"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "Correct what the message names: all partitions need as many replicas, on different registered nodes."


class ReplicationFactorInvalid(DuramenError):
    """The replication factor is larger than the number of nodes, or invalid."""

    id = "replication-factor-invalid"
    safe = "Nothing was changed; a retry fails until there are more nodes."
    remedy = "Use at most as many replicas as there are nodes."


class TableAhead(DuramenError):
    """An upserted table has a transaction of which another stream of the same read lacks a part."""

    id = "table-ahead"
    safe = "Nothing was read, because the read would have split that transaction; a retry is safe."
    remedy = (
        "Retry when the other stream has it too (with tier=cold: its table; see `duramen table status`), or read the "
        "streams one by one."
    )


class TableConflict(DuramenError):
    """Another writer has committed to the stream's table, so these offsets no longer follow its end."""

    id = "table-conflict"
    safe = "Nothing was committed; the other writer's commit is kept, and a retry is safe."
    remedy = "No action is needed: the job continues from the table's new end. Run one job for each table."


class TableDamaged(DuramenError):
    """A file of a table is truncated or damaged."""

    id = "table-damaged"
    safe = "Nothing was committed; a retry fails until the file is restored."
    remedy = "Restore the named file from a backup, or start a new table at another location."


class TableForeign(DuramenError):
    """The location has no table of this stream: it has a foreign table, other columns, or nothing."""

    id = "table-foreign"
    safe = "Nothing was read or written there; a retry gives the same answer."
    remedy = "Choose an empty location, or the original location of the table."


class TableStorageFailed(DuramenError):
    """The storage of a table cannot be read or written: a full disk, a missing bucket, no permission."""

    id = "table-storage-failed"
    safe = "Offsets are committed with their files in one step or not at all, so a retry is safe."
    remedy = "Fix what the message names: space, permissions, endpoint; the job then continues automatically."


class TableUnsupported(DuramenError):
    """The table's declaration or content is not supported by its format or by this version."""

    id = "table-unsupported"
    safe = "Nothing was written; a retry gives the same answer."
    remedy = "Change the declaration of the table as the message says."


class VoterDuplicate(DuramenError):
    """The node is already a voter, possibly with an earlier data directory."""

    id = "voter-duplicate"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "No action is needed, unless its disk was lost: then remove the old voter first."


class VoterNotFound(DuramenError):
    """The node with this data directory is not a voter."""

    id = "voter-not-found"
    safe = "Nothing was changed; a retry gives the same answer."
    remedy = "List the voters with `duramen cluster status`."


class VotersUnsettled(DuramenError):
    """The voters cannot be changed now: a change is in progress, or the new voter has not caught up."""

    id = "voters-unsettled"
    safe = "Nothing was changed; a retry is safe."
    remedy = "Retry in a moment."
