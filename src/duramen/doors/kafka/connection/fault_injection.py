"""Injects faults into requests: late responses, refusals, and a log line for every error response.

Only a node started for tests has one.
"""

import logging
from collections.abc import Callable
from typing import Final

from duramen.base.deadlines import Deadlines
from duramen.base.ports import Clock
from duramen.codec.kafka.errors import ErrorCode
from duramen.codec.kafka.names import api_name
from duramen.codec.kafka.versions import ApiKey
from duramen.doors.kafka.connection.error_responses import refuse
from duramen.doors.kafka.connection.faults import RequestFaults
from duramen.doors.kafka.request.context import Context, Handler
from duramen.doors.kafka.request.exchange import Channel, Exchange

__all__ = ["EXEMPT", "Injector"]

_log = logging.getLogger("duramen.kafka")

EXEMPT: Final = "duramen-testing"
"""The client id of the test's own eyes: no fault reaches it."""


class _Late(Channel):
    """Takes the answer of the exchange that is worked on, and hands it to the one that the client waits for."""

    def __init__(self, waiting: Exchange, delay_ms: int, clock: Clock, deadlines: Deadlines) -> None:
        self.peer_host = waiting.client_host
        self._waiting = waiting
        self._delay_ms = delay_ms
        self._clock = clock
        self._deadlines = deadlines

    def weighed(self, size: int) -> None:
        self._waiting.weigh(size)

    def hold(self) -> None:
        self._waiting.channel.hold()

    def go_on(self, action: Callable[[], None]) -> None:
        self._waiting.channel.go_on(action)

    def answer_ready(self, exchange: Exchange) -> None:
        self._deadlines.at(self._clock.monotonic_ms() + self._delay_ms, lambda: self._answer(exchange))

    def _answer(self, exchange: Exchange) -> None:
        self._waiting.errors = exchange.errors
        self._waiting.throttle_ms = exchange.throttle_ms
        self._waiting.send(exchange.answer)


class Injector:
    """Applies the table of faults to each request."""

    def __init__(self, faults: RequestFaults, clock: Clock, deadlines: Deadlines) -> None:
        self._faults = faults
        self._clock = clock
        self._deadlines = deadlines

    def handle(self, handler: Handler, context: Context, exchange: Exchange) -> None:
        """Let `handler` do the request, or refuse it, now; its answer may come late. Raises RequestInvalid."""
        if exchange.header.client_id == EXEMPT:
            handler(context, exchange)
            return
        fault = self._faults.take(ApiKey(exchange.header.api_key))
        if fault.delay_ms:
            late = _Late(exchange, fault.delay_ms, self._clock, self._deadlines)
            exchange = Exchange(
                late, exchange.header, exchange.frame, exchange.size, exchange.began_s, exchange.principal
            )
        if fault.code is ErrorCode.NONE:
            handler(context, exchange)
        else:
            refuse(context, exchange, fault.code, f"{fault.code.name}, as requested by the test")

    def answered(self, exchange: Exchange) -> None:
        """A request has its response: log its errors."""
        header = exchange.header
        for code in sorted(exchange.errors):
            _log.info(
                "%s version %d of %s answered with %s",
                api_name(ApiKey(header.api_key)), header.version, header.client_id or "a client without a name",
                ErrorCode(code).name,
            )  # fmt: skip
