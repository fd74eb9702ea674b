"""What every handler of the Kafka door needs, and what one is."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from duramen.broker.broker import Broker
from duramen.doors.kafka.exchange import Exchange
from duramen.doors.kafka.sessions import FetchSessions
from duramen.doors.kafka.share_sessions import ShareSessions

__all__ = ["Context", "Handler", "address_text"]


class Context(NamedTuple):
    """The broker, how this node presents itself to clients, and what it keeps for them.

    `listeners` are where the door listens, each HOST:PORT.
    """

    broker: Broker
    cluster_id: str
    host: str
    port: int
    shares: ShareSessions
    sessions: FetchSessions
    listeners: Sequence[str] = ()


def address_text(host: str, port: int) -> str:
    """HOST:PORT, an IPv6 host in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


Handler = Callable[[Context, Exchange], None]
"""Answers a request, now or later. Raises RequestInvalid where the connection cannot go on."""
