"""Uvicorn for this door: every wait for a client is bounded, and refusals are problem documents."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from typing import Final, cast

import h11
import msgspec
import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from duramen.base.errors import DuramenError, NodeBusy, NodeStopping, OutcomeUnknown, RequestInvalid
from duramen.doors.http.serving.bodies import RECEIVE_S
from duramen.doors.http.serving.problems import PROBLEM_JSON, answer_with
from duramen.doors.problems import problem_of

__all__ = ["MOST_CONNECTIONS", "HttpServer"]

MOST_CONNECTIONS: Final = 100
"""With so many requests in progress that do not wait for something, others are answered with 503."""
_MOST_IDLE: Final = 900
"""Connections that clients keep for their next request."""

_LARGEST_HEAD_BYTES: Final = 16 * 1024


class HttpServer(uvicorn.Server):
    """Uvicorn without signal handlers, which the node has, and with a bound on connections."""

    def __init__(self, app: ASGIApp, waiting: Callable[[], int]) -> None:
        """`waiting`: the number of requests that wait for something; they have a bound of their own."""
        super().__init__(_configured(self._admit))
        self._app = app
        self._waiting = waiting

    async def _admit(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._has_room():
            await self._answer(scope, receive, send)
            return
        error = NodeBusy(f"{MOST_CONNECTIONS} connections are open; close some, or retry later")
        refusal = answer_with(problem_of(error, scope["path"]), {"Connection": "close", "Retry-After": "1"})
        await refusal(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application; if the node stops before it has responded, respond in its place."""
        begun = False

        async def watched(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, watched)
        except asyncio.CancelledError:
            if not self.should_exit:
                raise
            if not begun:
                await answer_with(problem_of(_cut_off(scope["method"]), scope["path"]))(scope, receive, send)

    def _has_room(self) -> bool:
        connections, most = self.server_state.connections, MOST_CONNECTIONS + self._waiting()
        if len(connections) < most:
            return True
        if len(connections) >= most + _MOST_IDLE:
            return False
        return sum(not (isinstance(one, _Protocol) and one.idles) for one in connections) < most

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _cut_off(method: str) -> DuramenError:
    """Why a request has no other response: the node has stopped meanwhile."""
    why = "this node stopped before the request ended"
    return NodeStopping(why) if method in ("GET", "HEAD") else OutcomeUnknown(why)


class _Joining:
    """A transport that sends what is written in one turn of the loop in one call: head and body of a response."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self.is_closing = transport.is_closing
        self.get_extra_info = transport.get_extra_info
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.set_protocol = transport.set_protocol

    def write(self, data: bytes) -> None:
        """Send this at the end of the turn."""
        if not self._parts:
            self._loop.call_soon(self._send)
        self._parts.append(data)

    def close(self) -> None:
        """Send what was written, and close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        parts, self._parts = self._parts, []
        if parts and not self._transport.is_closing():  # uvloop refuses a write after the peer has closed
            self._transport.write(b"".join(parts))


class _Protocol(H11Protocol):
    """Closes connections that do not complete a request head in time or keep sending long after the response.

    Uvicorn itself closes connections that stay idle after a response. The application bounds the time of a body.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self.transport = cast("asyncio.Transport", _Joining(self.transport, self.loop))
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Called by uvicorn if the input is not HTTP."""
        if self.cycle is not None:
            # The handler of this request can respond no more.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            content = msgspec.json.encode(problem_of(RequestInvalid(msg), ""))
            headers = [("Content-Type", PROBLEM_JSON), ("Content-Length", str(len(content))), ("Connection", "close")]
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=content),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    @property
    def idles(self) -> bool:
        """Whether the last request was answered and no other has started."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and cycle.response_complete

    def _owes(self) -> bool:
        """Whether the client has to send next: a request head, or the rest of an answered request."""
        return self.conn.their_state is h11.IDLE or self.conn.our_state is h11.DONE

    def _watch(self) -> None:
        if not self._owes():
            self._forget()
        elif self._deadline is None:
            self._deadline = self.loop.call_later(RECEIVE_S, self._close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _close(self) -> None:
        self._deadline = None
        if self._owes():
            self.transport.close()


def _configured(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app, interface="asgi3", log_config=None, access_log=False, lifespan="off", server_header=False, http=_Protocol,
        proxy_headers=False, timeout_graceful_shutdown=1, timeout_keep_alive=round(RECEIVE_S),
        h11_max_incomplete_event_size=_LARGEST_HEAD_BYTES,
    )  # fmt: skip
