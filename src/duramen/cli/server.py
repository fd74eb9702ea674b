"""The node that a command talks to: its HTTP door, and the address of its Kafka door."""

import http
import http.client
import ipaddress
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import click

from duramen.base import errors
from duramen.base.errors import DuramenError, RequestInvalid, ServerUnreachable, SettingInvalid
from duramen.client import Cluster, Topic

__all__ = ["DEFAULT_SERVER", "Server", "find_stream", "server_option"]

DEFAULT_SERVER: Final = "127.0.0.1:9644"
_TIMEOUT_S: Final = 30.0
_LARGEST_ANSWER_BYTES: Final = 64 * 1024 * 1024

_F = TypeVar("_F", bound=Callable[..., object])


def server_option(function: _F) -> _F:
    """The option `--server`, which gives the command a `Server`."""
    return click.option(
        "--server", metavar="HOST:PORT", envvar="DURAMEN_SERVER", default=DEFAULT_SERVER,
        show_default=True, show_envvar=True,
        callback=lambda _context, _option, value: Server(value), help="The HTTP address of the node.",
    )(function)  # fmt: skip


def find_stream(cluster: Cluster, name: str) -> Topic:
    """A stream by its name. Raises StreamNotFound saying how to make it."""
    try:
        return cluster.topic(name)
    except errors.StreamNotFound as error:
        raise errors.StreamNotFound(f"{error}; `duramen stream create {name}` makes one") from None


def _classes(base: type[DuramenError]) -> dict[str, type[DuramenError]]:
    found = {base.id: base}
    for derived in base.__subclasses__():
        found |= _classes(derived)
    return found


class Server:
    """A node's HTTP door. Every call may raise ServerUnreachable, or the error that the node answered with."""

    def __init__(self, address: str) -> None:
        """Raises SettingInvalid for what is not HOST:PORT."""
        host, colon, port = address.removeprefix("http://").rstrip("/").rpartition(":")
        if not colon or not host or not (port.isascii() and port.isdigit() and int(port) < 65536):
            raise SettingInvalid(f"--server: {address!r} does not fit; it must be HOST:PORT such as {DEFAULT_SERVER}")
        self.host = host
        self.address = f"{host}:{port}"
        self._port = int(port)

    def get(self, path: str, timeout_s: float = _TIMEOUT_S) -> Any:
        """What is at `path`."""
        return self._ask("GET", path, timeout_s=timeout_s)

    def text(self, path: str, timeout_s: float = _TIMEOUT_S) -> str:
        """The text that is at `path`."""
        return self._content("GET", path, timeout_s=timeout_s).decode(errors="replace")

    def listed(self, path: str, key: str) -> Iterator[Any]:
        """The members of a list that the node gives a page at a time, under `key`."""
        after = ""
        while True:
            page = self.get(f"{path}?after={quote(after, safe='')}" if after else path)
            yield from page[key]
            after = page.get("next") or ""
            if not after:
                return

    def post(self, path: str, document: Mapping[str, object]) -> Any:
        """Make something."""
        return self._ask("POST", path, document)

    def patch(self, path: str, document: Mapping[str, object]) -> Any:
        """Change something."""
        return self._ask("PATCH", path, document)

    def delete(self, path: str) -> None:
        """Remove something."""
        self._ask("DELETE", path)

    def kafka(self) -> str:
        """HOST:PORT of the node's Kafka door."""
        host, _, port = str(self.get("/v1/node")["addresses"]["kafka"]).rpartition(":")
        try:
            anywhere = ipaddress.ip_address(host.strip("[]")).is_unspecified
        except ValueError:
            anywhere = False
        return f"{self.host if anywhere else host}:{port}"

    def _ask(
        self, method: str, path: str, document: Mapping[str, object] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> Any:
        content = self._content(method, path, document, timeout_s)
        return self._decoded(content) if content else None

    def _content(
        self, method: str, path: str, document: Mapping[str, object] | None = None, timeout_s: float = _TIMEOUT_S
    ) -> bytes:
        body = None if document is None else json.dumps(document).encode()
        # Never through a proxy: the node is near.
        connection = http.client.HTTPConnection(self.host.strip("[]"), self._port, timeout=timeout_s)
        try:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read(_LARGEST_ANSWER_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise self._unreachable(error) from None
        finally:
            connection.close()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise self._problem(answer.status, content)
        return content

    def _decoded(self, content: bytes) -> Any:
        try:
            return json.loads(content)
        except ValueError:
            raise ServerUnreachable(f"what listens at {self.address} is not a Duramen node") from None

    def _problem(self, status: int, content: bytes) -> DuramenError:
        """The error that a problem document (RFC 9457) stands for."""
        try:
            document = json.loads(content)
            id_, detail = str(document["type"]), str(document["detail"])
        except (ValueError, KeyError, TypeError):
            return ServerUnreachable(f"what listens at {self.address} is not a Duramen node (HTTP {status})")
        if id_ == errors.NodeStarting.id:
            return errors.NodeStarting(f"the node at {self.address} is not ready: {detail}")
        return _classes(DuramenError).get(id_, RequestInvalid)(detail)

    def _unreachable(self, error: Exception) -> ServerUnreachable:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return ServerUnreachable(
            f"no node answers at {self.address} ({why}); start one with `duramen serve`, or name another with --server"
        )
