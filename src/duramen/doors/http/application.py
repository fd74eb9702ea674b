"""The routes as an ASGI application: paths to handlers, type checks on input, problem documents for errors."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote_to_bytes

import msgspec
import starlette.routing
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duramen.base.errors import DuramenError, NameInvalid
from duramen.base.metrics import Metrics
from duramen.doors.http import (
    accounts,
    changes,
    configs,
    exports,
    groups,
    health,
    inventory,
    leases,
    policies,
    queues,
    records,
    replication_wait,
    spaces,
    streams,
)
from duramen.doors.http.cluster import nodes
from duramen.doors.http.cluster import routes as cluster
from duramen.doors.http.serving import problems
from duramen.doors.http.serving.bodies import Bodies
from duramen.doors.http.serving.hosts import Guard, Hosts
from duramen.doors.http.serving.openapi import document
from duramen.doors.http.serving.queries import read_query
from duramen.doors.http.serving.routes import Call, HttpRoute, RouteNode
from duramen.doors.http.snapshots import routes as snapshots
from duramen.doors.problems import PartlyStored, problem_of
from duramen.metadata.decisions import check_name
from duramen.service.admission import AdmissionRules, Admitted
from duramen.service.forwarding.memory import Room

__all__ = ["ROUTES", "application"]


async def _openapi(_: Call) -> dict[str, Any]:
    return document(ROUTES)


ROUTES: Final[Sequence[HttpRoute]] = (
    *health.ROUTES,
    *nodes.ROUTES,
    *cluster.ROUTES,
    *configs.ROUTES,
    *streams.ROUTES,
    *records.ROUTES,
    *replication_wait.ROUTES,
    *snapshots.ROUTES,
    *leases.ROUTES,
    *spaces.ROUTES,
    *queues.ROUTES,
    *exports.ROUTES,
    *accounts.ROUTES,
    *inventory.ROUTES,
    *policies.ROUTES,
    *changes.ROUTES,
    *groups.ROUTES,
    HttpRoute(
        "GET",
        "/v1/openapi.json",
        _openapi,
        AdmissionRules(open_because="the description of the API is public"),
        "This description of all routes (OpenAPI 3.1)",
    ),
)
"""All there are; each is described in the module that has its handler."""


class _Any(Convertor[str]):
    """A path parameter with any characters; Starlette's `path` stops at a line end."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("any", _Any())

_SLASHED_NAME: Final = re.compile(rb"/v1/(?:streams|spaces)/([^/]*%2[fF][^/]*)")

_Endpoint = Callable[[Request], Awaitable[Response]]


class _Counting:
    """Counts responses by status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.counter("duramen_http_requests_total", str(message["status"])).value += 1
            await send(message)

        await self._app(scope, receive, counting)


class _StreamNames:
    """Refuses stream names with a slash: the decoded path would be another route, or none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = self._app
        found = _SLASHED_NAME.match(scope.get("raw_path") or b"")
        if found is not None:
            try:
                check_name(unquote_to_bytes(found[1]).decode(errors="replace"))
            except NameInvalid as error:
                answering = problems.answer_with(problem_of(error, scope["path"]))
        await answering(scope, receive, send)


def application(node: RouteNode, hosts: Hosts, room: Room) -> Starlette:
    """The ASGI application for requests to `node` that `hosts` admits; `room` bounds the memory of request bodies."""
    bodies = Bodies(room)
    by_path: dict[str, dict[str, _Endpoint]] = {}
    for route in ROUTES:
        by_path.setdefault(route.path, {})[route.method] = _endpoint(route, node, bodies)
    return Starlette(
        routes=[
            starlette.routing.Route(path, _choosing(endpoints), methods=list(endpoints))
            for path, endpoints in by_path.items()
        ],
        middleware=[
            Middleware(_Counting, metrics=node.metrics),
            Middleware(Guard, hosts=hosts),
            Middleware(_StreamNames),
        ],
        exception_handlers={
            DuramenError: problems.answer_to_error,
            PartlyStored: problems.answer_to_partly_stored,
            HTTPException: problems.answer_to_http,
            ClientDisconnect: problems.nobody_waits,
            Exception: problems.answer_to_unexpected,
        },
    )


async def _admit(route: HttpRoute, call: Call) -> None:
    """Resolve the names of a request and authorize its operations. Raises the reason of a refusal."""
    if not route.rules.needs:
        return
    future: asyncio.Future[Admitted | DuramenError] = asyncio.get_running_loop().create_future()
    cancel = call.service.admit(
        call.principal, route.rules, call, lambda verdict: None if future.done() else future.set_result(verdict)
    )
    try:
        verdict = await future
    finally:
        if cancel is not None:
            cancel()
    if isinstance(verdict, DuramenError):
        raise verdict
    call.admitted = verdict


def _choosing(endpoints: Mapping[str, _Endpoint]) -> _Endpoint:
    async def choose(request: Request) -> Response:
        # A path that takes GET takes HEAD too.
        return await endpoints[request.method if request.method in endpoints else "GET"](request)

    return choose


def _endpoint(route: HttpRoute, node: RouteNode, bodies: Bodies) -> _Endpoint:
    types = route.types()

    async def endpoint(request: Request) -> Response:
        call = Call(node, request)
        given: dict[str, object] = {}
        if "query" in types:
            given["query"] = read_query(request, types["query"])
        if not route.by_body:
            await _admit(route, call)
        if "body" in types:
            given["body"] = call.body = await bodies.read(
                request, types["body"], route.body_limit_bytes(call), route.lines, batches=route.batches,
                rows=route.rows,
            )  # fmt: skip
        if route.by_body:
            await _admit(route, call)
        answer = await route.handler(call, **given)
        if isinstance(answer, Response):
            return answer
        if answer is None:
            return Response(status_code=204)
        return Response(msgspec.json.encode(answer), call.status or 200, media_type="application/json")

    return endpoint
