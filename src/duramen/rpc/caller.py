"""Calls one node once, or several nodes once, and reports missing responses with the reasons."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from duramen.base.deadlines import Deadlines
from duramen.base.errors import DuramenError, NotLeader, OutcomeUnknown
from duramen.base.ports import Buffer, Clock
from duramen.rpc.methods import Method
from duramen.rpc.server import Done, Once, RpcServer
from duramen.rpc.wire import Wire, Wires

__all__ = ["Caller", "Gathered", "PeerTransport"]

Request = TypeVar("Request")
Response = TypeVar("Response")


class PeerTransport(Protocol):
    """The connections to other nodes."""

    def ask_node(self, node_id: int, body: bytes, done: Callable[[Buffer | None], None]) -> bool:
        """Send to another node; `done` gets the response, or None if the connection ends.

        False if there is no connection.
        """


class Gathered(NamedTuple, Generic[Response]):
    """The responses of nodes by their ids; `missing` has the errors of those without one."""

    answers: dict[int, Response]
    missing: dict[int, DuramenError]


class Caller:
    """Asks other nodes, and this one by its own server."""

    def __init__(
        self, node_id: int, way: PeerTransport, wires: Wires, server: RpcServer, clock: Clock, deadlines: Deadlines
    ) -> None:  # fmt: skip
        self.node_id = node_id
        self._way = way
        self._wires = wires
        self.server = server
        self.clock = clock
        self.deadlines = deadlines

    def over(self, way: PeerTransport) -> "Caller":
        """The same over other connections."""
        return Caller(self.node_id, way, self._wires, self.server, self.clock, self.deadlines)

    def call(
        self, node_id: int, method: Method[Request, Response], request: Request, done: Done[Response],
        within_ms: int | None = None,
    ) -> None:  # fmt: skip
        """Call a node; `done` gets its response or an error, once, within the method's deadline or `within_ms`.

        NotLeader if there is no connection: nothing was sent. OutcomeUnknown if no valid response came: the request may
        have had its effect.
        """
        once = Once(done)
        wait_ms = method.deadline_ms if within_ms is None else within_ms
        late = OutcomeUnknown(f"node {node_id} has not answered in {wait_ms} ms")
        deadline = self.deadlines.at(self.clock.monotonic_ms() + wait_ms, partial(once, late))
        once.over = deadline.cancel
        if node_id == self.node_id:
            self.server.call(method, request, once)
            return
        wire = self._wires.of_method(method)
        answered = partial(_answered, wire, method, node_id, once)
        if not self._way.ask_node(node_id, wire.encode_request(method, request), answered):
            once(NotLeader(f"there is no connection to node {node_id}"))

    def gather(
        self, method: Method[Request, Response], requests: Mapping[int, Request],
        done: Callable[[Gathered[Response]], None],
    ) -> None:  # fmt: skip
        """Call several nodes; `done` gets their responses, once, within the method's deadline.

        The response of this node itself has no deadline.
        """
        gathering = _Gathering(set(requests), done)
        for node_id, request in requests.items():
            if node_id == self.node_id:
                self.server.call(method, request, partial(gathering.put, node_id))
            else:
                self.call(node_id, method, request, partial(gathering.put, node_id))
        gathering.look()


class _Gathering(Generic[Response]):
    def __init__(self, waiting: set[int], done: Callable[[Gathered[Response]], None]) -> None:
        self._waiting = waiting
        self._gathered = Gathered[Response]({}, {})
        self._done: Callable[[Gathered[Response]], None] | None = done

    def put(self, node_id: int, outcome: Response | DuramenError) -> None:
        self._waiting.discard(node_id)
        if isinstance(outcome, DuramenError):
            self._gathered.missing[node_id] = outcome
        else:
            self._gathered.answers[node_id] = outcome
        self.look()

    def look(self) -> None:
        if not self._waiting and self._done is not None:
            done, self._done = self._done, None
            done(self._gathered)


def _answered(
    wire: Wire, method: Method[Request, Response], node_id: int, done: Done[Response], body: Buffer | None
) -> None:
    outcome: Response | DuramenError
    if body is None:
        outcome = OutcomeUnknown(f"node {node_id} was asked, and the connection ended before it answered")
    else:
        outcome = wire.decode_response(method, body)
    done(outcome)
