"""Errors as problem documents (RFC 9457)."""

from collections.abc import Mapping
from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from duramen.base import errors
from duramen.base.errors import DuramenError
from duramen.doors.problems import PartlyStored, Problem, problem_of, unexpected_problem

__all__ = [
    "PROBLEM_JSON",
    "answer_to_error",
    "answer_to_http",
    "answer_to_partly_stored",
    "answer_to_unexpected",
    "answer_with",
    "nobody_waits",
]

PROBLEM_JSON: Final = "application/problem+json"


def answer_with(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """A problem document as a response."""
    return Response(msgspec.json.encode(problem), problem.status, headers, PROBLEM_JSON)


async def answer_to_error(request: Request, error: Exception) -> Response:
    """The response to a domain error."""
    if not isinstance(error, DuramenError):
        raise error
    problem = problem_of(error, request.url.path)
    return answer_with(problem, {"Retry-After": "1"} if problem.status == 503 else None)


async def answer_to_partly_stored(request: Request, error: Exception) -> Response:
    """The response with the error of some records and the offsets of the others."""
    if not isinstance(error, PartlyStored):
        raise error
    problem = problem_of(error.error, request.url.path)
    problem.stored = error.stored or msgspec.UNSET
    problem.unknown = error.unknown or msgspec.UNSET
    return answer_with(problem)


async def answer_to_http(request: Request, error: Exception) -> Response:
    """The response if no route matches."""
    if not isinstance(error, HTTPException):
        raise error
    path = request.url.path
    if error.status_code != 405:
        found = errors.PathNotFound(f"there is no path {path}; /v1/openapi.json lists the paths")
        return answer_with(problem_of(found, path))
    allowed = ", ".join(sorted((error.headers or {}).get("Allow", "").split(", ")))
    refused = errors.MethodNotAllowed(f"{path} takes {allowed}, not {request.method}")
    return answer_with(problem_of(refused, path), {"Allow": allowed})


async def answer_to_unexpected(request: Request, _: Exception) -> Response:
    """The response to an unexpected error, which is written to the node's log."""
    return answer_with(unexpected_problem(request.url.path))


async def nobody_waits(_: Request, __: Exception) -> Response:
    """The response after a client disconnected before its body was complete; nobody receives it."""
    return Response(status_code=400)
