"""A minimal blocking connection to a NATS server."""

import json
import os
import socket
from collections.abc import Mapping
from typing import Any, Final, Self

from duramen.base.errors import RequestInvalid, ServerUnreachable
from duramen.codec.nats import (
    PING,
    PONG,
    Connect,
    Info,
    Message,
    Parser,
    ServerError,
    Signal,
    encode_connect,
    encode_pub,
    encode_sub,
)

__all__ = ["BenchNatsConnection"]

_TIMEOUT_S: Final = 30.0
_CHUNK_BYTES: Final = 1024 * 1024


class BenchNatsConnection:
    """Connected and subscribed to `inbox`, a subject of its own. Every call may raise ServerUnreachable."""

    def __init__(self, address: str) -> None:
        """`address` is HOST:PORT."""
        host, _, port = address.rpartition(":")
        self.inbox = f"_INBOX.{os.urandom(8).hex()}"
        self._address = address
        self._parser = Parser()
        self._messages: list[Message] = []
        self._info = False
        self._pongs = 0
        try:
            self.socket = socket.create_connection((host, int(port)), _TIMEOUT_S)
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError as error:
            raise ServerUnreachable(f"{address} cannot be reached: {error.strerror or error}") from None
        connect = Connect(
            verbose=False, pedantic=False, echo=True, headers=True, no_responders=True, protocol=1,
            lang="python", version="0", name="duramen-bench",
        )  # fmt: skip
        try:
            while not self._info:
                self._receive()
            self.send(encode_connect(connect) + encode_sub(self.inbox.encode(), 1) + PING)
            while not self._pongs:
                self._receive()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the socket back."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send commands."""
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from None

    def messages(self) -> list[Message]:
        """Messages to the inbox that came; waits for the first."""
        while not self._messages:
            self._receive()
        found, self._messages = self._messages, []
        return found

    def request(self, subject: str, document: Mapping[str, object]) -> Any:
        """Ask a JSON service, such as JetStream's API. Raises RequestInvalid with its error."""
        self.send(encode_pub(subject.encode(), json.dumps(document).encode(), self.inbox.encode()))
        _, _, head, payload = self.messages()[0]
        if head is not None or not payload:
            raise RequestInvalid(f"nobody at {self._address} answers {subject}")
        answer = json.loads(payload)
        if "error" in answer:
            raise RequestInvalid(f"{subject}: {answer['error'].get('description', answer['error'])}")
        return answer

    def _receive(self) -> None:
        try:
            data = self.socket.recv(_CHUNK_BYTES)
        except OSError as error:
            raise self._lost(error) from None
        if not data:
            raise ServerUnreachable(f"{self._address} closed the connection")
        for event in self._parser.feed(data):
            if isinstance(event, list):
                self._messages += event
            elif isinstance(event, Info):
                self._info = True
            elif event is Signal.PING:
                self.send(PONG)
            elif event is Signal.PONG:
                self._pongs += 1
            elif isinstance(event, ServerError):
                raise RequestInvalid(f"the NATS server at {self._address} says: {event.text}")

    def _lost(self, error: OSError) -> ServerUnreachable:
        why = "it did not answer in time" if isinstance(error, TimeoutError) else error.strerror or error
        return ServerUnreachable(f"the connection to {self._address} is lost: {why}")
