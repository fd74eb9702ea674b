"""The interface and the context of every handler of the Kafka door."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from duramen.doors.kafka.request.exchange import Exchange
from duramen.doors.kafka.request.fetch_sessions import FetchSessions
from duramen.doors.kafka.request.response_size import ResponseBudget
from duramen.doors.kafka.request.share_sessions import ShareSessions
from duramen.service.admission import Service
from duramen.service.broker import Broker

__all__ = ["Context", "Handler"]


class Context(NamedTuple):
    """The broker, the addresses for clients, and shared state of handlers.

    `listeners` are the listening addresses, each HOST:PORT; `answer_bytes` bounds the memory of one response.
    """

    broker: Broker
    service: Service
    cluster_id: str
    host: str
    port: int
    shares: ShareSessions
    sessions: FetchSessions
    answer_bytes: int
    listeners: Sequence[str] = ()

    def response_budget(self) -> ResponseBudget:
        """The memory bound of one response."""
        return ResponseBudget(self.answer_bytes)


Handler = Callable[[Context, Exchange], None]
"""Answers a request that was admitted, now or later. Raises RequestInvalid where the connection cannot go on."""
