"""The table of methods: the request and response types, the deadline, and idempotence of each."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from duramen.base.errors import OutcomeUnknown, RequestInvalid, UnsupportedFeature
from duramen.base.ports import Buffer

__all__ = ["ANSWER_MS", "UNREADABLE", "Method", "MethodTable"]

Request = TypeVar("Request")
Response = TypeVar("Response")

ANSWER_MS: Final = 3_000
"""The deadline of most methods."""

UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""The exceptions of decoding hostile bytes."""


class Method(Generic[Request, Response]):
    """A request between nodes. Request and response are MessagePack of their types.

    `idempotent`: a repeat has no further effect, so it may be retried after a lost response.
    """

    __slots__ = ("_requests", "_responses", "deadline_ms", "idempotent", "name", "request", "response")

    def __init__(
        self, name: str, request: type[Request], response: type[Response], *, idempotent: bool,
        deadline_ms: int = ANSWER_MS,
    ) -> None:  # fmt: skip
        self.name = name
        self.request = request
        self.response = response
        self.idempotent = idempotent
        self.deadline_ms = deadline_ms
        self._requests = msgspec.msgpack.Decoder(request)
        self._responses = msgspec.msgpack.Decoder(response)

    def __repr__(self) -> str:
        return f"Method({self.name!r})"

    def decode_request(self, data: Buffer) -> Request:
        """A request of this method. Raises RequestInvalid."""
        try:
            return self._requests.decode(data)
        except UNREADABLE as error:
            raise RequestInvalid(f"a request of the method {self.name} cannot be read: {error}") from None

    def decode_response(self, data: Buffer) -> Response:
        """A response to this method. Raises OutcomeUnknown: the request may have had its effect."""
        try:
            return self._responses.decode(data)
        except UNREADABLE as error:
            raise OutcomeUnknown(f"a response to the method {self.name} cannot be read: {error}") from None


class MethodTable:
    """All methods, by their names."""

    def __init__(self, methods: Iterable[Method[Any, Any]]) -> None:
        """Raises ValueError where two have one name."""
        self._methods: dict[str, Method[Any, Any]] = {}
        for method in methods:
            if method.name in self._methods:
                raise ValueError(f"two methods have the name {method.name}")
            self._methods[method.name] = method

    def __iter__(self) -> Iterator[Method[Any, Any]]:
        return iter(self._methods.values())

    def has(self, name: str) -> bool:
        """Whether there is a method of that name."""
        return name in self._methods

    def get(self, name: str) -> Method[Any, Any]:
        """The method of that name. Raises UnsupportedFeature."""
        method = self._methods.get(name)
        if method is None:
            raise UnsupportedFeature(f"this node does not know the method {name!r}")
        return method
