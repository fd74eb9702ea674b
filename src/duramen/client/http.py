"""A node's HTTP door: requests in JSON or bytes; error responses become their classes.

`HttpExchange` is the exchange of bytes without a socket. `HttpNode` drives it with a blocking one.
"""

import ipaddress
import json
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote

import h11

from duramen.base import errors
from duramen.base.errors import DuramenError, RequestInvalid, ServerUnreachable, SettingInvalid

__all__ = [
    "DEFAULT_SERVER",
    "HTTP_TIMEOUT_S",
    "RECEIVE_BYTES",
    "HttpExchange",
    "HttpNode",
    "IdleConnections",
    "RequestBody",
    "path_of",
    "problem_of",
    "server_address",
    "vector_text",
]

DEFAULT_SERVER: Final = "127.0.0.1:9644"
HTTP_TIMEOUT_S: Final = 30.0
RECEIVE_BYTES: Final = 256 * 1024
_LARGEST_ANSWER_BYTES: Final = 64 * 1024 * 1024
_KEPT_S: Final = 2.0  # less than a node waits for the next question on a connection
_Connection = TypeVar("_Connection")


class RequestBody(NamedTuple):
    """A request body other than JSON, and its media type."""

    content: bytes
    type: str


class IdleConnections(Generic[_Connection]):
    """Connections that a node keeps open for the next question."""

    def __init__(self, close: Callable[[_Connection], None], is_open: Callable[[_Connection], bool]) -> None:
        self._close = close
        self._is_open = is_open
        self._kept: deque[tuple[_Connection, float]] = deque()
        self._over = False

    def take(self) -> _Connection | None:
        """The most recently used connection; None if none is usable."""
        while self._kept:
            try:
                connection, since_s = self._kept.pop()
            except IndexError:
                break  # another thread took it
            if time.monotonic() - since_s < _KEPT_S and self._is_open(connection):
                return connection
            self._close(connection)
        return None

    def give(self, connection: _Connection) -> None:
        """Keep it for the next question."""
        self._kept.append((connection, time.monotonic()))
        if self._over:
            self.close()

    def close(self) -> None:
        """Close all of them, and those that are given from here on."""
        self._over = True
        while self._kept:
            self._close(self._kept.pop()[0])


def _classes(base: type[DuramenError]) -> dict[str, type[DuramenError]]:
    found = {base.id: base}
    for derived in base.__subclasses__():
        found |= _classes(derived)
    return found


def problem_of(document: Mapping[str, Any]) -> DuramenError:
    """The error that a problem document stands for. Raises what comes of another document."""
    class_ = _classes(DuramenError).get(str(document["type"]), RequestInvalid)
    detail = str(document["detail"])
    try:
        error = class_(detail)
    except TypeError:
        error = RequestInvalid(detail)
    if isinstance(error, errors.QueueHistoryRewritten):
        said = document.get("rewritten", {})
        error.start, error.by, error.reason = (str(said.get(name, "")) for name in ("start", "by", "reason"))
    error.stored = {one["record"]: one["position"] for one in document.get("stored", ()) if "position" in one}
    return error


