"""Both clients behind one face: what a test says to it, it says to either."""

import asyncio
import inspect
from collections.abc import Iterator
from operator import attrgetter
from typing import Any

import pytest

import duramen
from duramen.testing import Broker


class Face:
    """A client whose calls are awaited where they have to be. `consume` reads to its end."""

    def __init__(self, kind: str, server: str, **options: Any) -> None:
        self.kind = kind
        self._runner = asyncio.Runner()
        self._connect = duramen.connect if kind == "sync" else duramen.aio.connect
        try:
            self._client: Any = self.call(lambda: self._connect(server, **options))
        except BaseException:
            self._runner.close()
            raise

    def call(self, function: Any) -> Any:
        """What `function` returns, awaited within the loop where that is needed."""
        if self.kind == "sync":
            return function()

        async def run() -> Any:
            result = function()
            return await result if inspect.isawaitable(result) else result

        return self._runner.run(run())

    def produce(self, *args: Any, **options: Any) -> list[duramen.Place]:
        places: list[duramen.Place] = self.call(lambda: self._client.produce(*args, **options))
        return places

    def consume(self, *args: Any, count: int | None = None, **options: Any) -> list[duramen.Batch]:
        """Every batch, or so many of them."""
        if self.kind == "sync":
            batches = []
            for batch in self._client.consume(*args, **options):
                batches.append(batch)
                if len(batches) == count:
                    break
            return batches

        async def run() -> list[duramen.Batch]:
            batches = []
            async for batch in self._client.consume(*args, **options):
                batches.append(batch)
                if len(batches) == count:
                    break
            return batches

        return self._runner.run(run())

    def records(self, *args: Any, **options: Any) -> list[duramen.Record]:
        """Every record that `consume` reads."""
        return [record for batch in self.consume(*args, **options) for record in batch]

    def texts(self, *args: Any, **options: Any) -> list[str]:
        """The values of every record that `consume` reads."""
        return [record.text for record in self.records(*args, **options)]

    def streams(self, name: str, /, *args: Any, **options: Any) -> Any:
        """`client.streams.NAME(…)`."""
        return self.call(lambda: getattr(self._client.streams, name)(*args, **options))

    def groups(self, name: str, /, *args: Any, **options: Any) -> Any:
        """`client.groups.NAME(…)`."""
        return self.call(lambda: getattr(self._client.groups, name)(*args, **options))

    def make_space(self, name: str, shards: int) -> None:
        self.call(lambda: self._client.spaces.create(name, shards=shards))

    def inventory(self, name: str, /, *args: Any, **options: Any) -> Any:
        """`client.inventory.NAME(…)`."""
        return self.call(lambda: attrgetter(name)(self._client.inventory)(*args, **options))

    def queues(self, space: str, name: str, /, *args: Any, **options: Any) -> Any:
        """`client.queues(SPACE).NAME(…)`."""
        return self.call(lambda: getattr(self._client.queues(space), name)(*args, **options))

    def wait_replicated(self, *args: Any, **options: Any) -> None:
        self.call(lambda: self._client.wait_replicated(*args, **options))

    def node(self) -> duramen.NodeInfo:
        info: duramen.NodeInfo = self.call(self._client.node)
        return info

    def close(self) -> None:
        self.call(self._client.close)

    def end(self) -> None:
        """Close it, and its loop."""
        self.close()
        self._runner.close()


@pytest.fixture(params=["sync", "asyncio"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def face(kind: str, duramen_broker: Broker) -> Iterator[Face]:
    face = Face(kind, duramen_broker.http_url, timeout_s=60)
    yield face
    face.end()


@pytest.fixture
def stream(face: Face, stream_name: str) -> str:
    """A stream of three partitions."""
    face.streams("create", stream_name, partitions=3)
    return stream_name
