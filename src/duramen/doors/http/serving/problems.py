"""Errors as problem documents (RFC 9457), and which HTTP status each has."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.doors.http.types.types import Problem, Rewritten, Stored

__all__ = [
    "PROBLEM_JSON",
    "STATUS",
    "PartlyStored",
    "answer_to_error",
    "answer_to_http",
    "answer_to_partly_stored",
    "answer_to_unexpected",
    "answer_with",
    "nobody_waits",
    "problem_of",
    "status_of",
]

PROBLEM_JSON: Final = "application/problem+json"

STATUS: Final[Mapping[type[DuramenError], int]] = {
    errors.AnswerTypeUnavailable: 406,
    errors.BatchTooLarge: 413,
    errors.BodyTooLarge: 413,
    errors.BodyTypeUnsupported: 415,
    errors.ClusterNotAuthorized: 403,
    errors.CoordinatorLoading: 503,
    errors.DeletionRefused: 409,
    errors.ElectionNotNeeded: 409,
    errors.GroupNotAuthorized: 403,
    errors.GroupNotEmpty: 409,
    errors.GroupNotFound: 404,
    errors.HostRefused: 421,
    errors.LeaderUnavailable: 409,
    errors.LogDamaged: 500,
    errors.MethodNotAllowed: 405,
    errors.NameNotResolved: 503,
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
    errors.RebalanceInProgress: 409,
    errors.QueueBatchTooLarge: 413,
    errors.QueueEntryGone: 410,
    errors.QueueHistoryRewritten: 410,
    errors.QueueShardsFixed: 409,
    errors.QueueSpaceNotFound: 404,
    errors.QueueVersionStale: 409,
    errors.ReassignmentNotFound: 404,
    errors.RecordCut: 409,
    errors.RequestTimedOut: 408,
    errors.SnapshotCut: 410,
    errors.SnapshotLeaseExpired: 410,
    errors.SnapshotLeaseNotFound: 404,
    errors.SnapshotNotReached: 503,
    errors.SnapshotStartOver: 410,
    errors.SnapshotTooOld: 410,
    errors.StorageFailed: 503,
    errors.StorageFull: 507,
    errors.StreamDiffers: 409,
    errors.StreamExists: 409,
    errors.StreamNotKeyed: 409,
    errors.StreamNotFound: 404,
    errors.TopicNotAuthorized: 403,
    errors.NamespaceExists: 409,
    errors.NamespaceNotFound: 404,
    errors.TenantExists: 409,
    errors.TenantNotFound: 404,
    errors.TopicAliasCycle: 409,
    errors.TopicBusy: 409,
    errors.TopicExists: 409,
    errors.TopicHasAliases: 409,
    errors.TopicIsAlias: 409,
    errors.TopicNotFound: 404,
    errors.TransactionalIdNotAuthorized: 403,
    errors.VoterDuplicate: 409,
    errors.VoterNotFound: 404,
    errors.VotersUnsettled: 409,
}
"""Those that are not here are the request's: 400."""


class PartlyStored(Exception):
    """Some records of a request were stored, or may be, and `error` kept others from it.

    `unknown` are the numbers of those of which nobody knows; what is in neither was not stored.
    """

    def __init__(self, error: DuramenError, stored: list[Stored], unknown: list[int]) -> None:
        super().__init__(str(error))
        self.error = error
        self.stored = stored
        self.unknown = unknown


def status_of(error: type[DuramenError]) -> int:
    """The status of an answer that says this error."""
    return STATUS.get(error, 400)


def problem_of(error: DuramenError, instance: str) -> Problem:
    """`error` as a document; `instance` is the path that was asked for."""
    problem = Problem(error.id, error.id.replace("-", " "), status_of(type(error)), str(error), instance)
    if isinstance(error, errors.QueueHistoryRewritten):
        problem.rewritten = Rewritten(error.start, error.by, error.reason)
    return problem


def answer_with(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem as an answer."""
    return Response(msgspec.json.encode(problem), problem.status, headers, PROBLEM_JSON)


async def answer_to_error(request: Request, error: Exception) -> Response:
    """The answer to an error on purpose."""
    if not isinstance(error, DuramenError):
        raise error
    problem = problem_of(error, request.url.path)
    return answer_with(problem, {"Retry-After": "1"} if problem.status == 503 else None)


async def answer_to_partly_stored(request: Request, error: Exception) -> Response:
    """The answer that says why some records were not stored, and where the others are."""
    if not isinstance(error, PartlyStored):
        raise error
    problem = problem_of(error.error, request.url.path)
    problem.stored = error.stored or msgspec.UNSET
    problem.unknown = error.unknown or msgspec.UNSET
    return answer_with(problem)


async def answer_to_http(request: Request, error: Exception) -> Response:
    """The answer where no route was found."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.url.path
    if error.status_code != 405:
        found = errors.PathNotFound(f"there is nothing at {path}; /v1/openapi.json lists what there is")
        return answer_with(problem_of(found, path))
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    refused = errors.MethodNotAllowed(f"{path} takes {allowed}, not {request.method}")
    return answer_with(problem_of(refused, path), {"Allow": allowed})


async def answer_to_unexpected(request: Request, _: Exception) -> Response:
    """The answer to an error that nobody expected: what it was is in the node's log."""
    detail = "an error that nobody expected; the node's log says more"
    return answer_with(Problem(DuramenError.id, "error", 500, detail, request.url.path))


async def nobody_waits(_: Request, __: Exception) -> Response:
    """The client closed before its body was whole: what is answered goes nowhere."""
    return Response(status_code=400)
