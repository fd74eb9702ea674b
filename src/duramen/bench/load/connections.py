"""Open connections with their channels, for both load generators."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

from duramen.base.errors import ServerUnreachable
from duramen.bench.contenders import Contender
from duramen.bench.load.channels import IdempotentChannel, KafkaChannel, LoadChannel, NatsChannel
from duramen.bench.load.nats import BenchNatsConnection
from duramen.client.cluster import parse_servers
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.versions import ApiKey

__all__ = ["CHUNK_BYTES", "Line", "kafka_version", "lost", "open_kafka", "open_line"]

CHUNK_BYTES: Final = 256 * 1024
_TIMEOUT_S: Final = 30.0
_ANY_PRODUCER: Final = {"transactional_id": None, "transaction_timeout_ms": 60_000}


class Line(NamedTuple):
    """A connection that does not block, and what is said on it."""

    socket: socket.socket
    channel: LoadChannel


def open_line(
    contender: Contender, value_bytes: int, partitions: Sequence[int] = (0,), *, idempotent: bool = False
) -> Line:
    """A new connection to a contender, for one partition if it is of an `idempotent` producer.

    Raises ServerUnreachable.
    """
    channel: LoadChannel
    if contender.door == "nats":
        connection = BenchNatsConnection(contender.address)
        channel = NatsChannel(contender.topic, connection.inbox, value_bytes)
        connection.socket.setblocking(False)
        return Line(connection.socket, channel)
    with _negotiating(contender.address) as negotiating:
        version = negotiating.version(ApiKey.PRODUCE)
        if idempotent:
            producer_id: int = negotiating.request(ApiKey.INIT_PRODUCER_ID, _ANY_PRODUCER)["producer_id"]
            channel = IdempotentChannel(version, contender.topic, value_bytes, producer_id, *partitions)
        else:
            channel = KafkaChannel(version, contender.topic, value_bytes, partitions)
    return open_kafka(contender, channel)


def kafka_version(address: str, api: ApiKey) -> int:
    """The newest version of an API that both sides know. Raises ServerUnreachable."""
    with _negotiating(address) as negotiating:
        return negotiating.version(api)


@contextmanager
def _negotiating(address: str) -> Iterator[BrokerConnection]:
    ((host, port),) = parse_servers(address)
    connection = BrokerConnection(host, port, client_id="duramen-bench", timeout_s=_TIMEOUT_S)
    try:
        yield connection
    finally:
        connection.close()


def open_kafka(contender: Contender, channel: LoadChannel) -> Line:
    """A new connection to a contender's Kafka door. Raises ServerUnreachable."""
    ((host, port),) = parse_servers(contender.address)
    try:
        opened = socket.create_connection((host, port), _TIMEOUT_S)
    except OSError as error:
        raise lost(contender, error) from None
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setblocking(False)
    return Line(opened, channel)


def lost(contender: Contender, error: OSError | None = None) -> ServerUnreachable:
    """The error for a connection that broke, or that the other side closed."""
    why = "it was closed" if error is None else error.strerror or error
    return ServerUnreachable(f"the connection to {contender.name} at {contender.address} is lost: {why}")
