"""Requests and responses as bytes: a version byte, then the method's name and the request, or an error or response.

    request:  C1 [name, request]
    response: C1 [error or nil, response or nil]

MessagePack never uses the byte C1, so no body of an older node begins with it.
"""

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

from duramen.base.errors import DuramenError, NodeStarting, OutcomeUnknown, RequestInvalid
from duramen.base.ports import Buffer
from duramen.rpc.errors import Refused
from duramen.rpc.methods import UNREADABLE, Method, MethodTable

__all__ = ["VERSION", "ReceivedRequest", "TableWire", "Wire", "Wires"]

Request = TypeVar("Request")
Response = TypeVar("Response")

VERSION: Final = b"\xc1"

_encoder: Final = msgspec.msgpack.Encoder()
_requests: Final = msgspec.msgpack.Decoder(tuple[str, msgspec.Raw])
_responses: Final = msgspec.msgpack.Decoder(tuple[Refused | None, msgspec.Raw])


class ReceivedRequest(NamedTuple):
    """A request that was read."""

    method: Method[Any, Any]
    request: Any


class Wire(Protocol):
    """One encoding of methods."""

    def knows(self, method: Method[Any, Any]) -> bool:
        """Whether the encoding has that method."""

    def encode_request(self, method: Method[Request, Response], request: Request) -> bytes:
        """The body of a request."""

    def decode_request(self, body: Buffer) -> ReceivedRequest:
        """The request in a body. Raises RequestInvalid, or UnsupportedFeature where its method is unknown."""

    def encode_response(self, method: Method[Request, Response], outcome: Response | DuramenError) -> bytes:
        """The body of a response."""

    def decode_response(self, method: Method[Request, Response], body: Buffer) -> Response | DuramenError:
        """The response in a body, or the error in it; OutcomeUnknown where it cannot be read."""

    def encode_refusal(self, error: DuramenError) -> bytes:
        """The body of a response to a request that was not read."""


class TableWire:
    """The encoding of this version."""

    def __init__(self, table: MethodTable) -> None:
        self._table = table

    def knows(self, method: Method[Any, Any]) -> bool:
        return self._table.has(method.name)

    def encode_request(self, method: Method[Request, Response], request: Request) -> bytes:
        return VERSION + _encoder.encode((method.name, request))

    def decode_request(self, body: Buffer) -> ReceivedRequest:
        try:
            name, data = _requests.decode(memoryview(body)[len(VERSION) :])
        except UNREADABLE as error:
            raise RequestInvalid(f"a request of another node cannot be read: {error}") from None
        method = self._table.get(name)
        return ReceivedRequest(method, method.decode_request(data))

    def encode_response(self, method: Method[Request, Response], outcome: Response | DuramenError) -> bytes:
        del method
        if isinstance(outcome, DuramenError):
            return self.encode_refusal(outcome)
        return VERSION + _encoder.encode((None, outcome))

    def decode_response(self, method: Method[Request, Response], body: Buffer) -> Response | DuramenError:
        data = memoryview(body)
        if not data:
            return NodeStarting("the node that was asked is not ready yet")
        if bytes(data[: len(VERSION)]) != VERSION:
            return OutcomeUnknown(f"a response to the method {method.name} is of another version")
        try:
            refused, response = _responses.decode(data[len(VERSION) :])
            return method.decode_response(response) if refused is None else refused.error()
        except UNREADABLE as error:
            return OutcomeUnknown(f"a response to the method {method.name} cannot be read: {error}")
        except OutcomeUnknown as error:
            return error

    def encode_refusal(self, error: DuramenError) -> bytes:
        return VERSION + _encoder.encode((Refused.of(error), None))


class Wires(NamedTuple):
    """The encodings that this node reads. `speaks_table`: whether all nodes of the cluster read the table's."""

    table: TableWire
    older: Wire
    speaks_table: Callable[[], bool]

    def of_method(self, method: Method[Any, Any]) -> Wire:
        """The encoding in which this node asks now: the table's too for a method that older nodes do not know."""
        return self.table if self.speaks_table() or not self.older.knows(method) else self.older

    def of(self, body: Buffer) -> Wire:
        """The encoding of a request."""
        return self.table if bytes(memoryview(body)[: len(VERSION)]) == VERSION else self.older
