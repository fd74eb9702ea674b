"""The HTTP door: health and metrics from the first moment on, everything else once the node is ready."""

import asyncio
import socket
from collections.abc import Callable, Mapping

from duramen.base.metrics import Metrics
from duramen.broker.broker import Broker
from duramen.doors.http.application import application
from duramen.doors.http.routes import Node
from duramen.doors.http.server import Server

__all__ = ["HttpDoor"]


class HttpDoor:
    """A listening socket and what it answers."""

    def __init__(self, metrics: Metrics, addresses: Mapping[str, str]) -> None:
        self._node = Node(metrics, addresses)
        self._server: Server | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self, listener: socket.socket) -> str:
        """Answer on a bound socket; returns its address."""
        listener.listen(128)
        self._server = Server(application(self._node))
        self._task = asyncio.get_running_loop().create_task(self._server.serve(sockets=[listener]))
        host, port = listener.getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def ready(self, broker: Broker, cluster_id: str, problem: Callable[[], str]) -> None:
        """The broker is there; `problem` says why not every door takes requests, empty where they do."""
        self._node.problem = problem
        self._node.broker = broker
        self._node.cluster_id = cluster_id

    async def stop(self) -> None:
        """Answer what was asked and close."""
        self._node.broker = None
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
