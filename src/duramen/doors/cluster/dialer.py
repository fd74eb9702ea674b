"""Keeps one connection to one address: redials whenever there is none, with increasing delays."""

import asyncio
from collections.abc import Callable

from duramen.doors.cluster.link import PeerLink
from duramen.doors.cluster.timer import Backoff, Later, LinkTiming

__all__ = ["Dialer"]


class Dialer:
    """Dials `host` and `port` until it is closed."""

    def __init__(
        self,
        host: str,
        port: int,
        make: Callable[[], PeerLink],
        failed: Callable[[str], None],
        backoff: Backoff,
        later: Later,
        timing: LinkTiming,
    ) -> None:
        """`make` makes the protocol object of each connection; `failed` gets the reason if there was none."""
        self._address = (host, port)
        self._make = make
        self._failed = failed
        self._backoff = backoff
        self._later = later
        self._timing = timing
        self._link: PeerLink | None = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    @property
    def link(self) -> PeerLink | None:
        """The connection, if one is open for sending."""
        return self._link if self._link is not None and self._link.open else None

    def stop(self) -> None:
        """Dial no more; the connection that there is stays."""
        self._task.cancel()

    async def close(self) -> None:
        """Dial no more, and close the connection."""
        self.stop()
        await asyncio.wait([self._task])
        if self._link is not None and self._link.connected:
            self._link.close("this node is stopping")
            await self._link.ended.wait()

    async def _run(self) -> None:
        while True:
            await self._dial()
            await self._pause(self._backoff.next_ms())

    async def _dial(self) -> None:
        """Dial once, and wait until the connection is over."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timing.connect_ms / 1000):
                _, link = await loop.create_connection(self._made, *self._address)
        except TimeoutError:
            self._failed(f"nothing answered within {self._timing.connect_ms} ms")
        except (OSError, UnicodeError) as error:
            self._failed(getattr(error, "strerror", None) or str(error))
        else:
            await link.ended.wait()
            if link.proven:
                self._backoff.reset()

    def _made(self) -> PeerLink:
        self._link = self._make()
        return self._link

    async def _pause(self, wait_ms: int) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._later(wait_ms, lambda: None if over.done() else over.set_result(None))
        try:
            await over
        finally:
            timer.cancel()
