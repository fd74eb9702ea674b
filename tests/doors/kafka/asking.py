"""Raw requests in any version, for what clients do not send."""

import socket
import struct
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self

from duramen.codec.kafka.header import encode_request, response_body_start
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

__all__ = ["Asking", "codes"]

_WAIT_S: Final = 60.0


class Asking:
    """A connection that asks in whatever version it is told to."""

    def __init__(self, node: NodeProcess, client_id: str = "asking") -> None:
        host, _, port = node.kafka.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), _WAIT_S)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()

    def ask(self, api: ApiKey, version: int, message: Mapping[str, object]) -> Message:
        """What is answered."""
        frame, start = self.ask_bytes(api, version, REQUESTS[api].encode(version, message))
        return RESPONSES[api].decode(version, frame, start)

    def ask_bytes(self, api: ApiKey, version: int, body: bytes) -> tuple[memoryview, int]:
        """The frame of the answer, and where its body begins."""
        self.send(api, version, body)
        return self.receive(api, version)

    def send(self, api: ApiKey, version: int, body: bytes) -> None:
        """Send a request."""
        self._correlation_id += 1
        self._socket.sendall(encode_request(api, version, self._correlation_id, self._client_id, body))

    def send_raw(self, api: int, version: int, rest: bytes) -> None:
        """Send a request with a version that there may not be: `rest` is what follows the client's name."""
        head = struct.pack(">hhi", api, version, 1) + b"\0\x01a"
        self._socket.sendall(struct.pack(">i", len(head) + len(rest)) + head + rest)

    def frame(self) -> memoryview:
        """The frame of the next answer."""
        return memoryview(self._take(int.from_bytes(self._take(4), "big")))

    def receive(self, api: ApiKey, version: int) -> tuple[memoryview, int]:
        """The next answer."""
        frame = self.frame()
        return frame, response_body_start(api, version, frame)

    def _take(self, size: int) -> bytes:
        parts = b""
        while len(parts) < size:
            part = self._socket.recv(size - len(parts))
            assert part, "the node closed the connection"
            parts += part
        return parts

    def closed(self) -> bool:
        """Whether the node ends the connection, without another byte."""
        return not self._socket.recv(1)


def codes(results: Sequence[Mapping[str, Any]]) -> list[int]:
    """The error codes of an answer's entries, in their order."""
    return [one["error_code"] for one in results]
