"""Uvicorn as this door needs it: no signal handlers, and nothing that a client sends is waited for without end."""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Final, cast

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

__all__ = ["MOST_CONNECTIONS", "RECEIVE_S", "Server", "configured"]

MOST_CONNECTIONS: Final = 100
"""With so many connections open, requests are answered with 503."""

RECEIVE_S: Final = 5.0
"""How long the head of a request may take to come, and its body after that."""

_LARGEST_HEAD_BYTES: Final = 16 * 1024


class Server(uvicorn.Server):
    """Uvicorn without signal handlers: the node has its own."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Protocol(H11Protocol):
    """Closes a connection whose request has no whole head in time, or that still sends long after its answer.

    Uvicorn itself closes those on which nothing at all comes after an answer. How long a body may take before there
    is an answer is the application's business.
    """

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(cast("asyncio.Transport", transport))
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _owes(self) -> bool:
        """Whether the next move is the client's: the head of a request, or the end of one that is answered."""
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


def configured(app: ASGIApp) -> uvicorn.Config:
    """How the door runs its application."""
    return uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", server_header=False, http=_Protocol,
        timeout_graceful_shutdown=1, timeout_keep_alive=round(RECEIVE_S), limit_concurrency=MOST_CONNECTIONS,
        h11_max_incomplete_event_size=_LARGEST_HEAD_BYTES,
    )  # fmt: skip
