"""One connection to one broker: requests and responses in order. Blocking, with a deadline on everything."""

import socket
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from duramen.base.errors import RequestInvalid, ServerUnreachable, UnsupportedFeature
from duramen.base.hosts import host_port
from duramen.base.ports import Buffer
from duramen.client.interrupt import Interrupt, open_socket
from duramen.codec.kafka.header import encode_request, response_body_start
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.schema import Message
from duramen.codec.kafka.versions import APIS, ApiKey

__all__ = ["Answer", "BrokerConnection"]

_LARGEST_ANSWER_BYTES: Final = 512 * 1024 * 1024
_API_VERSIONS_VERSION: Final = 3
# Older versions are of before topic ids, or cannot be written by `codec.kafka`.
_OLDEST: Final[Mapping[int, int]] = MappingProxyType({ApiKey.PRODUCE: 9, ApiKey.FETCH: 13, ApiKey.METADATA: 12})

Answer = tuple[int, memoryview, int]
"""The version that was asked in, the frame, and where its body begins."""


class BrokerConnection:
    """An open connection. After a ServerUnreachable it is closed for good."""

    def __init__(
        self, host: str, port: int, *, client_id: str, timeout_s: float, interrupt: Interrupt | None = None
    ) -> None:
        """Connect and ask for versions. Raises ServerUnreachable naming host and port, within `timeout_s`."""
        self.address = host_port(host, port)
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._correlation_id = 0
        self._waiting: dict[int, tuple[ApiKey, int]] = {}
        self._arrived: dict[int, Answer] = {}
        self._versions: dict[int, tuple[int, int]] = {}
        self._interrupt = Interrupt() if interrupt is None else interrupt
        try:
            self._socket = open_socket(host, port, timeout_s, self._interrupt)
        except TimeoutError:
            raise ServerUnreachable(f"{self.address} did not answer within {round(timeout_s, 2):g} s") from None
        except OSError as error:
            raise ServerUnreachable(f"{self.address} cannot be reached: {error.strerror or error}") from None
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._negotiate()
        except BaseException:
            self.close()
            raise

    def _negotiate(self) -> None:
        asked: Message = {"client_software_name": "duramen", "client_software_version": "0"}
        body = REQUESTS[ApiKey.API_VERSIONS].encode(_API_VERSIONS_VERSION, asked)
        _, frame, start = self.receive(self.send(ApiKey.API_VERSIONS, [body], version=_API_VERSIONS_VERSION))
        try:
            answer = RESPONSES[ApiKey.API_VERSIONS].decode(_API_VERSIONS_VERSION, frame, start)
        except RequestInvalid:
            raise UnsupportedFeature(f"the broker at {self.address} is too old: Kafka 3.1 or newer is needed") from None
        self._versions = {
            offered["api_key"]: (offered["min_version"], offered["max_version"]) for offered in answer["api_keys"]
        }

    def version(self, api: ApiKey) -> int:
        """The newest version of `api` that both sides know. Raises UnsupportedFeature."""
        low, high = self._versions.get(api, (0, -1))
        version = min(high, APIS[api].high)
        if version < max(low, APIS[api].low, _OLDEST.get(api, 0)):
            raise UnsupportedFeature(
                f"the broker at {self.address} speaks {api.name} {low} to {high}, which is not enough here:"
                " Kafka 3.1 or newer is needed"
            )
        return version

    def offers(self, api: ApiKey) -> bool:
        """Whether the broker has said that it speaks `api`."""
        return api in self._versions

    # -- requests -----------------------------------------------------------------------------------

    def request(self, api: ApiKey, message: Mapping[str, object], *, wait_s: float = 0.0) -> Message:
        """Ask and wait for the answer, `wait_s` longer than usual. Raises ServerUnreachable or RequestInvalid."""
        version = self.version(api)
        sent = self.send(api, [REQUESTS[api].encode(version, message)], version=version)
        _, frame, start = self.receive(sent, wait_s=wait_s)
        return RESPONSES[api].decode(version, frame, start)

    def send(
        self, api: ApiKey, body: Sequence[Buffer], *, version: int | None = None, answered: bool = True
    ) -> int:  # fmt: skip
        """Send a request, by default in the newest version of both sides; returns the argument of `receive`.

        A request that is not `answered`, Produce with acks=0, is not received. Raises ServerUnreachable.
        """
        if version is None:
            version = self.version(api)
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        size = sum(map(len, body))
        head = encode_request(api, version, self._correlation_id, self._client_id, b"")
        length = int.from_bytes(head[:4], "big") + size
        if answered:
            self._waiting[self._correlation_id] = (api, version)
        deadline = time.monotonic() + self._timeout_s
        try:
            if size < 64 * 1024:
                self._send_all(b"".join((length.to_bytes(4, "big"), head[4:], *body)), deadline)
            else:
                self._send_all(length.to_bytes(4, "big") + head[4:], deadline)
                for piece in body:
                    self._send_all(piece, deadline)
        except OSError as error:
            raise self._lost(error) from None
        return self._correlation_id

    def _send_all(self, data: Buffer, deadline: float) -> None:
        self._socket.settimeout(max(0.001, deadline - time.monotonic()))
        self._socket.sendall(data)

    def receive(self, sent: int, *, wait_s: float = 0.0) -> Answer:
        """The response to a request, whichever others are in flight. Raises ServerUnreachable."""
        deadline = time.monotonic() + self._timeout_s + wait_s
        while sent not in self._arrived:
            if not self._waiting:
                raise ServerUnreachable(f"the connection to {self.address} was lost")
            # Answers come in the order of the requests.
            oldest = next(iter(self._waiting))
            api, version = self._waiting[oldest]
            try:
                size = int.from_bytes(self._receive(4, deadline), "big", signed=True)
                if not 4 <= size <= _LARGEST_ANSWER_BYTES:
                    raise ConnectionError("it does not speak Kafka's protocol")
                frame = self._receive(size, deadline)
                if int.from_bytes(frame[:4], "big") != oldest:
                    raise ConnectionError("its answers do not belong to our requests")
                start = response_body_start(api, version, frame)
            except (OSError, ValueError) as error:
                raise self._lost(error) from None
            del self._waiting[oldest]
            self._arrived[oldest] = (version, frame, start)
        return self._arrived.pop(sent)

    def _receive(self, size: int, deadline: float) -> memoryview:
        view = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError
            self._socket.settimeout(left_s)
            count = self._socket.recv_into(view[filled:])
            if not count:
                raise ConnectionError("it closed the connection")
            filled += count
        return view

    def _lost(self, error: Exception) -> ServerUnreachable:
        self.close()
        if isinstance(error, TimeoutError):
            return ServerUnreachable(f"{self.address} did not answer within {round(self._timeout_s, 2):g} s")
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        return ServerUnreachable(f"the connection to {self.address} is lost: {why}")

    @property
    def closed(self) -> bool:
        """Whether it cannot be used any more."""
        return self._socket.fileno() < 0

    @property
    def has_ended(self) -> bool:
        """Whether it is closed, by either side: what can be said while no answer is awaited."""
        if self.closed or self._waiting:
            return self.closed
        self._socket.settimeout(0)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        """Give the socket back."""
        self._waiting.clear()
        self._arrived.clear()
        self._interrupt.forget(self._socket)
        self._socket.close()
