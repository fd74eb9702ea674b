"""Connections to a peer that speaks a protocol of its own: a request is sent, and its answer is waited for."""

import asyncio
from collections.abc import Callable

from duramen.base.errors import ServerUnreachable

__all__ = ["Line", "open_lines"]

_End = Callable[[bytes], int]


class Line(asyncio.Protocol):
    """One connection, with one request under way; `end` says where an answer ends in what has come, 0: not yet."""

    def __init__(self, end: _End) -> None:
        self._end = end
        self._transport: asyncio.Transport | None = None
        self._came = b""
        self._waiting: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if isinstance(transport, asyncio.Transport):
            self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._came += data
        waiting = self._waiting
        if waiting is None or waiting.done():
            return
        try:
            end = self._end(self._came)
        except ServerUnreachable as error:
            waiting.set_exception(error)
            return
        if end:
            answer, self._came = self._came[:end], self._came[end:]
            waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ServerUnreachable(f"the connection was closed: {exc or 'no reason is given'}"))

    async def ask(self, request: bytes) -> bytes:
        """The answer. Raises ServerUnreachable."""
        if self._transport is None or self._transport.is_closing():
            raise ServerUnreachable("the connection is closed")
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._waiting

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.close()


async def open_lines(count: int, place: tuple[str, int], end: _End) -> list[Line]:
    """So many connections. Raises OSError."""
    loop = asyncio.get_running_loop()
    opened = [await loop.create_connection(lambda: Line(end), *place) for _ in range(count)]
    return [line for _, line in opened]
