"""Awaits, in an event loop, the callbacks of the broker."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from duramen.base.errors import DuramenError

__all__ = ["completion", "outcome"]

E = TypeVar("E", bound=Exception)


async def outcome(begin: Callable[[Callable[[E | None], None]], None]) -> E | None:
    """The argument of the callback of `begin`: None, or an error."""
    future: asyncio.Future[E | None] = asyncio.get_running_loop().create_future()

    def done(error: E | None) -> None:
        if not future.done():
            future.set_result(error)

    begin(done)
    return await future


async def completion(begin: Callable[[Callable[[DuramenError | None], None]], None]) -> None:
    """Wait for it; raises the error that it ended with."""
    error = await outcome(begin)
    if error is not None:
        raise error
