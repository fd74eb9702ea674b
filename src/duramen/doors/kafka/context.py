"""What every handler of the Kafka door needs."""

from typing import NamedTuple

from duramen.broker.broker import Broker

__all__ = ["Context"]


class Context(NamedTuple):
    """The broker, and how this node presents itself to clients."""

    broker: Broker
    cluster_id: str
    host: str
    port: int