class HttpExchange:
    """One request and its response: send `question`, pass input to `take` until it is True, then `answer`."""

    def __init__(
        self,
        address: str,
        method: str,
        path: str,
        document: Mapping[str, object] | RequestBody | None = None,
        accept: str = "",
        *,
        keep: bool = False,
    ) -> None:
        """`address` is HOST:PORT; `path` is quoted; with `keep` the connection is to be used again.

        Raises RequestInvalid for a path that HTTP cannot carry.
        """
        self._address = address
        self._what = f"{method} {path}"
        self._status = 0
        self._content = bytearray()
        self._connection = h11.Connection(h11.CLIENT)
        self._headers: list[tuple[bytes, bytes]] = []
        if isinstance(document, RequestBody):
            body, type_ = document
        else:
            body, type_ = b"" if document is None else json.dumps(document).encode(), "application/json"
        headers = [("Host", address), ("Content-Length", str(len(body)))]
        if not keep:
            headers.append(("Connection", "close"))
        if document is not None:
            headers.append(("Content-Type", type_))
        if accept:
            headers.append(("Accept", accept))
        try:
            head = self._connection.send(h11.Request(method=method, target=path, headers=headers))
        except h11.LocalProtocolError as error:
            raise RequestInvalid(f"{method} {path!r} cannot be asked over HTTP: {error}") from None
        rest = self._connection.send(h11.Data(data=body)) if body else b""
        self.question = b"".join(filter(None, (head, rest, self._connection.send(h11.EndOfMessage()))))

    def take(self, data: bytes) -> bool:
        """Take received bytes, b"" if the node closed; True once the response is complete. Raises ServerUnreachable."""
        try:
            self._connection.receive_data(data)
            return self._read()
        except h11.RemoteProtocolError:
            if data:
                raise self._stranger() from None
            raise self.lost(ConnectionError("the node closed the connection")) from None

    def _read(self) -> bool:
        while True:
            event = self._connection.next_event()
            if isinstance(event, h11.Response):
                self._status, self._headers = event.status_code, list(event.headers)
            elif isinstance(event, h11.Data):
                self._content += event.data
                if len(self._content) > _LARGEST_ANSWER_BYTES:
                    raise ServerUnreachable(f"the answer of {self._address} to {self._what} is too large")
            elif isinstance(event, h11.EndOfMessage):
                return True
            elif event is h11.NEED_DATA:
                return False

    @property
    def is_reusable(self) -> bool:
        """Whether the connection can carry another request, once the response is complete."""
        return self._connection.our_state is h11.DONE and self._connection.their_state is h11.DONE

    def header(self, name: str) -> str:
        """A header of the response; empty if it is absent."""
        wanted = name.lower().encode()
        return next((value.decode("latin-1") for found, value in self._headers if found == wanted), "")

    def content(self) -> bytes:
        """The answer's bytes. Raises the error that the node answered with."""
        if self._status >= 400:
            raise self._problem()
        return bytes(self._content)

    def answer(self) -> Any:
        """The JSON content, None if there is none. Raises the node's error."""
        if not self.content():
            return None
        try:
            return json.loads(self._content)
        except ValueError:
            raise self._stranger() from None

    def _stranger(self, more: str = "") -> ServerUnreachable:
        return ServerUnreachable(f"what listens at {self._address} is not a Duramen node{more}")

    def _problem(self) -> DuramenError:
        """The error that a problem document (RFC 9457) stands for."""
        try:
            document = json.loads(self._content)
            found = problem_of(document)
        except (ValueError, KeyError, TypeError, AttributeError):
            return self._stranger(f" (HTTP {self._status})")
        if isinstance(found, errors.NodeStarting):
            return errors.NodeStarting(f"the node at {self._address} is not ready: {found}")
        return found

    def lost(self, error: Exception) -> ServerUnreachable:
        """The error for a connection that was lost over the question."""
        done = "" if self._what.startswith("GET ") else "; it may have been done all the same"
        return ServerUnreachable(f"{self._address} did not answer {self._what} ({why(error)}){done}")


def server_address(server: str | None) -> str:
    """The given address, otherwise that of the environment, otherwise the default."""
    return server or os.environ.get("DURAMEN_SERVER") or DEFAULT_SERVER


def path_of(collection: str, name: str) -> str:
    """The path of a stream or a group, whatever characters its name has."""
    return f"/v1/{collection}/{quote(name, safe='')}"


def vector_text(at: Mapping[int, int], epochs: Mapping[int, int] = MappingProxyType({})) -> str:
    """A snapshot as HTTP and the command line write it; leader epochs name the history that it is of."""
    return ",".join(
        f"{partition}:{offset}@{epochs[partition]}" if epochs.get(partition, -1) >= 0 else f"{partition}:{offset}"
        for partition, offset in at.items()
    )


def why(error: Exception) -> str:
    """An operating system's error in a few words."""
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


