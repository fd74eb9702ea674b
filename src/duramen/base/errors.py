"""Everything that can go wrong and that a caller may have to tell apart.

One class a situation; `id` is stable and is what the doors, the docs and the command line name. The doors
map these to numbers of their own protocol. Each class says in its docstring what happened, in `safe` what has
become of data and whether to repeat is safe, and in `remedy` what to do.
"""

from collections.abc import Sequence
from typing import ClassVar

__all__ = [
    "AnswerTypeUnavailable",
    "AssignorUnknown",
    "BatchCorrupt",
    "BatchInvalid",
    "BatchTooLarge",
    "BodyTooLarge",
    "BodyTypeUnsupported",
    "BugFound",
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
    "FencedInstance",
    "FencedLeaderEpoch",
    "FencedMemberEpoch",
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
    "KeyedTransactionRefused",
    "LeaderUnavailable",
    "LogDamaged",
    "MemberIdRequired",
    "MethodNotAllowed",
    "NameInvalid",
    "NameNotResolved",
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
    "PartitionsInvalid",
    "PathNotFound",
    "PatternInvalid",
    "PipelineBusy",
    "PipelineFailed",
    "PipelineInvalid",
    "ProducerFenced",
    "ProducerIdUnknown",
    "QueueBatchTooLarge",
    "QueueEntryGone",
    "QueueHistoryRewritten",
    "QueueNameInvalid",
    "QueuePositionFuture",
    "QueuePositionUnknown",
    "QueueShardsFixed",
    "QueueSpaceNotFound",
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
    "TimestampInvalid",
    "TopicNotAuthorized",
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
    """Base of every error that Duramen raises on purpose; the message is one line for people."""

    id: ClassVar[str] = "error"
    safe: ClassVar[str] = ""
    remedy: ClassVar[str] = ""


class SettingInvalid(DuramenError):
    """A setting has an unknown name or a value that does not fit."""

    id = "setting-invalid"
    safe = "Nothing was started or changed."
    remedy = "Correct the setting that the message names; docs/settings.md lists what each may be."


class OptionInvalid(DuramenError):
    """An option of a Spark source or sink has an unknown name or a value that does not fit."""

    id = "option-invalid"
    safe = "No job was started and nothing was written."
    remedy = "Correct the option that the message names; docs/doors/spark.md lists them."


class CheckpointInvalid(DuramenError):
    """A query's checkpoint was made for other streams, by another version, or says something else than its table."""

    id = "checkpoint-invalid"
    safe = "Nothing was read or written by the query, and the checkpoint is as it was."
    remedy = (
        "Give the query the checkpoint that it had, or begin anew with another one, and another table where it writes "
        "one; startingOffsets then says where (docs/doors/spark.md)."
    )


class StreamNoTable(DuramenError):
    """A stream was taken for a table, and no table is declared for it."""

    id = "stream-no-table"
    safe = "Nothing was started; the stream is as it was."
    remedy = "Declare one with `duramen table enable STREAM --format delta --location URI`."


class SparkFailed(DuramenError):
    """Spark did not start, or could not do a table's round: an executor was lost, or a worker process failed."""

    id = "spark-failed"
    safe = "Nothing of the round is in the table; the next round does it again."
    remedy = "Look at what the message names, and at Spark's own log, which says more."


class PipelineInvalid(DuramenError):
    """A pipeline's file says what cannot be run; each problem is named with its line and column."""

    id = "pipeline-invalid"
    safe = "Nothing was started and nothing was written."
    remedy = "Mend what is named; `duramen pipeline validate` looks at all of it and runs nothing."


class PipelineFailed(DuramenError):
    """Queries of a pipeline ended with errors that running them again does not mend; the others went on."""

    id = "pipeline-failed"
    safe = "What was committed stays. A query that failed goes on from its checkpoint when the pipeline runs again."
    remedy = "Look at `duramen pipeline status`, mend what each error names, and run the pipeline again."


class PipelineBusy(DuramenError):
    """Another application runs a pipeline with the same checkpoints."""

    id = "pipeline-busy"
    safe = "Nothing was started; the other application goes on."
    remedy = "Stop the other application first, or choose other checkpoints with `--checkpoints`."


class DependencyMissing(DuramenError):
    """Something that Duramen does not bring itself is missing or too old; the message says what to install."""

    id = "dependency-missing"
    safe = "Nothing was started."
    remedy = "Install what the message names; `duramen doctor` says what else the machine lacks."


class UsageWrong(DuramenError):
    """A command was called in a way that it does not know."""

    id = "usage"
    safe = "Nothing was done."
    remedy = "Look at the help that the message names."


class SystemFailed(DuramenError):
    """The operating system refused something that a command needs, such as a file or standard output."""

    id = "system-failed"
    safe = "What was acknowledged stays. The command ended where it was."
    remedy = "Mend what the message names, and run the command again."


class BugFound(DuramenError):
    """Duramen did what nobody meant it to do."""

    id = "bug"
    safe = "What was acknowledged stays. The command ended where it was."
    remedy = "Run it again with DURAMEN_TRACEBACK=1, and report what that prints."


class DemoFailed(DuramenError):
    """A step of `make demo` did not come to its end, or what came out is not what went in."""

    id = "demo-failed"
    safe = "Only the demo's own directory was touched."
    remedy = "Run `make demo` again; if it fails again, report it with what it printed."


class DirectoryUnusable(DuramenError):
    """The data directory is held by another node, is not ours, or cannot be written."""

    id = "directory-unusable"
    safe = "The directory was not changed."
    remedy = (
        "Do what the message says: stop the other node, free or permit the directory, or name another with --data-dir."
    )


class DirectoryTooNew(DirectoryUnusable):
    """The data directory has a storage format that a newer version of Duramen has written."""

    id = "directory-too-new"
    safe = "The directory was not changed."
    remedy = "Use the version of Duramen that wrote it, or a later one."


class SecretUnusable(DuramenError):
    """The file of the cluster's secret is missing, does not fit or is open to others; or a new one cannot be made."""

    id = "secret-unusable"
    safe = "Nothing was started, and no file was written over."
    remedy = "Mend what the message names, or make a new secret with `duramen cluster secret FILE`."


class ServerUnreachable(DuramenError):
    """No node answered at an address within the time allowed."""

    id = "server-unreachable"
    safe = (
        "If it came before the first answer nothing was done; a record whose acknowledgement did not come may be "
        "stored."
    )
    remedy = (
        "See that the node runs and that the address is right, then repeat; with idempotence or a Nats-Msg-Id "
        "repeating stores nothing twice."
    )


class ClientClosed(DuramenError):
    """The client was closed while something was under way, or is used after it was closed."""

    id = "client-closed"
    safe = "What was under way may have been done; reading changes nothing."
    remedy = "Connect again."


class RequestTimedOut(DuramenError):
    """What was asked for did not happen in the time allowed; it may still happen."""

    id = "request-timed-out"
    safe = "It may have been done or may still be done; an idempotent producer and a Nats-Msg-Id make repeating safe."
    remedy = "Look whether it was done, then repeat, with a longer timeout if the node is busy."


class RequestInvalid(DuramenError):
    """A request contradicts itself or the protocol."""

    id = "request-invalid"
    safe = "Nothing was done; repeating gives the same answer."
    remedy = "Correct what the message names."


class DeletionRefused(DuramenError):
    """Records of this stream are not deleted by request: compaction keeps the last of every key, or they are ours."""

    id = "deletion-refused"
    safe = "Nothing was deleted; repeating gives the same answer."
    remedy = "Give the stream a cleanup.policy with `delete`, or write tombstones: records with the key and no value."


class InputInvalid(DuramenError):
    """What `duramen produce` read is no record in the format named; the message says which line, and why."""

    id = "input-invalid"
    safe = "The records of the lines before it are written; that line and those after it are not."
    remedy = "Mend the line and repeat from it, or choose another `--format`."


class NatsProtocolInvalid(DuramenError):
    """What answers at the NATS address does not speak NATS's protocol, or not a version that has headers."""

    id = "nats-protocol-invalid"
    safe = "Nothing from that connection was stored after the error; the time is recorded as a gap."
    remedy = "Let --nats name a NATS server of version 2.2 or newer."


class UnsupportedFeature(DuramenError):
    """A request needs something that this version does not do."""

    id = "unsupported-feature"
    safe = "Nothing was done; repeating gives the same answer."
    remedy = "Do without what the message names, or use a version that has it."


class NodeStopping(DuramenError):
    """The node is stopping and takes no new work."""

    id = "node-stopping"
    safe = "Nothing was written by this request; what was acknowledged before is kept."
    remedy = "Repeat it once the node is ready again; Kafka clients do so by themselves."


class StorageFull(DuramenError):
    """The disk is full: nothing was written; reads go on, and writes again when there is space."""

    id = "storage-full"
    safe = "Nothing was written; what was acknowledged before is kept, and repeating is safe."
    remedy = "Make room on the disk, or shorten the retention of streams; writes go on without a restart."


class ShareGroupUnknown(DuramenError):
    """Nothing is kept of a share group for a partition: it was never given to a member, or it was removed."""

    id = "share-group-unknown"
    safe = "Nothing was changed."
    remedy = "Join the group and wait until the partition is assigned; clients do so by themselves."


class ShareSessionEpochInvalid(DuramenError):
    """A request of a share session came out of turn."""

    id = "share-session-epoch-invalid"
    safe = "Nothing was changed: what the consumer holds stays locked until its session ends or its time is up."
    remedy = "Open a new share session; clients do so by themselves."


class ShareSessionLimitReached(DuramenError):
    """There are as many share sessions as the node allows."""

    id = "share-session-limit-reached"
    safe = "Nothing was changed."
    remedy = "Close consumers, or raise group.share.max.share.sessions."


class ShareSessionNotFound(DuramenError):
    """The share session is not there any more, or never was."""

    id = "share-session-not-found"
    safe = "What the consumer held is delivered again."
    remedy = "Open a new share session; clients do so by themselves."


class SnapshotCut(DuramenError):
    """A snapshot has records that the stream has lost since, as to a power failure."""

    id = "snapshot-cut"
    safe = "Nothing was read; repeating gives the same answer."
    remedy = "Drop the state and read a whole snapshot."


class SnapshotLeaseExpired(DuramenError):
    """A snapshot was held open by a lease, and that has ended."""

    id = "snapshot-lease-expired"
    safe = "Nothing was changed; repeating gives the same answer."
    remedy = "Open a new snapshot, and renew its lease before it ends."


class SnapshotLeaseNotFound(DuramenError):
    """There is no such lease on a snapshot."""

    id = "snapshot-lease-not-found"
    safe = "Nothing was changed; repeating gives the same answer."
    remedy = "Open a new snapshot."


class SnapshotNotReached(DuramenError):
    """A snapshot lies ahead of what the view of its stream has applied, or of where a reader is."""

    id = "snapshot-not-reached"
    safe = "Nothing was read; repeating is safe."
    remedy = "Repeat in a moment, or read the newest snapshot."


class SnapshotStartOver(DuramenError):
    """A reader asks for changes since a snapshot that is so old that deletions since then may be missing."""

    id = "snapshot-start-over"
    safe = "Nothing was read; repeating gives the same answer."
    remedy = "Drop the state and read a whole snapshot; `delete.retention.ms` says how long deletions are kept."


class SnapshotTooOld(DuramenError):
    """A snapshot is older than those that can still be opened, so some of its records may be gone."""

    id = "snapshot-too-old"
    safe = "Nothing was read; repeating gives the same answer."
    remedy = "Read a newer one; `snapshot.retention.ms` keeps snapshots for longer."


class StorageFailed(DuramenError):
    """A write or sync failed: this node, or this log, takes no writes until it is restarted."""

    id = "storage-failed"
    safe = "What was acknowledged before is kept; whether the records of this request are is known after a restart."
    remedy = "Look at the disk and the node's log, then restart the node."


class LogDamaged(DuramenError):
    """The records asked for were damaged on disk; what lies around them can be read."""

    id = "log-damaged"
    safe = "Records around the damage are kept and can be read; those in it cannot."
    remedy = (
        "Read on behind the damage, or put the file that the node's log names back from a backup while the node is "
        "stopped."
    )


class BatchCorrupt(DuramenError):
    """A record batch does not match its CRC, or its fields contradict each other."""

    id = "batch-corrupt"
    safe = "The batch was not stored; repeating is safe."
    remedy = "Send it again; if it comes back, look at the network and the memory of the client's machine."


class BatchInvalid(DuramenError):
    """A record batch is sound but is not allowed here. `records`: which of its records are not, and why (KIP-467)."""

    records: Sequence[tuple[int, str]] = ()

    id = "batch-invalid"
    safe = "The batch was not stored; repeating it as it is gives the same answer."
    remedy = "Correct what the message names: a key that is missing, or a client older than Kafka 0.11."


class KeyedTransactionRefused(DuramenError):
    """A producer sent a batch of a transaction to a keyed stream, which takes none."""

    id = "keyed-transaction-refused"
    safe = "The batch was not stored; repeating it gives the same answer."
    remedy = "Abort the transaction and write without one, or to a stream that is not keyed."


class StreamNotKeyed(DuramenError):
    """Snapshots are read of keyed streams only."""

    id = "stream-not-keyed"
    safe = "Nothing was read; repeating gives the same answer."
    remedy = "Set `keyed=true`; a stream needs `cleanup.policy=compact` for it."


class QueueSpaceNotFound(DuramenError):
    """There is no queue space of that name; a stream of another kind is none."""

    id = "queue-space-not-found"
    safe = "Nothing was done; repeating gives the same answer."
    remedy = "Make one with `duramen queue space create NAME`; `duramen queue space list` shows those there are."


class QueueNameInvalid(DuramenError):
    """A queue's name is empty, too long or not UTF-8."""

    id = "queue-name-invalid"
    safe = "Nothing was done; repeating gives the same answer."
    remedy = "Give the queue a name of 1 to 255 bytes of UTF-8."


class QueuePositionUnknown(DuramenError):
    """A position is of another queue, or of records that another leader's have taken the place of."""

    id = "queue-position-unknown"
    safe = "Nothing was done; repeating gives the same answer."
    remedy = "Use positions as answers about this queue had them; `start` reads the queue from its first entry on."


class QueuePositionFuture(DuramenError):
    """A position lies behind all that was ever put into the shard of the queue."""

    id = "queue-position-future"
    safe = "Nothing was done; repeating gives the same answer until so much was put into the queue's shard."
    remedy = "Use the `next` of an answer about this queue; `end` waits for what comes from now on."


class QueueEntryGone(DuramenError):
    """An entry that is to be edited or deleted is not there any more."""

    id = "queue-entry-gone"
    safe = "Nothing of the request was done; repeating gives the same answer."
    remedy = "Retrieve the queue to see what is in it, and leave out the position that the message names."


class QueueVersionStale(DuramenError):
    """An entry has another version than the request was made for: somebody has edited it since."""

    id = "queue-version-stale"
    safe = "Nothing of the request was done; repeating gives the same answer."
    remedy = "Retrieve the entry again, and decide on what it is now."


class QueueHistoryRewritten(DuramenError):
    """Entries were taken back with a replace, and a position lies among them; the message says from where on, and why.

    Attributes: `start`, the position from which on they were taken back, `by` and `reason` as the replace had them.
    """

    start: str = ""
    by: str = ""
    reason: str = ""

    id = "history-rewritten"
    safe = "Nothing was done; repeating gives the same answer."
    remedy = "Undo what came of the entries from that position on, and retrieve from there: the true ones follow."


class QueueBatchTooLarge(DuramenError):
    """A request has more entries or bytes than one may have."""

    id = "queue-batch-too-large"
    safe = "Nothing of the request was done; repeating it as it is gives the same answer."
    remedy = "Send fewer entries at a time, or raise max.message.bytes of the space."


class QueueTransactionRefused(DuramenError):
    """A producer sent a batch of a transaction to a queue space, which takes none."""

    id = "queue-transaction-refused"
    safe = "The batch was not stored; repeating it gives the same answer."
    remedy = "Abort the transaction and write without one, or to a stream that is no queue space."


class QueueShardsFixed(DuramenError):
    """The number of a queue space's shards was to be changed: each queue has its place by it."""

    id = "queue-shards-fixed"
    safe = "Nothing was changed; repeating gives the same answer."
    remedy = "Make another space with more shards, and bring the queues there."


class BatchTooLarge(DuramenError):
    """A record batch is larger than max.message.bytes of its stream."""

    id = "batch-too-large"
    safe = "The batch was not stored; repeating it as it is gives the same answer."
    remedy = "Send smaller batches, or raise max.message.bytes of the stream."


class TimestampInvalid(DuramenError):
    """A record's timestamp is further from the broker's clock than the stream allows. `records`: of which records."""

    records: Sequence[tuple[int, str]] = ()

    id = "timestamp-invalid"
    safe = "The batch was not stored; repeating it as it is gives the same answer."
    remedy = (
        "Set the clock right, or widen message.timestamp.before.max.ms or message.timestamp.after.max.ms of the stream."
    )


class DuplicateTableFull(DuramenError):
    """No memory is left to remember another Nats-Msg-Id: storing the message would let a repetition in unnoticed."""

    id = "duplicate-table-full"
    safe = "The message was not stored; repeating is safe."
    remedy = "Wait until older ids leave duplicate.window.ms, shorten it, or raise memory.limit.bytes."


class ExpectedStreamDiffers(DuramenError):
    """A NATS publisher expects to be answered by another stream than those that its subject reaches."""

    id = "expected-stream-differs"
    safe = "No stream that answers stored the message; those with nats.ack=never did."
    remedy = "Correct Nats-Expected-Stream, or bind that stream to the subject."


class OffsetNotAvailable(DuramenError):
    """The node that was asked does not know yet how far the partition is committed, or it is not that far itself."""

    id = "offset-not-available"
    safe = "Nothing was read and nothing changed; nothing that was shown before is lost."
    remedy = "Ask again; clients do so by themselves. It takes as long as the replicas in sync need to answer once."


class OffsetOutOfRange(DuramenError):
    """No record at that offset: below the log start or beyond the end."""

    id = "offset-out-of-range"
    safe = "Nothing was read and nothing changed."
    remedy = "Read from the log's start or end; consumers do that by themselves, as auto.offset.reset says."


class RecordStateInvalid(DuramenError):
    """A consumer of a share group speaks of records that it does not hold: its lock has run out, or it never did."""

    id = "record-state-invalid"
    safe = "Nothing was changed: the records may have been delivered to another consumer."
    remedy = "Process records faster than share.record.lock.duration.ms, or give the group more time."


class RecordCut(DuramenError):
    """The record that was waited for is in no log any more: another leader's records are where it was, or before."""

    id = "record-cut"
    safe = "The record was not acknowledged under acks=all, and is lost; what was acknowledged so is kept."
    remedy = "Write it again; and with acks=all, where it must not be lost."


class RecordsLost(DuramenError):
    """Records that a reader should have read are gone; the message says which and why."""

    id = "records-lost"
    safe = "What is still in the log is unharmed; what the message names is gone."
    remedy = (
        "Begin again at the start of what is left (in Spark: failOnDataLoss=false goes on there), and lengthen "
        "retention.ms or read sooner."
    )


class OutOfOrderSequence(DuramenError):
    """An idempotent producer's sequence does not follow the last one."""

    id = "out-of-order-sequence"
    safe = "The batch was not stored by this node; a leader that came after it may have it."
    remedy = (
        "Let the producer begin anew: its client closes it or asks for a new id, then sends what was not acknowledged."
    )


class ProducerFenced(DuramenError):
    """A newer epoch of this producer id has written."""

    id = "producer-fenced"
    safe = "The batch was not stored; the newer producer goes on."
    remedy = "Close this producer: another one has taken its place."


class ProducerIdUnknown(DuramenError):
    """The transactional id is not known, or its producer id is another one."""

    id = "producer-id-unknown"
    safe = "Nothing was stored."
    remedy = "Begin anew with `init_transactions`: the transactional id has expired, or another producer has it."


class ConcurrentTransactions(DuramenError):
    """The transaction before is still being completed, or is aborted for this producer right now."""

    id = "concurrent-transactions"
    safe = "Nothing was changed; asking again is safe."
    remedy = "Ask again a little later, as clients do by themselves."


class TransactionStateInvalid(DuramenError):
    """What was asked for does not fit the state that the transaction is in."""

    id = "transaction-state-invalid"
    safe = "Nothing was changed."
    remedy = "Write in a transaction what was begun in one, and end it once, in one way."


class TransactionAbortable(DuramenError):
    """The partition is not in an ongoing transaction of this producer: it was ended meanwhile, or never begun."""

    id = "transaction-abortable"
    safe = "The batch was not stored; what was stored in the transaction before is not visible before its commit."
    remedy = "Abort the transaction and begin it again."


class TransactionTimeoutInvalid(DuramenError):
    """A producer asks for a transaction timeout that is not positive or above `transaction.max.timeout.ms`."""

    id = "transaction-timeout-invalid"
    safe = "Nothing was changed."
    remedy = "Lower the producer's `transaction.timeout.ms`, or raise `transaction.max.timeout.ms` of the node."


class TransactionalIdMissing(DuramenError):
    """A batch says that it is part of a transaction, and the request does not say of which transactional id."""

    id = "transactional-id-missing"
    safe = "The batch was not stored."
    remedy = "Give the producer a `transactional.id`."


class TransactionalIdNotFound(DuramenError):
    """There is no transactional id of that name, or it was not used for so long that it is forgotten."""

    id = "transactional-id-not-found"
    safe = "Nothing was changed."
    remedy = "Look at the list of transactions for the names that there are."


class TransactionsFull(DuramenError):
    """The transactional ids of the node, with the partitions in their transactions, take all the memory they may."""

    id = "transactions-full"
    safe = "Nothing was changed; the transactions there are go on. Asking again later is safe."
    remedy = "Raise memory.limit.bytes, or use fewer transactional ids; unused ones expire."


class QueryFenced(DuramenError):
    """A newer run of a Spark query writes, or the batch is decided: the message names both."""

    id = "query-fenced"
    safe = "Nothing of what was refused is visible; what the newer run wrote is there once."
    remedy = "Let one driver run the query: stop the older one. Two with one checkpoint is a mistake."


class BatchDiffers(DuramenError):
    """A batch of a Spark query comes again, and it, or one behind it, was written from another range of offsets."""

    id = "batch-differs"
    safe = "Nothing of the batch was written a second time; what was written first stands."
    remedy = (
        "Put the checkpoint back as it was. If it is lost, begin with a new one, at offsets behind those that were "
        "written."
    )


class AttemptLost(DuramenError):
    """The transaction of a Spark task that should be committed is not open any more: it has timed out, as a rule."""

    id = "attempt-lost"
    safe = "Nothing of the batch is visible; it is written again when the query goes on."
    remedy = "Give batches more time (kafka.transaction.timeout.ms), or make them smaller (maxOffsetsPerTrigger)."


class FencedLeaderEpoch(DuramenError):
    """The client knows an older leader epoch than the log."""

    id = "fenced-leader-epoch"
    safe = "Nothing was done; repeating after new metadata is safe."
    remedy = "Ask for metadata again; clients do so by themselves."


class UnknownLeaderEpoch(DuramenError):
    """The client knows a newer leader epoch than the log."""

    id = "unknown-leader-epoch"
    safe = "Nothing was done; repeating is safe."
    remedy = "Ask again; if it stays, the data directory was put back from an older backup: start the consumer anew."


class StreamNotFound(DuramenError):
    """No stream, or no partition of it, with that name or id."""

    id = "stream-not-found"
    safe = "Nothing was done."
    remedy = "Correct the name (`duramen stream list` shows them), or create the stream."


class StreamExists(DuramenError):
    """A stream with that name exists."""

    id = "stream-exists"
    safe = "The stream that exists was not changed."
    remedy = "Use it as it is, choose another name, or delete it first."


class StreamDiffers(StreamExists):
    """A stream with that name exists and is defined otherwise; the message says how."""

    id = "stream-differs"
    safe = "The stream that exists was not changed."
    remedy = "Change it with `duramen stream alter`, or choose another name."


class NameInvalid(DuramenError):
    """A stream's name is empty, too long, or has characters that Kafka does not allow."""

    id = "name-invalid"
    safe = "Nothing was created."
    remedy = "Use letters, digits, `.`, `_` and `-`, at most 249 of them, and no `__` at the beginning."


class SubjectInvalid(DuramenError):
    """A NATS subject is malformed or may not be bound."""

    id = "subject-invalid"
    safe = "Nothing was created or bound."
    remedy = "Write tokens with dots between them; `*` stands for one token, a last `>` for the rest."


class PartitionsInvalid(DuramenError):
    """A count of partitions that cannot be."""

    id = "partitions-invalid"
    safe = "Nothing was changed."
    remedy = (
        "Ask for at least one partition, and for more than there are where some are added; there is no way to fewer."
    )


class ConfigInvalid(DuramenError):
    """A stream's config has an unknown name or a value that does not fit."""

    id = "config-invalid"
    safe = "No setting of the stream was changed."
    remedy = "Correct the setting that the message names; docs/settings.md lists what each may be."


class GroupIdInvalid(DuramenError):
    """A consumer group's id is empty where it must not be."""

    id = "group-id-invalid"
    safe = "Nothing was done."
    remedy = "Give the consumer a group.id."


class GroupNotFound(DuramenError):
    """No consumer group with that id."""

    id = "group-not-found"
    safe = "Nothing was done."
    remedy = "Correct the group's id; a group is there once a member has joined or an offset was committed."


class GroupNotEmpty(DuramenError):
    """The consumer group still has members."""

    id = "group-not-empty"
    safe = "The group and its offsets were not changed."
    remedy = "Stop its members, or wait for their session timeout, then repeat."


class GroupSubscribed(DuramenError):
    """Members of the consumer group read the stream."""

    id = "group-subscribed"
    safe = "The offsets of that stream were not changed."
    remedy = "Stop the members that subscribe to the stream, then repeat."


class GroupFull(DuramenError):
    """The consumer group has group.max.size members."""

    id = "group-full"
    safe = "The member did not join; the others go on."
    remedy = "Raise group.max.size or memory.limit.bytes, or run fewer members."


class CoordinatorLoading(DuramenError):
    """The node begins to coordinate the group and still reads what is stored of it; ask again."""

    id = "coordinator-loading"
    safe = "Nothing was done; repeating is safe."
    remedy = "Repeat after a moment; clients do so by themselves."


class UnknownMember(DuramenError):
    """The group does not know this member id."""

    id = "unknown-member"
    safe = "Offsets of this request were not committed; those before are kept."
    remedy = "Join the group again; clients do so by themselves."


class MemberIdRequired(DuramenError):
    """A new member must join again with the id that it was given."""

    id = "member-id-required"
    safe = "Nothing was done; repeating is safe."
    remedy = "Join again with the id of the answer; clients do so by themselves."

    def __init__(self, member_id: str) -> None:
        super().__init__("join again with the member id given")
        self.member_id = member_id


class FencedInstance(DuramenError):
    """Another member has taken this group.instance.id over."""

    id = "fenced-instance"
    safe = "This member's commit was not done; the other member goes on."
    remedy = "Give every running member a group.instance.id of its own."


class FencedMemberEpoch(DuramenError):
    """A member of a group speaks of another epoch than the one that it was told last."""

    id = "fenced-member-epoch"
    safe = "Offsets of this request were not committed; those before are kept."
    remedy = "Give up all partitions and join again; clients do so by themselves."


class StaleMemberEpoch(DuramenError):
    """The consumer group's member commits or reads offsets in an epoch that is not its own any more."""

    id = "stale-member-epoch"
    safe = "Offsets of this request were not committed; those before are kept."
    remedy = "Repeat with the epoch of the last heartbeat's answer; clients do so by themselves."


class UnreleasedInstance(DuramenError):
    """Another member of the consumer group has this group.instance.id and has not left."""

    id = "unreleased-instance"
    safe = "The member did not join; the other one goes on."
    remedy = "Give every running member a group.instance.id of its own, or wait for the other's session to end."


class AssignorUnknown(DuramenError):
    """The member asks for a server-side assignor that there is not."""

    id = "assignor-unknown"
    safe = "The member did not join; the others go on."
    remedy = "Ask for an assignor of group.consumer.assignors, or for none."


class PatternInvalid(DuramenError):
    """The regular expression of a subscription is none that RE2 understands."""

    id = "pattern-invalid"
    safe = "The member did not join; the others go on."
    remedy = "Correct the expression; https://github.com/google/re2/wiki/Syntax has the syntax."


class VersionTooOld(DuramenError):
    """The request's version does not know what it would have to."""

    id = "version-too-old"
    safe = "Nothing was done."
    remedy = "Use a client that knows the consumer protocol, or one of the classic protocol."


class IllegalGeneration(DuramenError):
    """The member speaks of another generation of the group."""

    id = "illegal-generation"
    safe = "Offsets of this request were not committed; those before are kept."
    remedy = "Join the group again; clients do so by themselves, and read again what was not committed."


class RebalanceInProgress(DuramenError):
    """The group is rebalancing: the member has to join again."""

    id = "rebalance-in-progress"
    safe = "Nothing is lost; records since the last commit may be read twice."
    remedy = "Join the group again; clients do so by themselves."


class InconsistentProtocol(DuramenError):
    """The member shares no assignment protocol with the group."""

    id = "inconsistent-protocol"
    safe = "The member did not join; the others go on."
    remedy = "Give all members of the group an assignment strategy in common."


class SessionTimeoutInvalid(DuramenError):
    """A session timeout outside group.min.session.timeout.ms to group.max.session.timeout.ms."""

    id = "session-timeout-invalid"
    safe = "The member did not join."
    remedy = "Choose session.timeout.ms between group.min.session.timeout.ms and group.max.session.timeout.ms."


class OffsetMetadataTooLarge(DuramenError):
    """A committed offset's metadata is longer than offset.metadata.max.bytes."""

    id = "offset-metadata-too-large"
    safe = "The offset was not committed."
    remedy = "Shorten the note, or raise offset.metadata.max.bytes."


class NameNotResolved(DuramenError):
    """A request names a topic, and whether there is one of that name was not known in the time that it waits."""

    id = "name-not-resolved"
    safe = "Nothing was done; asking again is safe."
    remedy = "Ask again; clients do so by themselves."


class TopicNotAuthorized(DuramenError):
    """The principal lacks the right to do this to the topic."""

    id = "topic-not-authorized"
    safe = "Nothing was done."
    remedy = "Have an administrator grant the operation that the message names."


class GroupNotAuthorized(DuramenError):
    """The principal lacks the right to do this to the group."""

    id = "group-not-authorized"
    safe = "Nothing was done."
    remedy = "Have an administrator grant the operation that the message names."


class ClusterNotAuthorized(DuramenError):
    """The principal lacks the right to do this to the cluster."""

    id = "cluster-not-authorized"
    safe = "Nothing was done."
    remedy = "Have an administrator grant the operation that the message names."


class TransactionalIdNotAuthorized(DuramenError):
    """The principal lacks the right to do this to the transactional id."""

    id = "transactional-id-not-authorized"
    safe = "Nothing was done."
    remedy = "Have an administrator grant the operation that the message names."


class NodeStarting(DuramenError):
    """The node has not come to taking requests yet, or takes none any more."""

    id = "node-starting"
    safe = "Nothing was done; asking again is safe."
    remedy = "Wait until `/readyz` answers 200; while it does not, it says why."


class NodeBusy(DuramenError):
    """The requests under way take all the memory, or all the connections, that the HTTP door has for them."""

    id = "node-busy"
    safe = "Nothing was done; asking again is safe."
    remedy = "Ask again a second later, with fewer requests at a time."


class NotController(DuramenError):
    """The node that was asked does not lead the quorum of the controller: another one decides."""

    id = "not-controller"
    safe = "Nothing was done; asking again is safe."
    remedy = "Ask the node that the message names; where it names none, ask again a second later."


class NotCoordinator(DuramenError):
    """The node that was asked does not coordinate the group: who leads the partition that keeps the group does."""

    id = "not-coordinator"
    safe = "Nothing was done, or, where the node has just lost its place, it is not known; repeating is safe."
    remedy = "Look for the coordinator again; clients do so by themselves."


class NotLeader(DuramenError):
    """The node that was asked does not lead the partition, or leads it no more."""

    id = "not-leader"
    safe = "Of a batch that was sent it is not known whether it is kept; an idempotent producer may send it again."
    remedy = "Ask for metadata again, and then the leader; clients do so by themselves."


class NotEnoughReplicas(DuramenError):
    """Fewer replicas of a partition are in sync than `min.insync.replicas`, and the batch wants acks=all."""

    id = "not-enough-replicas"
    safe = "Nothing was stored; sending again is safe."
    remedy = "Bring nodes back that are down, or see why they lag; producers send again by themselves."


class NotEnoughReplicasAfterAppend(DuramenError):
    """A batch with acks=all was stored, and then fewer replicas were in sync than `min.insync.replicas`."""

    id = "not-enough-replicas-after-append"
    safe = "Whether the batch is kept is not known yet; an idempotent producer may send it again."
    remedy = "Bring nodes back that are down, or see why they lag; producers send again by themselves."


class OutcomeUnknown(DuramenError):
    """A node that was to do something leads no more, has failed, or was not heard of again before it said that it had.

    A change of the metadata, or records that another node has sent on to the one that leads their partition.
    """

    id = "outcome-unknown"
    safe = (
        "Whether the change was made is not known: it is made wholly or not at all, and shows in what is described."
        " Records are stored wholly or not at all in each batch."
    )
    remedy = "Look whether the change was made, or the records are there, before you ask for it again."


class PathNotFound(DuramenError):
    """The HTTP door has nothing at that path."""

    id = "path-not-found"
    safe = "Nothing was done."
    remedy = "Look the path up in docs/http-api.md, or in `/v1/openapi.json`."


class MethodNotAllowed(DuramenError):
    """There is something at that path of the HTTP door, but it does not take that method."""

    id = "method-not-allowed"
    safe = "Nothing was done."
    remedy = "Use one of the methods that the header `Allow` of the answer names."


class BodyTooLarge(DuramenError):
    """The body of an HTTP request is larger than its path takes."""

    id = "body-too-large"
    safe = "Nothing was done."
    remedy = "Send fewer records in a request."


class AnswerTypeUnavailable(DuramenError):
    """An answer in the format that the header Accept names needs a package that the node does not have."""

    id = "answer-type-unavailable"
    safe = "Nothing was read."
    remedy = "Ask for another format, or install what the message names beside the node."


class BodyTypeUnsupported(DuramenError):
    """The body of an HTTP request does not say that it is JSON."""

    id = "body-type-unsupported"
    safe = "Nothing was done."
    remedy = "Send the header `Content-Type: application/json`, as `curl --json` does."


class HostRefused(DuramenError):
    """An HTTP request names a host that is not the node: a web page may have sent it (DNS rebinding)."""

    id = "host-refused"
    safe = "Nothing was done."
    remedy = "Ask by address or as `localhost`, or add the name to `http.allowed.hosts`."


class OriginRefused(DuramenError):
    """An HTTP request was sent by a web page that does not come from the node."""

    id = "origin-refused"
    safe = "Nothing was done."
    remedy = "Let the page's own server ask the node instead of the browser."


class ClusterDiffers(DuramenError):
    """A node is of another cluster than the one that it wants to take part in."""

    id = "cluster-differs"
    safe = "The node does not take part; neither it nor the cluster has changed."
    remedy = "Start it with the seeds of its own cluster, or with an empty data directory."


class ElectionNotNeeded(DuramenError):
    """The partition has the leader that an election would give it."""

    id = "election-not-needed"
    safe = "Nothing was changed; repeating is safe."
    remedy = "Nothing needs to be done."


class LeaderUnavailable(DuramenError):
    """The node that is to lead a partition cannot: it is not live or not in sync, takes no writes, or stops."""

    id = "leader-unavailable"
    safe = "Nothing was changed; repeating is safe."
    remedy = "Wait until the node is back and in sync, then repeat."


class NodeDuplicate(DuramenError):
    """A node with this id, or with this data directory, takes part already."""

    id = "node-duplicate"
    safe = "The node does not take part; the one that does goes on."
    remedy = "Stop one of the two, or give the new one an id and a directory of its own."


class DirectoryRolledBack(DuramenError):
    """A node's data directory is an older copy: it took part in a newer state, of which the directory knows nothing."""

    id = "directory-rolled-back"
    safe = "The node does not take part, and nothing that it has is trusted; the others go on."
    remedy = "Put the newest state of the directory back if it is there; otherwise start the node with an empty one."


class NodeEpochStale(DuramenError):
    """A node speaks in a registration that is not its newest."""

    id = "node-epoch-stale"
    safe = "Nothing was changed."
    remedy = "Nodes register anew by themselves; if it goes on, two processes run as the same node: stop one."


class NodeNotFound(DuramenError):
    """There is no node with this id."""

    id = "node-not-found"
    safe = "Nothing was changed; repeating gives the same answer."
    remedy = "Correct the id."


class ReassignmentNotFound(DuramenError):
    """No reassignment of this partition is under way."""

    id = "reassignment-not-found"
    safe = "Nothing was changed; repeating is safe."
    remedy = "Nothing needs to be done."


class ReplicaAssignmentInvalid(DuramenError):
    """Replicas are named that a partition cannot have."""

    id = "replica-assignment-invalid"
    safe = "Nothing was changed; repeating gives the same answer."
    remedy = (
        "Correct what the message names: each partition has as many replicas, on different nodes that are registered."
    )


class ReplicationFactorInvalid(DuramenError):
    """A partition cannot have that many replicas."""

    id = "replication-factor-invalid"
    safe = "Nothing was changed; repeating gives the same answer until there are more nodes."
    remedy = "Ask for as many replicas as there are nodes, or fewer."


class TableAhead(DuramenError):
    """A table with one row for each key has a transaction of which another stream that is read with it lacks a part."""

    id = "table-ahead"
    safe = "Nothing was read, for it would have been a part of that transaction; repeating is safe."
    remedy = (
        "Read again when the other stream has it too (with tier=cold: its table; `duramen table status` tells how far"
        " that is), or read the streams one by one."
    )


class TableConflict(DuramenError):
    """Another writer committed to a stream's table first, so that these offsets do not follow its end any more."""

    id = "table-conflict"
    safe = "Nothing of this was committed; what the other writer committed is kept, and repeating is safe."
    remedy = "Nothing needs to be done: the job goes on from the table's new end. Let only one job write a table."


class TableDamaged(DuramenError):
    """A file of a table is cut off or altered: it is not what its format says."""

    id = "table-damaged"
    safe = "Nothing was committed; repeating gives the same answer until the file is whole."
    remedy = "Bring the file that the message names back from a backup, or begin a new table at another location."


class TableForeign(DuramenError):
    """What lies at a table's location is not the table that belongs there: of others, with other columns, or gone."""

    id = "table-foreign"
    safe = "Nothing was read or written there; repeating gives the same answer."
    remedy = "Choose an empty location, or the one that the table was made with."


class TableStorageFailed(DuramenError):
    """The storage of a table could not be read or written: a full disk, a bucket that is not there or refuses."""

    id = "table-storage-failed"
    safe = "Offsets are committed with their files in one step or not at all, and repeating is safe."
    remedy = (
        "Look at what the message names: space, permissions, endpoint; the job goes on by itself when that is mended."
    )


class TableUnsupported(DuramenError):
    """A table was declared, or holds, something that its format, or this version, cannot do."""

    id = "table-unsupported"
    safe = "Nothing was written; repeating gives the same answer."
    remedy = "Declare the table as the message says."


class VoterDuplicate(DuramenError):
    """A node votes in the quorum already, maybe with an earlier data directory."""

    id = "voter-duplicate"
    safe = "Nothing was changed; repeating gives the same answer."
    remedy = "Nothing needs to be done, unless its disk was lost: then remove the old voter first."


class VoterNotFound(DuramenError):
    """There is no voter that is this node with this data directory."""

    id = "voter-not-found"
    safe = "Nothing was changed; repeating gives the same answer."
    remedy = "Look with `duramen cluster status` who votes."


class VotersUnsettled(DuramenError):
    """The voters cannot be changed now: a change is under way, or the node that is to vote has not caught up."""

    id = "voters-unsettled"
    safe = "Nothing was changed; repeating is safe."
    remedy = "Repeat in a moment."
