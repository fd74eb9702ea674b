"""HTTP requests for asyncio, over reused connections."""

import asyncio
from typing import Any, Final, TypeAlias

from duramen.client.api.http import Question
from duramen.client.http import HTTP_TIMEOUT_S, RECEIVE_BYTES, HttpExchange, HttpNode, IdleConnections

__all__ = ["AsyncDoor"]

_MOST_OPEN: Final = 64
"""Connections to the node; a node answers 100 at once, and has 50 requests that wait for entries."""
_Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class AsyncDoor:
    """A node's HTTP door, shared by the tasks of one event loop; many share its connections."""

    def __init__(self, server: HttpNode) -> None:
        self._server = server
        self._free = asyncio.Semaphore(_MOST_OPEN)
        self._idle: IdleConnections[_Connection] = IdleConnections(_close, _is_open)

    def close(self) -> None:
        """Close the idle connections."""
        self._idle.close()

    async def ask(self, question: Question) -> Any:
        """The response. Raises ServerUnreachable, or the node's error."""
        if question.server:
            return await self._ask(question)
        async with self._free:
            return await self._ask(question)

    async def _ask(self, question: Question) -> Any:
        server = HttpNode(question.server) if question.server else self._server
        exchange = HttpExchange(
            server.address, question.method, question.path, question.document, question.accept,
            keep=not question.server,
        )  # fmt: skip
        connection = None if question.server else self._idle.take()
        if connection is None:
            try:
                async with asyncio.timeout(HTTP_TIMEOUT_S):
                    connection = await asyncio.open_connection(server.host.strip("[]"), server.port)
            except (OSError, ValueError) as error:
                raise server.unreachable(error) from None
        reader, writer = connection
        try:
            async with asyncio.timeout(HTTP_TIMEOUT_S):
                writer.write(exchange.question)
                while not exchange.take(await reader.read(RECEIVE_BYTES)):
                    pass
        except OSError as error:
            writer.close()
            raise exchange.lost(error) from None
        except BaseException:
            writer.close()
            raise
        if exchange.is_reusable:
            self._idle.give(connection)
        else:
            writer.close()
        return question.answer_of(exchange)


def _close(connection: _Connection) -> None:
    connection[1].close()


def _is_open(connection: _Connection) -> bool:
    reader, writer = connection
    return not (reader.at_eof() or writer.is_closing())
