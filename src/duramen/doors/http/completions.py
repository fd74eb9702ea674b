"""Awaiting callbacks, also for clients that may disconnect meanwhile."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from duramen.base.errors import DuramenError, StorageFailed

__all__ = ["begin", "call_back", "settle", "unless_gone"]

T = TypeVar("T")


async def call_back(ask: Callable[[Callable[[T | BaseException], None]], object]) -> T:
    """The value that a callback receives. Raises the error that it receives."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    ask(partial(settle, future))
    return await future


def settle(future: "asyncio.Future[T]", result: T | BaseException) -> None:
    """Complete a future with the value of a callback, unless it is done; an OSError means a failed read."""
    if future.done():
        return
    if isinstance(result, OSError):
        future.set_exception(StorageFailed(f"reading failed: {result}"))
    elif isinstance(result, BaseException):
        future.set_exception(result)
    else:
        future.set_result(result)


def begin(answer: Coroutine[Any, Any, T], done: Callable[[T | DuramenError | OSError], None]) -> Callable[[], None]:
    """Run `answer` as a task; `done` receives its result or its error. Returns a function that cancels it."""

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
    """The result of `answer`, which is cancelled if the client disconnects. Raises ClientDisconnect then."""
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
