"""A node with its own nats-server, and how tests talk to it."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from http.client import HTTPConnection
from typing import Any

import nats
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from nats.aio.client import Client
from prometheus_client.parser import text_string_to_metric_families
from tests import clients
from tests.doors.nats.capturing import Place

from duramen.node.process import NodeProcess

__all__ = ["Api", "kafka_records", "run", "until"]


until = partial(clients.until, timeout_s=60)


class Api:
    """The HTTP door of a node."""

    def __init__(self, node: NodeProcess) -> None:
        self.node = node

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, str]:
        connection = HTTPConnection(self.node.http, timeout=60)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()

    def call(self, method: str, path: str, body: object = None) -> Any:
        status, content = self.ask(method, path, body)
        assert status < 300, content
        return json.loads(content) if content else None

    def create(self, name: str, *subjects: str, partitions: int = 1, config: Mapping[str, object] | None = None) -> Any:
        wish = {"name": name, "subjects": subjects, "partitions": partitions, "config": config or {}}
        return self.call("POST", "/v1/streams", wish)

    def configure(self, name: str, config: Mapping[str, object]) -> None:
        self.call("PATCH", f"/v1/streams/{name}", {"config": config})

    def delete(self, name: str) -> None:
        self.call("DELETE", f"/v1/streams/{name}")

    def describe(self, name: str) -> Any:
        return self.call("GET", f"/v1/streams/{name}")

    def gaps(self, name: str) -> Any:
        return self.describe(name)["nats_gaps"]

    def ends(self, name: str) -> list[int]:
        return [partition["high_watermark"] for partition in self.describe(name)["partitions"]]

    def metric(self, name: str, **labels: str) -> float:
        for family in text_string_to_metric_families(self.ask("GET", "/metrics")[1]):
            for sample in family.samples:
                if sample.name == name and sample.labels == labels:
                    return sample.value
        return 0.0

    def ready(self) -> tuple[int, str]:
        return self.ask("GET", "/readyz")


def run(test: Callable[[Client], Awaitable[None]], address: str, **options: Any) -> None:
    """Run a test with a connected, unmodified client."""

    async def quiet(_: Exception) -> None:
        pass

    async def main() -> None:
        client = await nats.connect(f"nats://{address}", error_cb=quiet, connect_timeout=60, **options)
        try:
            await test(client)
        finally:
            await client.close()

    asyncio.run(main())


def kafka_records(node: NodeProcess, stream: str, ends: list[int]) -> list[Message]:
    """Everything in a stream, read with an unmodified Kafka client."""
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(stream, index, OFFSET_BEGINNING) for index in range(len(ends))])
        found: list[Message] = []
        while len(found) < sum(ends):
            messages = consumer.consume(min(1000, sum(ends) - len(found)), timeout=60)
            assert messages, "records are missing"
            found += messages
        return found
    finally:
        consumer.close()


@pytest.fixture(scope="session")
def nats_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    """A node with an embedded nats-server that tests share; they use streams and subjects of their own."""
    with NodeProcess(tmp_path_factory.mktemp("nats") / "data", {"nats.server": "embedded"}) as process:
        yield process


@pytest.fixture(scope="session")
def api(nats_node: NodeProcess) -> Api:
    """The HTTP door of the shared node."""
    return Api(nats_node)


@pytest.fixture
def place() -> Place:
    """A broker and its capture, without a nats-server."""
    return Place()


@pytest.fixture
def prefix(stream_name: str) -> str:
    """A first token of subjects that no other test uses."""
    return stream_name
