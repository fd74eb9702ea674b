"""What a route of the HTTP door is, as data: the application and the OpenAPI document are both made from it.

Each module of routes exports `ROUTES`. A handler's signature is part of the data: it takes a `Call`, a `query` (a
struct with a field for each query parameter) and a `body` where it wants them, and returns what is answered as JSON.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_type_hints

from starlette.requests import Request

from duramen.base.errors import DuramenError, NodeStarting
from duramen.base.metrics import Metrics
from duramen.base.usage import Usage
from duramen.broker.broker import Broker
from duramen.broker.forwarding.forwarding import Forwarding
from duramen.doors.http.reading import Reading
from duramen.replication.reaching import Outcome

__all__ = ["LARGEST_BODY_BYTES", "Call", "Handler", "Method", "Node", "Route"]

Method = Literal["GET", "POST", "PATCH", "DELETE"]

LARGEST_BODY_BYTES: Final = 128 * 1024
"""What a body may have unless its route says otherwise."""


class Node:
    """The node as the door knows it; there is a broker once every door takes requests, until the node stops."""

    def __init__(self, metrics: Metrics, addresses: Mapping[str, str], progress: Callable[[], str]) -> None:
        self.metrics = metrics
        self.addresses = addresses
        self.broker: Broker | None = None
        self.forwarding: Forwarding | None = None
        self.cluster_id = ""
        self.progress = progress
        self.problem: Callable[[], str] = str
        self.usage: Callable[[], Usage] = Usage
        self.reading = Reading()
        self.waits: set[asyncio.Future[Outcome]] = set()


class Call:
    """One request on its way. `path` holds the parameters of the path, `status` is answered where it is set."""

    __slots__ = ("node", "path", "request", "status")

    def __init__(self, node: Node, request: Request) -> None:
        self.node = node
        self.request = request
        self.path: Mapping[str, str] = request.path_params
        self.status = 0

    @property
    def broker(self) -> Broker:
        """The broker. Raises NodeStarting where it is not there yet, or not any more."""
        if self.node.broker is None:
            raise NodeStarting(self.node.progress() or "starting")
        return self.node.broker

    @property
    def forwarding(self) -> Forwarding:
        """Who does what clients want, here or elsewhere. Raises NodeStarting as `broker`."""
        if self.node.broker is None or self.node.forwarding is None:
            raise NodeStarting("the node is starting or stopping")
        return self.node.forwarding


Handler = Callable[..., Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Route:
    """A method of a path. Parameters of the path are `{name}`, or `{name:any}` where they may have any character.

    `errors` are those that only this route answers with; `statuses` those of its good answers; `body_limit_bytes` is
    asked for each request.
    """

    method: Method
    path: str
    handler: Handler
    summary: str
    errors: tuple[type[DuramenError], ...] = ()
    statuses: tuple[int, ...] = (200,)
    body_limit_bytes: Callable[[Call], int] = lambda _: LARGEST_BODY_BYTES

    def types(self) -> Mapping[str, Any]:
        """The types of `query`, `body` and `return`, as far as the handler has them."""
        hints = get_type_hints(self.handler, include_extras=True)
        return {name: hints[name] for name in ("query", "body", "return") if name in hints}
