"""The meaning of error numbers in responses: whether to retry, and the error to raise. Pure."""

from collections.abc import Mapping
from typing import Final

from duramen.base import errors
from duramen.base.catalogue.inventory import BYTES_QUOTA, TOPIC_QUOTA
from duramen.base.catalogue.queues import SHARD_MAX_BYTES, SHARD_MAX_ENTRIES
from duramen.base.errors import DuramenError, RequestInvalid
from duramen.codec.kafka.errors import ErrorCode

__all__ = ["PASSING", "STALE", "failure"]

STALE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
"""The client's metadata may be old: get it again, then ask again."""

PASSING: Final = STALE | {
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.OFFSET_NOT_AVAILABLE,
}
"""May succeed when asked again a little later."""

_ERRORS: Final[Mapping[int, type[DuramenError]]] = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: errors.CoordinatorLoading,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: errors.CoordinatorLoading,
    ErrorCode.CORRUPT_MESSAGE: errors.BatchCorrupt,
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: errors.OutOfOrderSequence,
    ErrorCode.FENCED_INSTANCE_ID: errors.FencedInstance,
    ErrorCode.GROUP_MAX_SIZE_REACHED: errors.GroupFull,
    ErrorCode.ILLEGAL_GENERATION: errors.IllegalGeneration,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: errors.InconsistentProtocol,
    ErrorCode.INVALID_CONFIG: errors.ConfigInvalid,
    ErrorCode.INVALID_GROUP_ID: errors.GroupIdInvalid,
    ErrorCode.INVALID_PARTITIONS: errors.PartitionsInvalid,
    ErrorCode.INVALID_PRODUCER_EPOCH: errors.ProducerFenced,
    ErrorCode.INVALID_RECORD: errors.BatchInvalid,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: errors.ProducerIdUnknown,
    ErrorCode.INVALID_SESSION_TIMEOUT: errors.SessionTimeoutInvalid,
    ErrorCode.INVALID_TIMESTAMP: errors.TimestampInvalid,
    ErrorCode.INVALID_TOPIC_EXCEPTION: errors.NameInvalid,
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: errors.TransactionTimeoutInvalid,
    ErrorCode.INVALID_TXN_STATE: errors.TransactionStateInvalid,
    ErrorCode.KAFKA_STORAGE_ERROR: errors.StorageFailed,
    ErrorCode.MESSAGE_TOO_LARGE: errors.BatchTooLarge,
    ErrorCode.NOT_COORDINATOR: errors.NotCoordinator,
    ErrorCode.OFFSET_OUT_OF_RANGE: errors.OffsetOutOfRange,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: errors.OutOfOrderSequence,
    ErrorCode.PRODUCER_FENCED: errors.ProducerFenced,
    ErrorCode.REBALANCE_IN_PROGRESS: errors.RebalanceInProgress,
    ErrorCode.REQUEST_TIMED_OUT: errors.RequestTimedOut,
    ErrorCode.TOPIC_ALREADY_EXISTS: errors.StreamExists,
    ErrorCode.TRANSACTION_ABORTABLE: errors.TransactionAbortable,
    ErrorCode.UNKNOWN_MEMBER_ID: errors.UnknownMember,
    ErrorCode.UNKNOWN_TOPIC_ID: errors.StreamNotFound,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: errors.StreamNotFound,
}


_LIMITS: Final[Mapping[str, type[DuramenError]]] = {
    BYTES_QUOTA: errors.BytesQuotaExceeded,
    TOPIC_QUOTA: errors.TopicQuotaExceeded,
    SHARD_MAX_ENTRIES: errors.QueueSpaceFull,
    SHARD_MAX_BYTES: errors.QueueSpaceFull,
}
"""Kafka has one number for all policies; the message names the policy."""


def failure(code: int, what: str, message: str | None = None) -> DuramenError:
    """The error for an error number: `what` failed, with the broker's message."""
    try:
        name = ErrorCode(code).name
    except ValueError:
        name = f"error {code}"
    kind = _ERRORS.get(code, RequestInvalid)
    if code == ErrorCode.POLICY_VIOLATION:
        kind = next((one for policy, one in _LIMITS.items() if f"({policy})" in (message or "")), kind)
    return kind(f"{what}: {message or name}")
