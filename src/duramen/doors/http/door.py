"""The HTTP door: health and metrics from the first moment on, everything else once the node is ready."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duramen import __version__
from duramen.base import errors
from duramen.base.errors import DuramenError, RequestInvalid
from duramen.base.metrics import Metrics
from duramen.broker.broker import Broker
from duramen.controller.decisions import Definition
from duramen.doors.completion import completion
from duramen.doors.http.server import RECEIVE_S, Server, configured
from duramen.doors.http.streams import config_texts, describe, warnings_for
from duramen.doors.http.types import NodeInfo, Problem, StreamChange, StreamWish

__all__ = ["HttpDoor"]

T = TypeVar("T")

_LARGEST_BODY_BYTES: Final = 128 * 1024
_STATUS: Final[dict[type[DuramenError], int]] = {
    errors.StreamNotFound: 404,
    errors.StreamExists: 409,
    errors.StreamDiffers: 409,
    errors.NodeStopping: 503,
    errors.StorageFull: 507,
    errors.StorageFailed: 503,
}


class _Counting:
    """Counts answers by status."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.counter("duramen_http_requests_total", str(message["status"])).value += 1
            await send(message)

        await self._app(scope, receive, counting)


class HttpDoor:
    """A listening socket and what it answers."""

    def __init__(self, metrics: Metrics, addresses: dict[str, str]) -> None:
        self._metrics = metrics
        self._addresses = addresses
        self._broker: Broker | None = None
        self._cluster_id = ""
        self._problem: Callable[[], str] = str
        self.progress: Callable[[], str] = str  # how far a start has got, until the node is ready
        self._server: Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._app = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._render_metrics),
                Route("/v1/node", self._node),
                Route("/v1/streams", self._list_streams, methods=["GET"]),
                Route("/v1/streams", self._create_stream, methods=["POST"]),
                Route("/v1/streams/{name}", self._describe_stream, methods=["GET"]),
                Route("/v1/streams/{name}", self._change_stream, methods=["PATCH"]),
                Route("/v1/streams/{name}", self._delete_stream, methods=["DELETE"]),
            ],
            middleware=[Middleware(_Counting, metrics=metrics)],
            exception_handlers={
                DuramenError: _duramen_problem,
                HTTPException: _http_problem,
                ClientDisconnect: _nobody_waits,
            },
        )

    async def start(self, listeners: list[socket.socket]) -> str:
        """Answer on bound sockets; returns the address of the first."""
        for listener in listeners:
            listener.listen(128)
        self._server = Server(configured(self._app))
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=listeners))
        host, port = listeners[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def ready(self, broker: Broker, cluster_id: str, problem: Callable[[], str]) -> None:
        """The broker is there; `problem` says why not every door takes requests, empty where they do."""
        self._problem = problem
        self._broker = broker
        self._cluster_id = cluster_id

    async def stop(self) -> None:
        """Answer what was asked and close."""
        self._broker = None
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task

    # -- health -------------------------------------------------------------------------------------

    async def _healthz(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, _: Request) -> Response:
        if self._broker is None:
            return PlainTextResponse(f"{self.progress() or 'starting'}\n", 503)
        problem = self._problem()
        if problem:
            return PlainTextResponse(f"{problem}\n", 503)
        return PlainTextResponse("ready\n")

    async def _render_metrics(self, _: Request) -> Response:
        if self._broker is not None:
            self._broker.groups.measure()
        # Prometheus' client is a fifteenth of the time that a node takes to start: the first scrape brings it.
        from duramen.doors.http import exposition

        return Response(exposition.render(self._metrics), media_type=exposition.CONTENT_TYPE_LATEST)

    # -- the API ------------------------------------------------------------------------------------

    def _ready_broker(self) -> Broker:
        if self._broker is None:
            raise HTTPException(503, "the node is starting or stopping")
        return self._broker

    async def _node(self, _: Request) -> Response:
        broker = self._ready_broker()
        return _json(NodeInfo(__version__, broker.node_id, self._cluster_id, dict(self._addresses)))

    async def _list_streams(self, _: Request) -> Response:
        broker = self._ready_broker()
        return _json({"streams": [describe(stream, broker.gaps) for stream in broker.streams]})

    async def _describe_stream(self, request: Request) -> Response:
        broker = self._ready_broker()
        return _json(describe(broker.streams.get(request.path_params["name"]), broker.gaps))

    async def _create_stream(self, request: Request) -> Response:
        broker = self._ready_broker()
        wish = await _body(request, StreamWish)
        partitions = wish.partitions
        if partitions is None:
            partitions = 1 if wish.subjects else broker.settings.integer("num.partitions")
        existed = broker.streams.find(wish.name) is not None
        definition = Definition(wish.name, partitions, config_texts(wish.config), tuple(wish.subjects))
        await completion(lambda done: broker.create_stream(definition, done, idempotent=True))
        info = describe(broker.streams.get(wish.name), broker.gaps)
        info.created = not existed
        info.warnings = warnings_for(broker.streams.get(wish.name))
        return _json(info, 200 if existed else 201)

    async def _change_stream(self, request: Request) -> Response:
        broker = self._ready_broker()
        name = request.path_params["name"]
        change = await _body(request, StreamChange)
        stream = broker.streams.get(name)
        texts = {
            key: None if value is None else config_texts({key: value})[key] for key, value in change.config.items()
        }
        wanted = change.partitions if change.partitions != len(stream.partitions) else None
        # Both are checked before either is done: what is refused changes nothing.
        if wanted is not None:
            broker.check_partitions(name, wanted)
        if texts:
            await completion(lambda done: broker.configure_stream(name, texts, done))
        if wanted is not None:
            await completion(lambda done: broker.add_partitions(name, wanted, done))
        return _json(describe(broker.streams.get(name), broker.gaps))

    async def _delete_stream(self, request: Request) -> Response:
        broker = self._ready_broker()
        stream = broker.streams.get(request.path_params["name"])
        if stream.internal:
            raise RequestInvalid(f"{stream.name} is the broker's own")
        await completion(lambda done: broker.delete_stream(stream.name, done))
        return Response(status_code=204)


def _json(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


async def _body(request: Request, type_: type[T]) -> T:
    try:
        async with asyncio.timeout(RECEIVE_S):
            content = await _received(request)
    except TimeoutError:
        raise HTTPException(408, f"the body was not whole within {RECEIVE_S:g} s") from None
    try:
        return msgspec.json.decode(content, type=type_)
    except msgspec.MsgspecError as error:
        raise RequestInvalid(f"the body does not fit: {error}") from None


async def _received(request: Request) -> bytearray:
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LARGEST_BODY_BYTES:
            raise HTTPException(413, f"a body has at most {_LARGEST_BODY_BYTES} bytes")
    return content


def _problem(problem: Problem) -> Response:
    return Response(msgspec.json.encode(problem), problem.status, media_type="application/problem+json")


async def _duramen_problem(_: Request, error: Exception) -> Response:
    status = _STATUS.get(type(error), 400) if isinstance(error, DuramenError) else 500
    id_ = error.id if isinstance(error, DuramenError) else "error"
    return _problem(Problem(id_, id_.replace("-", " "), status, str(error)))


async def _http_problem(_: Request, error: Exception) -> Response:
    if not isinstance(error, HTTPException):
        raise error
    return _problem(Problem("http", error.detail, error.status_code, error.detail))


async def _nobody_waits(_: Request, __: Exception) -> Response:
    # The client closed before its body was whole: what is answered goes nowhere.
    return Response(status_code=400)
