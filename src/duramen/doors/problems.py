"""Errors as problem documents (RFC 9457) of the doors that speak JSON, and the HTTP status of each. Pure."""

from collections.abc import Mapping
from typing import Final

import msgspec

from duramen.base import errors
from duramen.base.errors import DuramenError

__all__ = ["STATUS", "PartlyStored", "Problem", "Rewritten", "Stored", "problem_of", "status_of", "unexpected_problem"]


class Stored(msgspec.Struct):
    """A stored record of a request in which others failed: its number in the request, its partition and its offset.

    An entry of a queue also has its position.
    """

    record: int
    partition: int
    offset: int
    position: str | msgspec.UnsetType = msgspec.UNSET


class Rewritten(msgspec.Struct):
    """The position from which entries of a queue were replaced, by whom and why, if the request had that."""

    start: str
    by: str
    reason: str


class Problem(msgspec.Struct):
    """An error (RFC 9457). `type` is the stable id of the error, `instance` the path of the request.

    `remedy` is the action to take, if there is one. For a request to store records, `stored` are the stored ones,
    `unknown` the numbers of those that may be stored, and all others were not. `rewritten` comes with
    `history-rewritten`.
    """

    type: str
    title: str
    status: int
    detail: str
    instance: str
    remedy: str | msgspec.UnsetType = msgspec.UNSET
    stored: list[Stored] | msgspec.UnsetType = msgspec.UNSET
    unknown: list[int] | msgspec.UnsetType = msgspec.UNSET
    rewritten: Rewritten | msgspec.UnsetType = msgspec.UNSET


STATUS: Final[Mapping[type[DuramenError], int]] = {
    errors.AccountNotFound: 404,
    errors.AnswerTypeUnavailable: 406,
    errors.BatchTooLarge: 413,
    errors.BodyTooLarge: 413,
    errors.BodyTypeUnsupported: 415,
    errors.ClusterNotAuthorized: 403,
    errors.CoordinatorLoading: 503,
    errors.DeletionRefused: 409,
    errors.DuramenError: 500,
    errors.ElectionNotNeeded: 409,
    errors.GroupNotAuthorized: 403,
    errors.GroupNotEmpty: 409,
    errors.GroupNotFound: 404,
    errors.HostRefused: 421,
    errors.LeaderUnavailable: 409,
    errors.LogDamaged: 500,
    errors.MethodNotAllowed: 405,
    errors.NameNotResolved: 503,
    errors.NamespaceExists: 409,
    errors.NamespaceNotFound: 404,
    errors.NodeBusy: 503,
    errors.NodeNotFound: 404,
    errors.NodeStarting: 503,
    errors.NodeStopping: 503,
    errors.NotController: 503,
    errors.NotCoordinator: 503,
    errors.NotEnoughReplicas: 503,
    errors.NotEnoughReplicasAfterAppend: 503,
    errors.NotLeader: 503,
    errors.OffsetNotAvailable: 503,
    errors.OriginRefused: 403,
    errors.OutcomeUnknown: 503,
    errors.PathNotFound: 404,
    errors.QueueBatchTooLarge: 413,
    errors.QueueEntryGone: 410,
    errors.QueueEntryTooLarge: 413,
    errors.QueueHistoryRewritten: 410,
    errors.QueueLeaseExpired: 410,
    errors.QueueRequestReused: 409,
    errors.QueueSpaceFull: 409,
    errors.QueueShardsFixed: 409,
    errors.QueueSpaceNotFound: 404,
    errors.QueueVersionStale: 409,
    errors.ReassignmentNotFound: 404,
    errors.RebalanceInProgress: 409,
    errors.RecordCut: 409,
    errors.RequestTimedOut: 408,
    errors.SnapshotCut: 410,
    errors.SnapshotLeaseExpired: 410,
    errors.SnapshotLeaseNotFound: 404,
    errors.SnapshotNotReached: 503,
    errors.SnapshotStartOver: 410,
    errors.SnapshotTooOld: 410,
    errors.ExportExpired: 410,
    errors.StateDamaged: 500,
    errors.StorageFailed: 503,
    errors.StorageFull: 507,
    errors.StreamDiffers: 409,
    errors.StreamExists: 409,
    errors.StreamNotFound: 404,
    errors.LiveTopicReadOnly: 409,
    errors.StreamNotKeyed: 409,
    errors.PolicyNotEffective: 504,
    errors.InventoryPositionLost: 410,
    errors.TenantExists: 409,
    errors.TenantNotFound: 404,
    errors.TopicAliasCycle: 409,
    errors.TopicAliasDangling: 404,
    errors.TopicBusy: 409,
    errors.TopicExists: 409,
    errors.TopicHasAliases: 409,
    errors.TopicIsAlias: 409,
    errors.TopicQuotaExceeded: 403,
    errors.BytesQuotaExceeded: 403,
    errors.ProduceRateExceeded: 429,
    errors.TopicNotAuthorized: 403,
    errors.TopicNotFound: 404,
    errors.TransactionalIdNotAuthorized: 403,
    errors.VoterDuplicate: 409,
    errors.VoterNotFound: 404,
    errors.VotersUnsettled: 409,
}
"""Other errors are errors of the request: 400."""


class PartlyStored(Exception):
    """Some records of a request were stored, or may be, and `error` prevented the others.

    `unknown` are the numbers of records with an unknown outcome; records in neither were not stored.
    """

    def __init__(self, error: DuramenError, stored: list[Stored], unknown: list[int]) -> None:
        super().__init__(str(error))
        self.error = error
        self.stored = stored
        self.unknown = unknown


def status_of(error: type[DuramenError]) -> int:
    """The status of the response to this error."""
    return STATUS.get(error, 400)


def problem_of(error: DuramenError, instance: str) -> Problem:
    """`error` as a document; `instance` is the path that was asked for."""
    problem = Problem(error.id, error.id.replace("-", " "), status_of(type(error)), str(error), instance)
    if error.remedy:
        problem.remedy = error.remedy
    if isinstance(error, errors.QueueHistoryRewritten):
        problem.rewritten = Rewritten(error.start, error.by, error.reason)
    return problem


def unexpected_problem(instance: str) -> Problem:
    """The document of an unexpected error, which is written to the node's log."""
    return problem_of(DuramenError("an unexpected error; the node's log has details"), instance)
