"""What a behaviour is shown on: a node, a client's driver, topics and groups of its own."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tests.compat.driving import Driver
from tests.raw import Wanted, connect, fetch_bytes

from duramen.base.errors import DuramenError
from duramen.client import BrokerCluster, StreamAdmin
from duramen.codec.batch import batches
from duramen.codec.compression import CODECS
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

__all__ = ["Behaviour", "Stage", "advertised", "made", "record", "unique", "values"]

_numbers: Final = itertools.count(1)


class Stage:
    """One behaviour's stage. `second` starts another driver of the same client, which ends with the behaviour."""

    def __init__(self, node: NodeProcess, driver: Driver, second: Callable[[], Driver]) -> None:
        self.node = node
        self.driver = driver
        self.second = second

    def topic(self, partitions: int = 1, config: Mapping[str, str] | None = None, name: str = "") -> str:
        """A new topic, made by our own client."""
        return made(self.node, partitions, config, name)

    def delete(self, topic: str) -> None:
        """Delete a topic with our own client."""
        with BrokerCluster(self.node.kafka) as cluster:
            StreamAdmin(cluster).delete_stream(topic)

    @staticmethod
    def name(kind: str) -> str:
        """A name nobody else uses."""
        return unique(kind)

    def restart(self) -> None:
        """Kill -9 the node, and start it again."""
        self.node.kill()
        self.node.restart()

    def codecs(self, topic: str) -> set[str]:
        """The compressions of the batches that the node holds of partition 0."""
        connection = connect(self.node)
        try:
            (answer,) = fetch_bytes(connection, topic, Wanted(0, 0))
            return {CODECS[head.attributes & 7] for _, head in batches(answer.records)}
        finally:
            connection.close()

    def partitions(self, topic: str) -> int:
        """How many partitions the node says a topic has; 0 where there is none."""
        with BrokerCluster(self.node.kafka) as cluster:
            try:
                return len(cluster.topic(topic, fresh=True).leaders)
            except DuramenError:
                return 0

    def configs(self, topic: str) -> dict[str, str | None]:
        """A topic's configs."""
        with BrokerCluster(self.node.kafka) as cluster:
            return StreamAdmin(cluster).stream_configs(topic)


def unique(kind: str) -> str:
    """A name nobody else uses."""
    return f"{kind}-{next(_numbers)}"


def made(node: NodeProcess, partitions: int = 1, config: Mapping[str, str] | None = None, name: str = "") -> str:
    """A new topic, made by our own client."""
    name = name or unique("topic")
    with BrokerCluster(node.kafka) as cluster:
        StreamAdmin(cluster).create_stream(name, partitions, config)
    return name


def advertised(node: NodeProcess) -> frozenset[int]:
    """The numbers of the APIs that a node has."""
    connection = connect(node)
    try:
        answer = connection.request(ApiKey.API_VERSIONS, {"client_software_name": "x", "client_software_version": "1"})
        return frozenset(one["api_key"] for one in answer["api_keys"])
    finally:
        connection.close()


class Behaviour(NamedTuple):
    """One line of the list: its name, what it shows, who does it, and the APIs without which it cannot be."""

    name: str
    shows: str
    run: Callable[[Stage], None]
    needs: Sequence[int] = ()


def record(
    value: str | None, key: str | None = None, headers: Sequence[tuple[str, str | None]] = (),
    timestamp: int | None = None, partition: int = 0,
) -> dict[str, Any]:  # fmt: skip
    """A record as a driver is told it."""
    return {
        "value": value, "key": key, "headers": [list(one) for one in headers], "timestamp": timestamp,
        "partition": partition,
    }  # fmt: skip


def values(found: Sequence[Mapping[str, Any]]) -> list[str]:
    """The values of records that a driver read."""
    return [one["value"] for one in found]
