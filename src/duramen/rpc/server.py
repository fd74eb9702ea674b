"""Dispatches requests of other nodes and of this one to the handlers of their methods."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from duramen.base.errors import DuramenError, NodeStarting
from duramen.base.ports import Buffer
from duramen.rpc.methods import Method
from duramen.rpc.wire import Wires

__all__ = ["Done", "Handler", "Once", "RpcServer"]

Request = TypeVar("Request")
Response = TypeVar("Response")

Done = Callable[[Response | DuramenError], None]
Handler = Callable[[Request, Done[Response]], None]
"""Answers a request, now or later; raises a DuramenError as if it had answered it."""


class Once(Generic[Response]):
    """Calls `done` with the first outcome, and no second time."""

    __slots__ = ("_done", "over")

    def __init__(self, done: Done[Response]) -> None:
        self._done: Done[Response] | None = done
        self.over: Callable[[], None] = _nothing

    @property
    def settled(self) -> bool:
        """Whether there was an outcome."""
        return self._done is None

    def __call__(self, outcome: Response | DuramenError) -> None:
        done, self._done = self._done, None
        if done is not None:
            self.over()
            done(outcome)


class RpcServer:
    """The handlers of this node, by the methods' names."""

    def __init__(self, wires: Wires) -> None:
        self._wires = wires
        self._handlers: dict[str, Handler[Any, Any]] = {}

    def handle(self, method: Method[Request, Response], handler: Handler[Request, Response]) -> None:
        """Let `handler` answer the requests of a method; before, they get NodeStarting."""
        self._handlers[method.name] = handler

    def call(self, method: Method[Request, Response], request: Request, done: Done[Response]) -> None:
        """Answer a request of this node."""
        handler = self._handlers.get(method.name)
        if handler is None:
            done(NodeStarting("the node that was asked is not ready yet"))
            return
        once = Once(done)
        try:
            handler(request, once)
        except DuramenError as error:
            if once.settled:
                raise
            once(error)

    def serve(self, body: Buffer, answer: Callable[[bytes], None]) -> None:
        """Answer a request of another node, with the error where it cannot be read."""
        wire = self._wires.of(body)
        try:
            method, request = wire.decode_request(body)
        except DuramenError as error:
            answer(wire.encode_refusal(error))
            return
        self.call(method, request, lambda outcome: answer(wire.encode_response(method, outcome)))

    def refusal(self, body: Buffer, error: DuramenError) -> bytes:
        """The response to a request that is refused before it is read."""
        return self._wires.of(body).encode_refusal(error)


def _nothing() -> None:
    """There is no deadline."""