class HttpNode:
    """A node's HTTP door. Every call may raise ServerUnreachable, or the error that the node answered with."""

    def __init__(self, address: str, *, option: str = "server", keep: bool = False) -> None:
        """`option` names the user's option for another address; with `keep` connections stay open until `close`.

        Raises SettingInvalid if it is not HOST:PORT.
        """
        host, colon, port = address.removeprefix("http://").rstrip("/").rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise SettingInvalid(f"{option}: {address!r} does not fit; it must be HOST:PORT such as {DEFAULT_SERVER}")
        self.host = host
        self.address = f"{host}:{port}"
        self.port = int(port)
        self._option = option
        self._idle = IdleConnections(socket.socket.close, _is_open) if keep else None

    def close(self) -> None:
        """Close idle connections; later requests open their own."""
        if self._idle is not None:
            self._idle.close()

    def get(self, path: str, timeout_s: float = HTTP_TIMEOUT_S) -> Any:
        """The response to GET `path`."""
        return self.ask("GET", path, timeout_s=timeout_s)

    def text(self, path: str, timeout_s: float = HTTP_TIMEOUT_S) -> str:
        """The text that is at `path`."""
        return self._exchange("GET", path, None, timeout_s).content().decode(errors="replace")

    def content(self, path: str, accept: str) -> bytes:
        """The bytes that are at `path` in a format."""
        return self._exchange("GET", path, None, HTTP_TIMEOUT_S, accept).content()

    def exchange(
        self, method: str, path: str, document: Mapping[str, object] | RequestBody | None = None, accept: str = ""
    ) -> HttpExchange:
        """Any question, and its answer with its headers."""
        return self._exchange(method, path, document, HTTP_TIMEOUT_S, accept)

    def listed(self, path: str, key: str) -> Iterator[Any]:
        """The members of a list that the node gives a page at a time, under `key`."""
        for page in self.pages(path):
            yield from page[key]

    def pages(self, path: str) -> Iterator[Any]:
        """The pages of a list."""
        after = ""
        while True:
            page = self.get(f"{path}?after={quote(after, safe='')}" if after else path)
            yield page
            after = page.get("next") or ""
            if not after:
                return

    def others(self, wanted: Collection[int] | None = None) -> list["HttpNode"]:
        """The other nodes of its cluster that are live, as far as it knows, or those of them that are wanted."""
        nodes = self.get("/v1/cluster/nodes")["nodes"]
        live = [
            node["endpoints"].get("http")
            for node in nodes
            if node["state"] != "fenced" and (wanted is None or node["id"] in wanted)
        ]
        return [HttpNode(address) for address in live if address not in (None, self.address)]

    def post(self, path: str, document: Mapping[str, object]) -> Any:
        """Make something."""
        return self.ask("POST", path, document)

    def patch(self, path: str, document: Mapping[str, object]) -> Any:
        """Change something."""
        return self.ask("PATCH", path, document)

    def delete(self, path: str) -> None:
        """Remove something."""
        self.ask("DELETE", path)

    def kafka(self) -> str:
        """HOST:PORT of the node's Kafka door."""
        return self.kafka_of(self.get("/v1/node"))

    def kafka_of(self, node: Mapping[str, Any]) -> str:
        """HOST:PORT of the Kafka door, of what `/v1/node` says."""
        host, _, port = str(node["addresses"]["kafka"]).rpartition(":")
        try:
            anywhere = ipaddress.ip_address(host.strip("[]")).is_unspecified
        except ValueError:
            anywhere = False
        return f"{self.host if anywhere else host}:{port}"

    def ask(
        self,
        method: str,
        path: str,
        document: Mapping[str, object] | RequestBody | None = None,
        *,
        timeout_s: float = HTTP_TIMEOUT_S,
    ) -> Any:
        """Any question."""
        return self._exchange(method, path, document, timeout_s).answer()

    def _exchange(
        self,
        method: str,
        path: str,
        document: Mapping[str, object] | RequestBody | None,
        timeout_s: float,
        accept: str = "",
    ) -> HttpExchange:
        idle = self._idle
        exchange = HttpExchange(self.address, method, path, document, accept, keep=idle is not None)
        connection = idle.take() if idle is not None else None
        if connection is None:
            connection = self._connect(timeout_s)
        try:
            connection.settimeout(timeout_s)
            connection.sendall(exchange.question)
            while not exchange.take(connection.recv(RECEIVE_BYTES)):
                pass
        except OSError as error:
            connection.close()
            raise exchange.lost(error) from None
        except BaseException:
            connection.close()
            raise
        if idle is not None and exchange.is_reusable:
            idle.give(connection)
        else:
            connection.close()
        return exchange

    def _connect(self, timeout_s: float) -> socket.socket:
        # Never through a proxy: the node is near.
        try:
            connection = socket.create_connection((self.host.strip("[]"), self.port), timeout_s)
        except (OSError, ValueError) as error:
            raise self.unreachable(error) from None
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def unreachable(self, error: Exception) -> ServerUnreachable:
        """The error where nothing can be connected to."""
        return ServerUnreachable(
            f"no node answers at {self.address} ({why(error)}); start one with `duramen serve`,"
            f" or name another with {self._option}"
        )


def _is_open(connection: socket.socket) -> bool:
    """Whether an idle connection is clean: neither closed nor with unexpected bytes."""
    connection.setblocking(False)
    try:
        connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
