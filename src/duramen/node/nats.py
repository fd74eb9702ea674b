"""The NATS side of a node: its own or an external server, and the door that subscribes there."""

import asyncio
import logging
from pathlib import Path
from typing import Final

from duramen.base.metrics import Metrics
from duramen.base.ports import FileSystem, Randomness
from duramen.doors.nats.address import ServerAddress
from duramen.doors.nats.door import NatsDoor
from duramen.metadata.events import Event, NodeEvent
from duramen.node.addresses import Address
from duramen.node.children import NatsServer
from duramen.node.nats_routes import Routing, places
from duramen.service.admission import Service
from duramen.service.broker import Broker
from duramen.service.queues import QueueRequests

__all__ = ["NatsSide"]

_log = logging.getLogger("duramen.nats")

_WAIT_S: Final = 5.0


class NatsSide:
    """Launched early, because the server starts while the logs are recovered; opened once the broker exists."""

    def __init__(
        self, place: Address | ServerAddress, run_directory: Path, randomness: Randomness, metrics: Metrics
    ) -> None:
        """`place` is the address for an embedded server, or the external server."""
        self._place = place
        self._run_directory = run_directory
        self._randomness = randomness
        self._metrics = metrics
        self._door: NatsDoor | None = None
        self._server: NatsServer | None = None
        self._launching: asyncio.Task[Address] | None = None
        self._name = ""
        self.address = ""

    async def launch(self, routing: Routing | None = None) -> None:
        """Start to launch the server, if it is the node's own; with a `routing`, as part of a cluster.

        Raises AddressInUse.
        """
        if isinstance(self._place, Address):
            self._name = f"duramen-{self._randomness.token(8).hex()}"
            self._server = NatsServer(
                self._run_directory, self._place, self._name, self._metrics, self._server_died, routing=routing
            )
            await self._server.check_port()
            self._launching = asyncio.get_running_loop().create_task(self._server.start())

    async def launched(self) -> None:
        """Wait until the node's own server has started. Raises AddressInUse, NatsServerFailed."""
        if self._launching is not None:
            await self._launching

    async def open(self, broker: Broker, service: Service, files: FileSystem, queues: QueueRequests) -> None:
        """Subscribe to the subjects of all streams. Raises AddressInUse, NatsServerFailed or OSError.

        An external server that does not respond is waited for briefly; then the node continues without it for now.
        """
        if self._launching is not None:
            place = ServerAddress(*await self._launching)
        elif isinstance(self._place, ServerAddress):
            place = self._place
        else:
            raise AssertionError("the server was not launched")
        self.address = str(place)
        if self._server is not None and broker.membership.first_role is not None:
            self._follow_nodes(broker, self._server)
        self._door = NatsDoor(broker, service, files, self._randomness, place, queues, server_name=self._name)
        await self._door.start()
        if not await self._door.wait_ready(_WAIT_S):
            _log.error("%s; the other doors are open", self._door.problem())

    def _follow_nodes(self, broker: Broker, server: NatsServer) -> None:
        def reach(event: Event | None = None) -> None:
            if event is None or isinstance(event, NodeEvent):
                try:
                    server.reach(places(broker.metadata_state.registrations, broker.node_id))
                except OSError as error:
                    _log.error("the routes of nats-server cannot be updated: %s", error.strerror or error)

        if not server.routed:
            _log.warning(
                "nats.cluster.listen is not set: publishers at this node's nats-server reach only the partitions that "
                "this node leads"
            )
        broker.event_listeners.append(reach)
        reach()

    def _server_died(self) -> None:
        if self._door is not None:
            self._door.server_died()

    def problem(self) -> str:
        """The reason why no messages are accepted now; empty if they are."""
        return self._door.problem() if self._door is not None else "NATS is not connected yet"

    async def drain(self) -> None:
        """Accept no more messages, and respond to accepted ones."""
        if self._door is not None:
            await self._door.drain()

    async def close(self) -> None:
        """Send the last responses, close the connection, then stop the server."""
        if self._door is not None:
            await self._door.close()
        if self._launching is not None and not self._launching.done():
            self._launching.cancel()
            await asyncio.wait([self._launching])
        if self._server is not None:
            await self._server.stop()
