"""The HTTP door: health and metrics from the start of the process, everything else once the node is ready."""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence

from duramen.base.errors import NodeStopping
from duramen.base.hosts import host_port
from duramen.base.metrics import Metrics
from duramen.base.settings import Settings
from duramen.base.usage import Usage
from duramen.doors.http.application import application
from duramen.doors.http.coordinator_requests import serving
from duramen.doors.http.groups import WORKS
from duramen.doors.http.serving.hosts import Hosts
from duramen.doors.http.serving.routes import RouteNode
from duramen.doors.http.serving.server import HttpServer
from duramen.doors.http.snapshots.forwarding import serving_snapshots
from duramen.service.admission import Service
from duramen.service.broker import Broker
from duramen.service.forwarding.forwarding import Forwarding
from duramen.service.forwarding.memory import Room

__all__ = ["HttpDoor"]


class HttpDoor:
    """Listening sockets and the application behind them."""

    def __init__(
        self, metrics: Metrics, addresses: Mapping[str, str], settings: Settings, progress: Callable[[], str],
        room: Room,
    ) -> None:  # fmt: skip
        """`progress` describes the progress of the start until the node is ready. Raises SettingInvalid."""
        self._room = room
        self._hosts = Hosts(settings)
        self._node = RouteNode(metrics, addresses, progress)
        self._server: HttpServer | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, listeners: Sequence[socket.socket]) -> str:
        """Serve on bound sockets; returns the address of the first."""
        addresses = []
        for listener in listeners:
            listener.listen(128)
            host, port = listener.getsockname()[:2]
            self._hosts.listen(host, port)
            addresses.append(host_port(host, port))
        self._server = HttpServer(application(self._node, self._hosts, self._room), lambda: len(self._node.polls))
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=list(listeners)))
        return addresses[0]

    def ready(
        self, broker: Broker, service: Service, cluster_id: str, problem: Callable[[], str], forwarding: Forwarding,
        usage: Callable[[], Usage],
    ) -> None:  # fmt: skip
        """Set the broker; `problem` returns why not every door accepts requests, or an empty string."""
        self._node.problem = problem
        self._node.usage = usage
        self._node.broker = broker
        self._node.service = service
        self._node.forwarding = forwarding
        forwarding.serve_groups(serving(broker, WORKS))
        forwarding.serve_snapshots(serving_snapshots(broker))
        self._node.cluster_id = cluster_id

    async def stop(self) -> None:
        """Finish the requests in progress and close."""
        self._node.broker = None
        self._node.progress = _stopping
        if self._node.forwarding is not None:
            self._node.forwarding.stop()
        for wait in (*self._node.waits, *self._node.polls):
            if not wait.done():
                wait.set_exception(NodeStopping("this node is stopping"))
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task


def _stopping() -> str:
    return "stopping"
