"""Connects the nats-servers of a cluster's nodes: the route address of each, and their routes configuration."""

import hashlib
import hmac
import os
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final, NamedTuple

from duramen.metadata.nodes import Node
from duramen.node.addresses import Address

__all__ = ["ENDPOINT", "Routing", "places", "routing", "server_config", "write_private"]

ENDPOINT: Final = "nats-cluster"
"""The name of the endpoint under which a node registers its nats-server's address for other servers."""

_LABEL: Final = b"duramen nats routes 1"
_USER: Final = "duramen"
_CLUSTER: Final = "duramen"
_PROOF_S: Final = 5
_SAID_ONCE_IN: Final = 3600
"""Of that many attempts to reach another server, one per second, the first is logged."""
_MAX_PAYLOAD_BYTES: Final = 8 * 1024 * 1024


class Routing(NamedTuple):
    """The route address of a server, and the password of routes."""

    listen: Address
    password: str


def routing(listen: Address, secret: bytes) -> Routing:
    """The same password for all nodes with the cluster's secret; the password does not reveal the secret."""
    return Routing(listen, hmac.new(secret, _LABEL, hashlib.sha256).hexdigest())


def places(nodes: Iterable[Node], node_id: int) -> frozenset[Address]:
    """The addresses of the other nodes' servers."""
    return frozenset(
        Address(one.host, one.port)
        for node in nodes
        if node.id != node_id
        for one in node.endpoints
        if one.name == ENDPOINT
    )


def server_config(name: str, address: Address, route: Routing | None, others: Collection[Address]) -> str:
    """The configuration of a nats-server that clients reach at that address; port 0: any."""
    config = (
        "# Written by Duramen at each start. JetStream, WebSocket and MQTT are off unless they are named here.\n"
        f'server_name: "{name}"\n'
        f'host: "{address.host}"\n'
        f"port: {address.port or -1}\n"
        f"max_payload: {_MAX_PAYLOAD_BYTES}\n"
        "logtime: false\n"
    )
    if route is None:
        return config
    ways = ", ".join(f'"nats-route://{_USER}:{route.password}@{where}"' for where in sorted(others))
    return config + (
        f"reconnect_error_reports: {_SAID_ONCE_IN}\n"
        "cluster {\n"
        f'  name: "{_CLUSTER}"\n'
        f'  host: "{route.listen.host}"\n'
        f"  port: {route.listen.port}\n"
        f'  authorization {{ user: "{_USER}", password: "{route.password}", timeout: {_PROOF_S} }}\n'
        f"  routes: [{ways}]\n"
        "}\n"
    )


def write_private(path: Path, text: str) -> None:
    """Write a file that only its owner may read, atomically. Blocking. Raises OSError."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w") as file:
        file.write(text)
    temporary.replace(path)
