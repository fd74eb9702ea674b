"""The HTTP side of a node: it listens from the start, and opens its door for the first connection.

Importing the door's packages takes a quarter of a node's start, so they are imported in the background.
"""

import asyncio
import importlib
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from duramen.base.metrics import Metrics
from duramen.base.settings import Settings
from duramen.base.units import MIB
from duramen.base.usage import Usage
from duramen.node.addresses import Address
from duramen.service.admission import Service
from duramen.service.broker import Broker
from duramen.service.forwarding.forwarding import Forwarding
from duramen.service.forwarding.memory import Room

if TYPE_CHECKING:
    from duramen.doors.http.door import HttpDoor

__all__ = ["HttpSide"]

_BACKLOG: Final = 128
_OPEN_AFTER_S: Final = 1.0  # after readiness, unless a connection comes first: then no request waits for the import
_ROOM_BYTES: Final = 16 * MIB
_DOOR: Final = "duramen.doors.http.door"


class HttpSide:
    """Listens, and responds as far as the start has progressed."""

    def __init__(
        self, metrics: Metrics, addresses: Mapping[str, str], settings: Settings, progress: Callable[[], str],
        *, on_demand: bool,
    ) -> None:  # fmt: skip
        """`progress` returns the progress of the start; `on_demand`: without a connection the door is never opened."""
        self.room = Room(_ROOM_BYTES)
        """The memory budget of client requests, their waits, and requests of other nodes on behalf of their clients."""
        self._metrics = metrics
        self._addresses = addresses
        self._settings = settings
        self._progress = progress
        self._on_demand = on_demand
        self._listeners: Sequence[socket.socket] = ()
        self._opening: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._door: HttpDoor | None = None
        self._ready: tuple[Broker, Service, str, Callable[[], str], Forwarding, Callable[[], Usage]] | None = None

    def start(self, listeners: Sequence[socket.socket]) -> str:
        """Accept connections on bound sockets; returns the address of the first."""
        self._listeners = listeners
        for listener in listeners:
            listener.listen(_BACKLOG)
            asyncio.get_running_loop().add_reader(listener, self._begin_opening)
        return str(Address(*listeners[0].getsockname()[:2]))

    def _begin_opening(self) -> None:
        if self._opening is None:
            self._forget_readers()
            self._opening = asyncio.get_running_loop().create_task(self._open())

    def _forget_readers(self) -> None:
        for listener in self._listeners:
            asyncio.get_running_loop().remove_reader(listener)

    async def _open(self) -> None:
        # In a thread: clients of the other doors do not wait for it.
        await asyncio.get_running_loop().run_in_executor(None, importlib.import_module, _DOOR)
        from duramen.doors.http.door import HttpDoor

        self._door = HttpDoor(self._metrics, self._addresses, self._settings, self._progress, self.room)
        await self._door.start(self._listeners)
        if self._ready is not None:
            self._door.ready(*self._ready)

    def ready(
        self, broker: Broker, service: Service, cluster_id: str, problem: Callable[[], str], forwarding: Forwarding,
        usage: Callable[[], Usage],
    ) -> None:  # fmt: skip
        """The broker exists; `problem` returns the reason why not every door accepts requests, empty if all do."""
        self._ready = broker, service, cluster_id, problem, forwarding, usage
        if self._door is not None:
            self._door.ready(*self._ready)
        elif not self._on_demand:
            self._timer = asyncio.get_running_loop().call_later(_OPEN_AFTER_S, self._begin_opening)

    async def stop(self) -> None:
        """Complete open requests and close."""
        if self._timer is not None:
            self._timer.cancel()
        if self._opening is not None:
            await self._opening
        if self._door is not None:
            await self._door.stop()
        else:
            self._forget_readers()
            for listener in self._listeners:
                listener.close()
