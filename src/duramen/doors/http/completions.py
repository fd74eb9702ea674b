"""Waiting for callbacks, and on behalf of a client that may close its connection meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from duramen.base.errors import DuramenError, StorageFailed

__all__ = ["begin", "call_back", "settle", "unless_gone"]

T = TypeVar("T")


async def call_back(ask: Callable[[Callable[[T | BaseException], None]], object]) -> T:
    """What a callback is told. Raises the error that it is told."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    ask(partial(settle, future))
    return await future


def settle(future: "asyncio.Future[T]", result: T | BaseException) -> None:
    """End a future with what a callback is told, unless it has ended; an OSError is one of a read."""
    if future.done():
        return
    if isinstance(result, OSError):
        future.set_exception(StorageFailed(f"reading failed: {result}"))
    elif isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def begin(answer: Coroutine[Any, Any, T], done: Callable[[T | DuramenError | OSError], None]) -> Callable[[], None]:
    """Have `answer` come beside all else; `done` gets it, or the error. Returns what cancels it."""

    async def run() -> None:
        try:
            outcome: T | DuramenError | OSError = await answer
        except (DuramenError, OSError) as error:
            outcome = error
        done(outcome)

    task = asyncio.get_running_loop().create_task(run())

    def cancel() -> None:
        task.cancel()

    return cancel


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
