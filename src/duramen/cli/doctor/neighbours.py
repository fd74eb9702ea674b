"""Identifies the server at an address: a Duramen node, a NATS server, a Kafka broker, another, or none."""

import contextlib
import errno
import http.client
import json
import os
import socket
import struct
from collections.abc import Callable
from typing import Final, Literal, NamedTuple

from duramen.base.catalogue.catalogue import BROKER
from duramen.cli.doctor.findings import DoctorFinding

__all__ = ["Neighbour", "door_ports", "identify_neighbour"]

_ANSWER_S: Final = 5.0
_GREETING_S: Final = 1.5
_API_VERSIONS: Final = 18
_LARGEST_FRAME_BYTES: Final = 1 << 20

Kind = Literal["nobody", "duramen", "nats", "kafka", "http", "other", "forbidden"]


class Neighbour(NamedTuple):
    """The state that was found, and its description."""

    kind: Kind
    said: str


def identify_neighbour(host: str, port: int) -> Neighbour:
    """Ask at an address, in the protocols of the three doors; nothing is changed there."""
    try:
        with socket.create_connection((host, port), _ANSWER_S) as connection:
            greeting = _greeting(connection)
    except OSError as error:
        return _free(host, port, error)
    if greeting is not None:
        return greeting
    # A server may close a connection with an unknown protocol: each probe gets its own.
    for ask in (_http, _kafka):
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException, struct.error):
            found = ask(host, port)
            if found is not None:
                return found
    return Neighbour("other", "a server that speaks neither NATS nor Kafka's protocol nor HTTP")


def _free(host: str, port: int, refused: OSError) -> Neighbour:
    """No server listens: whether a node could."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return Neighbour("other", f"a listener that accepts no connections ({refused.strerror or refused})")
        return Neighbour("forbidden", str(error.strerror or error))
    return Neighbour("nobody", "free")


def _greeting(connection: socket.socket) -> Neighbour | None:
    """A NATS server speaks first: `INFO {…}` (docs.nats.io, the client protocol)."""
    connection.settimeout(_GREETING_S)
    data = b""
    with contextlib.suppress(OSError, ValueError):
        while b"\r\n" not in data and len(data) < _LARGEST_FRAME_BYTES:
            piece = connection.recv(65536)
            if not piece:
                break
            data += piece
        if data.startswith(b"INFO "):
            version = json.loads(data[5:].partition(b"\r\n")[0]).get("version", "")
            return Neighbour("nats", f"a NATS server {version}".rstrip())
    return Neighbour("other", "a server that sends first and does not speak NATS") if data else None


def _http(host: str, port: int) -> Neighbour | None:
    connection = http.client.HTTPConnection(host, port, timeout=_ANSWER_S)
    try:
        connection.request("GET", "/v1/node")
        answer = connection.getresponse()
        content = answer.read(_LARGEST_FRAME_BYTES)
    finally:
        connection.close()
    with contextlib.suppress(ValueError, KeyError, TypeError):
        document = json.loads(content)
        if answer.status == http.HTTPStatus.OK and "cluster_id" in document:
            return Neighbour("duramen", f"a Duramen node, version {document['version']}")
    return Neighbour("http", "an HTTP server that is not a Duramen node")


def _kafka(host: str, port: int) -> Neighbour | None:
    """ApiVersions, version 0 (kafka.apache.org/protocol): every broker answers, and repeats the request's id."""
    client = b"duramen-doctor"
    request = struct.pack(">hhih", _API_VERSIONS, 0, 1, len(client)) + client
    with socket.create_connection((host, port), _ANSWER_S) as connection:
        connection.sendall(struct.pack(">i", len(request)) + request)
        connection.settimeout(_ANSWER_S)
        head = b""
        while len(head) < 8:
            piece = connection.recv(8 - len(head))
            if not piece:
                return None
            head += piece
    size, correlation_id = struct.unpack(">ii", head)
    if correlation_id == 1 and 4 < size < _LARGEST_FRAME_BYTES:
        return Neighbour("kafka", "a Kafka broker, or a Duramen node's Kafka door")
    return None


def _cluster_advice(_: Neighbour, address: str) -> str:
    return f"stop it, or start the node with --cluster-listen and another port than {address}"


def _routes_advice(_: Neighbour, address: str) -> str:
    return f"stop it, or start the node with --nats-cluster-listen and another port than {address}"


def _kafka_advice(_: Neighbour, address: str) -> str:
    return f"stop it, or start the node with --kafka-listen and another port than {address}"


def _http_advice(_: Neighbour, address: str) -> str:
    return f"stop it, or start the node with --http-listen and another port than {address}"


def _nats_advice(found: Neighbour, address: str) -> str:
    if found.kind == "nats":
        return f"duramen serve --nats nats://{address} uses it instead of a server of its own"
    return f"stop it, or start the node with --nats-listen and another port than {address}"


_DOORS: Final[tuple[tuple[str, Callable[[Neighbour, str], str]], ...]] = (
    ("kafka.listen", _kafka_advice),
    ("http.listen", _http_advice),
    ("nats.listen", _nats_advice),
)


_CLUSTER: Final[tuple[tuple[str, Callable[[Neighbour, str], str]], ...]] = (
    ("cluster.listen", _cluster_advice),
    ("nats.cluster.listen", _routes_advice),
)


def door_ports() -> list[DoctorFinding]:
    """Whether each address on which a node would listen is free, or which server listens there.

    The addresses for other nodes are checked if they are set.
    """
    of_cluster = [(name, advise) for name, advise in _CLUSTER if os.environ.get(BROKER[name].environment_name)]
    return [_door(name, advise) for name, advise in (*_DOORS, *of_cluster)]


def _door(setting: str, advise: Callable[[Neighbour, str], str]) -> DoctorFinding:
    name = f"{setting.removesuffix('.listen').replace('.', ' ')} port"
    address = os.environ.get(BROKER[setting].environment_name) or BROKER[setting].default_text
    # Of several addresses the first says enough.
    host, _, port = address.partition(",")[0].strip().rpartition(":")
    host = host.strip("[]")
    if not (port.isascii() and port.isdigit() and host):
        return DoctorFinding(
            name, "missing", f"{address!r} is not an address", f"{BROKER[setting].environment_name} must be HOST:PORT"
        )
    if port == "0":
        return DoctorFinding(name, "ok", f"{address}: any free port")
    found = identify_neighbour(host, int(port))
    if found.kind == "nobody":
        return DoctorFinding(name, "ok", f"{address} is free")
    if found.kind == "forbidden":
        return DoctorFinding(name, "note", f"{address} cannot be listened on: {found.said}", advise(found, address))
    if found.kind == "duramen":
        return DoctorFinding(name, "ok", f"{address} is taken by {found.said}")
    return DoctorFinding(name, "note", f"{address} is taken by {found.said}", advise(found, address))
