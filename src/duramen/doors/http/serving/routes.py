"""Routes of the HTTP door as data, from which the application and the OpenAPI document are built.

Each module of routes exports `ROUTES`. A handler's signature is part of the data: it takes a `Call`, optionally a
`query` (a struct with a field per query parameter) and a `body`, and returns the response as a JSON type.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from starlette.requests import Request
from starlette.responses import Response

from duramen.base.errors import DuramenError, NodeStarting, StreamNotFound
from duramen.base.metrics import Metrics
from duramen.base.principal import ANONYMOUS, Principal
from duramen.base.usage import Usage
from duramen.doors.http.reads import HttpReads
from duramen.doors.http.serving.rows import BodyRows, RowFormats
from duramen.replication.replication_wait import ReplicationWaitOutcome
from duramen.service.admission import NOTHING_NEEDED, AdmissionRules, Admitted, Need, Refuses, Service, cluster
from duramen.service.authorize import Access, Operation, ResourceType
from duramen.service.broker import Broker
from duramen.service.forwarding.forwarding import Forwarding
from duramen.service.resolve import Found, Topic, TopicKey, stream_in

__all__ = [
    "LARGEST_BODY_BYTES",
    "Call",
    "Handler",
    "HttpRoute",
    "Method",
    "RouteNode",
    "on_cluster",
    "on_group",
    "on_topic",
    "topics_named",
]

Method = Literal["GET", "POST", "PATCH", "DELETE"]

LARGEST_BODY_BYTES: Final = 128 * 1024
"""The largest body unless its route has its own limit."""


class RouteNode:
    """The node as the door knows it; it has a broker from when every door accepts requests until the node stops."""

    def __init__(self, metrics: Metrics, addresses: Mapping[str, str], progress: Callable[[], str]) -> None:
        self.metrics = metrics
        self.addresses = addresses
        self.broker: Broker | None = None
        self.service: Service | None = None
        self.forwarding: Forwarding | None = None
        self.cluster_id = ""
        self.progress = progress
        self.problem: Callable[[], str] = str
        self.usage: Callable[[], Usage] = Usage
        self.reading = HttpReads()
        self.waits: set[asyncio.Future[ReplicationWaitOutcome]] = set()
        self.polls: set[asyncio.Future[Any]] = set()


class Call:
    """One request in progress. `path` has the path parameters; `status` overrides the response status.

    `body` holds the body once it is read; `admitted` has the resolved topics of the request, and the refused ones.
    """

    __slots__ = ("admitted", "body", "node", "path", "principal", "request", "status")

    def __init__(self, node: RouteNode, request: Request) -> None:
        self.node = node
        self.request = request
        self.path: Mapping[str, str] = request.path_params
        self.status = 0
        self.principal: Principal = ANONYMOUS
        self.body: Any = None
        self.admitted: Admitted = NOTHING_NEEDED

    @property
    def broker(self) -> Broker:
        """The broker. Raises NodeStarting if it is not ready or already stopped."""
        if self.node.broker is None:
            raise NodeStarting(self.node.progress() or "starting")
        return self.node.broker

    @property
    def forwarding(self) -> Forwarding:
        """Executes requests here or on other nodes. Raises NodeStarting as `broker`."""
        if self.node.broker is None or self.node.forwarding is None:
            raise NodeStarting("the node is starting or stopping")
        return self.node.forwarding

    @property
    def service(self) -> Service:
        """The admission of requests. Raises NodeStarting as `broker`."""
        if self.node.broker is None or self.node.service is None:
            raise NodeStarting(self.node.progress() or "starting")
        return self.node.service

    @property
    def topic(self) -> Topic:
        """The topic in the path. Raises StreamNotFound, TopicNotAuthorized, NameNotResolved."""
        return self.admitted.topics.get(self.path["name"])

    async def find(self, name: str) -> Topic:
        """A topic with its present state. Raises StreamNotFound."""
        future: asyncio.Future[Found] = asyncio.get_running_loop().create_future()
        self.service.resolver.resolve([name], lambda found: None if future.done() else future.set_result(found))
        topic = stream_in(await future, name)
        if topic is None:
            raise StreamNotFound(f"there is no stream {name}")
        return topic


Handler = Callable[..., Awaitable[object]]


def topics_named(
    operation: Operation, names: Callable[[Call], Iterable[TopicKey]], refuses: Refuses = Refuses.TOPIC,
    *instead: Access,
) -> Need[Call]:  # fmt: skip
    """An access to each of these topics."""
    return Need(Access(operation, ResourceType.TOPIC), names, refuses, instead)


def on_topic(*operations: Operation) -> AdmissionRules[Call]:
    """Accesses to the topic in the path."""
    return AdmissionRules(*(topics_named(operation, lambda call: (call.path["name"],)) for operation in operations))


def on_group(operation: Operation, *needs: Need[Call]) -> AdmissionRules[Call]:
    """An access to the group in the path, which may read live topics."""
    access = Access(operation, ResourceType.GROUP)
    return AdmissionRules(Need(access, lambda call: (call.path["id"],), Refuses.REQUEST), *needs, only_reads=True)


def on_cluster(operation: Operation) -> AdmissionRules[Call]:
    """An access to the cluster."""
    return AdmissionRules(cluster(operation))


@dataclass(frozen=True, slots=True)
class HttpRoute:
    """A method of a path. Path parameters are `{name}`, or `{name:any}` if they may contain any character.

    `rules` state the accesses that requests need; with `by_body` they depend on the body, which is read first. `errors`
    are those that only this route returns, `statuses` its success statuses; `body_limit_bytes` is evaluated for each
    request. With `lines` the body may be NDJSON, whose lines are the entries of that field. With `batches` it may be
    record batches, which the handler receives as bytes; or in a format of `rows` with any length, received by the
    handler.
    """

    method: Method
    path: str
    handler: Handler
    rules: AdmissionRules[Call]
    summary: str
    errors: tuple[type[DuramenError], ...] = ()
    statuses: tuple[int, ...] = (200,)
    body_limit_bytes: Callable[[Call], int] = lambda _: LARGEST_BODY_BYTES
    by_body: bool = False
    formats: tuple[str, ...] = ()
    """Media types that it answers with besides JSON, where the header Accept names one."""
    lines: str = ""
    batches: bool = False
    rows: RowFormats = field(default_factory=dict)

    def types(self) -> Mapping[str, Any]:
        """The types of `query`, `body` and `return`, as far as the handler has them."""
        hints = get_type_hints(self.handler, include_extras=True)
        if self.formats:
            hints["return"] = next(one for one in get_args(hints["return"]) if one is not Response)
        if self.batches:
            hints["body"] = next(one for one in get_args(hints["body"]) if one is not bytearray)
        if self.rows:
            hints["body"] = next(one for one in get_args(hints["body"]) if get_origin(one) is not BodyRows)
        return {name: hints[name] for name in ("query", "body", "return") if name in hints}
