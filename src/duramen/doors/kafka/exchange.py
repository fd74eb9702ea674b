"""One request and its answer."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

from duramen.base.ports import Buffer
from duramen.codec.kafka.header import RequestHeader, encode_response
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.schema import Message
from duramen.doors.kafka.measuring import error_codes
from duramen.storage.reader import Slice

__all__ = ["Answer", "Channel", "Exchange", "StreamedAnswer"]


class StreamedAnswer(NamedTuple):
    """An answer whose records are read from the log as the socket takes them."""

    parts: Iterator[Buffer | Slice]


Answer = bytes | StreamedAnswer | None
"""What goes to the socket; None where the request wants no answer."""


class Channel(Protocol):
    """The connection that a request came from."""

    peer_host: str

    def answer_ready(self, exchange: "Exchange") -> None:
        """The exchange has its answer: it may go out once those before it have."""


class Exchange:
    """A request that was read, and the place of its answer in the order of the connection's answers."""

    __slots__ = ("_channel", "answer", "answered", "began_s", "errors", "frame", "header", "size")

    def __init__(self, channel: Channel, header: RequestHeader, frame: memoryview, size: int, began_s: float) -> None:
        """`began_s` is when it was whole, by the clock's fine seconds."""
        self._channel = channel
        self.began_s = began_s
        self.errors: set[int] | tuple[()] = ()
        self.header = header
        self.frame = frame
        self.size = size
        self.answer: Answer = None
        self.answered = False

    @property
    def version(self) -> int:
        """The version of the request."""
        return self.header.version

    @property
    def client_host(self) -> str:
        """Where the client is."""
        return self._channel.peer_host

    def message(self) -> Message:
        """The request's message. Raises RequestInvalid."""
        return REQUESTS[self.header.api_key].decode(self.header.version, self.frame, self.header.end)

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
        self._channel.answer_ready(self)
