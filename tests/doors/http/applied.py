"""The application of the HTTP door without sockets, and the broker behind it in a test's hand."""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import msgspec

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.settings import Settings
from duramen.base.units import MIB
from duramen.doors.http.application import application
from duramen.doors.http.serving.hosts import Hosts
from duramen.doors.http.serving.routes import RouteNode
from duramen.service.admission import Service
from duramen.service.broker import Broker
from duramen.service.forwarding.forwarding import Forwarding, NoPeers
from duramen.service.forwarding.memory import Room
from duramen.sim.broker import ManualBroker

__all__ = ["World"]


class World:
    """The application without sockets, and the broker behind it."""

    def __init__(self, service: Callable[[Broker], Service] = Service) -> None:
        self.manual = ManualBroker()
        self.manual.create("there", 1)
        settings = Settings(BROKER)
        hosts = Hosts(settings)
        hosts.listen("127.0.0.1", 9644)
        node = RouteNode(self.manual.metrics, {}, str)
        node.broker = self.manual.broker
        node.service = service(self.manual.broker)
        node.forwarding = Forwarding(self.manual.broker, NoPeers(), Room(MIB))
        self._application = application(node, hosts, Room(MIB))

    def begin(self, method: str, path: str, body: object = None) -> "asyncio.Task[tuple[int, Any]]":
        """A request is on its way."""
        return asyncio.ensure_future(self._ask(method, path, body))

    async def _ask(self, method: str, target: str, body: object) -> tuple[int, Any]:
        path, _, rest = target.partition("?")
        query = rest.encode()
        sent = asyncio.Event()
        came: list[Mapping[str, Any]] = []

        async def receive() -> MutableMapping[str, Any]:
            if sent.is_set():
                await asyncio.Event().wait()
            sent.set()
            return {"type": "http.request", "body": b"" if body is None else msgspec.json.encode(body)}

        async def send(message: Any) -> None:
            came.append(message)

        headers = [(b"host", b"127.0.0.1:9644"), (b"content-type", b"application/json")]
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": query,
            "headers": headers, "scheme": "http", "server": ("127.0.0.1", 9644), "client": ("127.0.0.1", 1),
            "http_version": "1.1", "root_path": "", "asgi": {"version": "3.0"},
        }  # fmt: skip
        await self._application(scope, receive, send)
        content = b"".join(message.get("body", b"") for message in came)
        return came[0]["status"], msgspec.json.decode(content) if content else None

    async def settled(self, task: "asyncio.Task[tuple[int, Any]]") -> tuple[int, Any]:
        """What is answered, once all that can be done is done."""
        while not task.done():
            await asyncio.sleep(0)
            self.manual.settle()
        return task.result()

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and content of the answer to a request."""

        async def asking() -> tuple[int, Any]:
            return await self.settled(self.begin(method, path, body))

        return asyncio.run(asking())
