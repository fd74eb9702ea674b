"""A dedicated thread for blocking calls from an event loop; a cancelled call wakes it and waits until it has ended."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from duramen.client.interrupt import Interrupt

__all__ = ["OwnThread"]

_T = TypeVar("_T")


class OwnThread:
    """One thread, started by the first call. The few threads of the default executor would wait for one another."""

    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(self, call: Callable[[], _T], interrupt: Interrupt) -> _T:
        """The result of `call`.

        On cancellation `interrupt` is set, which makes `call` end soon, and `call` is awaited.
        """
        running = asyncio.get_running_loop().run_in_executor(self._executor, call)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            interrupt.set()
            await asyncio.wait([running])
            if not running.cancelled():
                running.exception()  # looked at: what was cancelled has no one to tell
            raise

    def close(self) -> None:
        """Let the thread end without waiting for it."""
        self._executor.shutdown(wait=False)
