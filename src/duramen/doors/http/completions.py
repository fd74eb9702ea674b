"""Waiting on behalf of a client that may close its connection meanwhile."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

__all__ = ["unless_gone"]

T = TypeVar("T")


async def unless_gone(request: Request, answer: Coroutine[Any, Any, T]) -> T:
    """What `answer` comes to; it is cancelled once the client is gone. Raises ClientDisconnect then."""
    answering = asyncio.ensure_future(answer)
    watching = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait((answering, watching), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ClientDisconnect
        return answering.result()
    finally:
        answering.cancel()
        watching.cancel()


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
