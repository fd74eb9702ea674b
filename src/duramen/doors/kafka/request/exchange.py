"""One request and its response."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from duramen.base.ports import Buffer
from duramen.base.principal import ANONYMOUS, Principal
from duramen.codec.kafka.header import RequestHeader, encode_response
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.request.metrics import error_codes
from duramen.service.admission import NOTHING_NEEDED, Admitted
from duramen.storage.segment.reader import Slice

__all__ = ["Answer", "Channel", "Exchange", "HotChannel", "StreamedAnswer"]

_FEW_ELEMENTS: Final = 64
_ELEMENT_BYTES: Final = 512  # measured: the memory of a decoded array element, and of handling it


class StreamedAnswer(NamedTuple):
    """An answer whose records are read from the log as the socket takes them."""

    parts: Iterator[Buffer | Slice]


Answer = bytes | StreamedAnswer | None
"""The bytes for the socket; None if the request has no response."""


class Channel(Protocol):
    """The connection that a request came from."""

    peer_host: str

    def weighed(self, size: int) -> None:
        """A request that is not answered yet holds `size` bytes more than its own."""

    def answer_ready(self, exchange: "Exchange") -> None:
        """The exchange has its answer: it may go out once those before it have."""

    def hold(self) -> None:
        """Handle no request after the newest one until `go_on`."""

    def go_on(self, action: Callable[[], None]) -> None:
        """Run `action` for the newest request, and handle later ones; nothing if the client has disconnected."""


class HotChannel(Channel, Protocol):
    """A connection as the hot path of Produce sees it."""

    def came(self, exchange: "Exchange") -> None:
        """A request is complete: its response follows those of earlier requests."""

    def send_ready(self) -> None:
        """Send the answers that are next."""


class Exchange:
    """A request that was read, and the place of its answer in the order of the connection's answers."""

    __slots__ = (
        "_channel",
        "abandoned",
        "admitted",
        "answer",
        "answered",
        "api_key",
        "began_s",
        "client_id",
        "errors",
        "frame",
        "header",
        "principal",
        "request",
        "size",
        "throttle_ms",
        "version",
    )

    def __init__(
        self, channel: Channel, header: RequestHeader, frame: memoryview, size: int, began_s: float,
        principal: Principal = ANONYMOUS,
    ) -> None:  # fmt: skip
        """`began_s` is when it was whole, by the clock's fine seconds."""
        self._channel = channel
        self.principal = principal
        self.request: Any = None
        """The result of its API's `decode`."""
        self.admitted: Admitted = NOTHING_NEEDED
        """The topics that it names, and the refused ones."""
        self.abandoned: Callable[[], object] | None = None
        """Called where the connection goes while the request waits for its answer."""
        self.began_s = began_s
        self.errors: set[int] | tuple[()] = ()
        self.header = header
        self.api_key = header.api_key
        self.version = header.version
        self.client_id = header.client_id or ""
        """The client id."""
        self.frame = frame
        self.size = size
        self.answer: Answer = None
        self.answered = False
        self.throttle_ms = 0  # how long nothing more is read from its connection, because a quota is exceeded

    @property
    def channel(self) -> Channel:
        """The connection it came from."""
        return self._channel

    @property
    def client_host(self) -> str:
        """The client's host."""
        return self._channel.peer_host

    def message(self) -> Message:
        """The request's message, decoded once. Raises RequestInvalid."""
        if self.request is None:
            header = self.header
            self.request, elements = REQUESTS[header.api_key].decode_request(header.version, self.frame, header.end)
            self.decoded(elements)
        message: Message = self.request
        return message

    def decoded(self, elements: int) -> None:
        """Count the elements of the request's arrays, which take more memory than its bytes until the response."""
        if elements > _FEW_ELEMENTS:
            self.weigh(elements * _ELEMENT_BYTES)

    def weigh(self, size: int) -> None:
        """Count `size` bytes more that the request holds until its answer has gone."""
        self.size += size
        self._channel.weighed(size)

    def failed(self, code: int) -> None:
        """Note an error code that the encoded answer will have."""
        self.errors = {*self.errors, int(code)}

    def reply(self, message: Message) -> None:
        """Answer with a message."""
        header = self.header
        self.errors = error_codes(message)
        self.reply_body(RESPONSES[header.api_key].encode(header.version, message))

    def reply_body(self, body: bytes) -> None:
        """Answer with an encoded message."""
        header = self.header
        self.send(encode_response(header.api_key, header.version, header.correlation_id, body))

    def reply_streamed(self, parts: Sequence[Buffer | Slice]) -> None:
        """Answer with bytes and slices of logs, one after another."""
        self.send(StreamedAnswer(iter(parts)))

    def send(self, answer: Answer) -> None:
        """The answer as it goes to the socket, once; it waits until those before it have gone."""
        self.answer = answer
        self.answered = True
        self.frame = memoryview(b"")
        self.request = None
        self.admitted = NOTHING_NEEDED
        self._channel.answer_ready(self)
