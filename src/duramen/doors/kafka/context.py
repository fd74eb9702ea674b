"""What every handler of the Kafka door needs, and what one is."""

from collections.abc import Callable
from typing import NamedTuple

from duramen.broker.broker import Broker
from duramen.doors.kafka.exchange import Exchange

__all__ = ["Context", "Handler"]


class Context(NamedTuple):
    """The broker, and how this node presents itself to clients."""

    broker: Broker
    cluster_id: str
    host: str
    port: int


Handler = Callable[[Context, Exchange], None]
"""Answers a request, now or later. Raises RequestInvalid where the connection cannot go on."""
