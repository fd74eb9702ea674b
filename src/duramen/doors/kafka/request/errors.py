"""Kafka's error number for each domain error."""

from collections.abc import Mapping
from typing import Final

from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.codec.kafka.errors import ErrorCode
from duramen.rpc.retry import UNSETTLED

__all__ = ["error_code", "group_error_code", "share_error_code"]

_CODES: Final[Mapping[type[DuramenError], ErrorCode]] = {
    errors.AssignorUnknown: ErrorCode.UNSUPPORTED_ASSIGNOR,
    errors.AttemptLost: ErrorCode.TRANSACTION_ABORTABLE,
    errors.BatchCorrupt: ErrorCode.CORRUPT_MESSAGE,
    errors.BatchDiffers: ErrorCode.INVALID_TXN_STATE,
    errors.BatchInvalid: ErrorCode.INVALID_RECORD,
    errors.QueueShardsFixed: ErrorCode.INVALID_PARTITIONS,
    errors.KeyedTransactionRefused: ErrorCode.INVALID_RECORD,
    errors.QueueSpaceFull: ErrorCode.POLICY_VIOLATION,
    errors.InventoryTopicRefused: ErrorCode.POLICY_VIOLATION,
    errors.QueueTopicRefused: ErrorCode.POLICY_VIOLATION,
    errors.QueueTransactionRefused: ErrorCode.INVALID_RECORD,
    errors.BatchTooLarge: ErrorCode.MESSAGE_TOO_LARGE,
    errors.ClusterNotAuthorized: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    errors.ClusterDiffers: ErrorCode.INCONSISTENT_CLUSTER_ID,
    errors.ConfigInvalid: ErrorCode.INVALID_CONFIG,
    errors.ConcurrentTransactions: ErrorCode.CONCURRENT_TRANSACTIONS,
    errors.CoordinatorLoading: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    errors.DeletionRefused: ErrorCode.POLICY_VIOLATION,
    errors.ElectionNotNeeded: ErrorCode.ELECTION_NOT_NEEDED,
    errors.FencedInstance: ErrorCode.FENCED_INSTANCE_ID,
    errors.FencedLeaderEpoch: ErrorCode.FENCED_LEADER_EPOCH,
    errors.FencedMemberEpoch: ErrorCode.FENCED_MEMBER_EPOCH,
    errors.GroupFull: ErrorCode.GROUP_MAX_SIZE_REACHED,
    errors.GroupIdInvalid: ErrorCode.INVALID_GROUP_ID,
    errors.GroupNotAuthorized: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    errors.GroupNotEmpty: ErrorCode.NON_EMPTY_GROUP,
    errors.GroupNotFound: ErrorCode.GROUP_ID_NOT_FOUND,
    errors.GroupSubscribed: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    errors.IllegalGeneration: ErrorCode.ILLEGAL_GENERATION,
    errors.InconsistentProtocol: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    errors.LeaderUnavailable: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    errors.LiveTopicReadOnly: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.LogDamaged: ErrorCode.CORRUPT_MESSAGE,
    errors.MemberIdRequired: ErrorCode.MEMBER_ID_REQUIRED,
    errors.NameInvalid: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.NameNotResolved: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.NameReserved: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.NodeDuplicate: ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    errors.NodeEpochStale: ErrorCode.STALE_BROKER_EPOCH,
    errors.NodeNotFound: ErrorCode.BROKER_ID_NOT_REGISTERED,
    errors.NodeStopping: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.NotController: ErrorCode.NOT_CONTROLLER,
    errors.NotCoordinator: ErrorCode.NOT_COORDINATOR,
    errors.NotEnoughReplicas: ErrorCode.NOT_ENOUGH_REPLICAS,
    errors.NotEnoughReplicasAfterAppend: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    errors.NotLeader: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    errors.OffsetMetadataTooLarge: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    errors.OffsetNotAvailable: ErrorCode.OFFSET_NOT_AVAILABLE,
    errors.OffsetOutOfRange: ErrorCode.OFFSET_OUT_OF_RANGE,
    errors.OutOfOrderSequence: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    errors.OutcomeUnknown: ErrorCode.REQUEST_TIMED_OUT,
    errors.PartitionsInvalid: ErrorCode.INVALID_PARTITIONS,
    errors.PatternInvalid: ErrorCode.INVALID_REGULAR_EXPRESSION,
    errors.PolicyInvalid: ErrorCode.INVALID_CONFIG,
    errors.ProducerFenced: ErrorCode.INVALID_PRODUCER_EPOCH,
    errors.ProducerIdUnknown: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    errors.QueryFenced: ErrorCode.PRODUCER_FENCED,
    errors.ReassignmentNotFound: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    errors.RebalanceInProgress: ErrorCode.REBALANCE_IN_PROGRESS,
    errors.RecordStateInvalid: ErrorCode.INVALID_RECORD_STATE,
    errors.ReplicaAssignmentInvalid: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.ReplicationFactorInvalid: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.RequestInvalid: ErrorCode.INVALID_REQUEST,
    errors.RequestTimedOut: ErrorCode.REQUEST_TIMED_OUT,
    errors.SessionTimeoutInvalid: ErrorCode.INVALID_SESSION_TIMEOUT,
    errors.StaleMemberEpoch: ErrorCode.STALE_MEMBER_EPOCH,
    errors.ShareGroupUnknown: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.ShareSessionEpochInvalid: ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    errors.ShareSessionLimitReached: ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    errors.ShareSessionNotFound: ErrorCode.SHARE_SESSION_NOT_FOUND,
    errors.StateDamaged: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.StorageFailed: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.StorageFull: ErrorCode.KAFKA_STORAGE_ERROR,
    errors.StreamDiffers: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.StreamExists: ErrorCode.TOPIC_ALREADY_EXISTS,
    errors.StreamNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TimestampInvalid: ErrorCode.INVALID_TIMESTAMP,
    errors.TenantNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.NamespaceNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicNotFound: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.TopicAliasDangling: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    errors.InventoryNameInvalid: ErrorCode.INVALID_TOPIC_EXCEPTION,
    errors.TopicNotAuthorized: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    errors.TopicQuotaExceeded: ErrorCode.POLICY_VIOLATION,
    errors.BytesQuotaExceeded: ErrorCode.POLICY_VIOLATION,
    errors.TransactionAbortable: ErrorCode.TRANSACTION_ABORTABLE,
    errors.TransactionStateInvalid: ErrorCode.INVALID_TXN_STATE,
    errors.TransactionTimeoutInvalid: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    errors.TransactionalIdMissing: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.TransactionalIdNotAuthorized: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.TransactionalIdNotFound: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    errors.TransactionsFull: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    errors.ReplicaAssignmentInvalid: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    errors.ReplicationFactorInvalid: ErrorCode.INVALID_REPLICATION_FACTOR,
    errors.UnknownLeaderEpoch: ErrorCode.UNKNOWN_LEADER_EPOCH,
    errors.UnknownMember: ErrorCode.UNKNOWN_MEMBER_ID,
    errors.UnreleasedInstance: ErrorCode.UNRELEASED_INSTANCE_ID,
    errors.UnsupportedFeature: ErrorCode.INVALID_REQUEST,
    errors.VoterDuplicate: ErrorCode.DUPLICATE_VOTER,
    errors.VoterNotFound: ErrorCode.VOTER_NOT_FOUND,
    errors.VotersUnsettled: ErrorCode.REQUEST_TIMED_OUT,
    errors.VersionTooOld: ErrorCode.UNSUPPORTED_VERSION,
}

_UNAVAILABLE: Final = (
    errors.NodeStopping, errors.NotEnoughReplicas, errors.NotEnoughReplicasAfterAppend, errors.StorageFull,
    errors.StorageFailed, errors.StateDamaged,
)  # fmt: skip


def error_code(error: Exception | None) -> ErrorCode:
    """The number for `error`; NONE for None."""
    if error is None:
        return ErrorCode.NONE
    return (
        _CODES.get(type(error), ErrorCode.UNKNOWN_SERVER_ERROR)
        if isinstance(error, DuramenError)
        else (ErrorCode.UNKNOWN_SERVER_ERROR)
    )


def group_error_code(error: Exception | None) -> ErrorCode:
    """The number of `error` from a coordinator: one that makes the client look the coordinator up if it must wait."""
    if isinstance(error, errors.NotLeader):
        return ErrorCode.NOT_COORDINATOR
    if isinstance(error, _UNAVAILABLE):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error_code(error)


def share_error_code(error: Exception | None) -> ErrorCode:
    """The number of `error` from the leader of a share partition, whose state another node may store."""
    if isinstance(error, UNSETTLED):
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return error_code(error)
