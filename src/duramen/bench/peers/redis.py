"""Redis: a stream for each queue, and every write synced before it is acknowledged (`appendfsync always`)."""

import asyncio
import shutil
from collections.abc import Sequence
from typing import Final, Self

from duramen.base.errors import DependencyMissing, ServerUnreachable
from duramen.bench.peers import servers
from duramen.bench.peers.lines import Line, open_lines
from duramen.bench.peers.servers import PeerServer, free_ports

__all__ = ["Redis"]

_START_S: Final = 30.0
_CRLF: Final = b"\r\n"


class Redis(PeerServer):
    """A server in `directory`."""

    name: Final = "redis"
    title = "Redis"

    def __enter__(self) -> Self:
        """Start it. Raises DependencyMissing or ServerUnreachable."""
        server = shutil.which("redis-server")
        if server is None:
            raise DependencyMissing("--peer redis needs Redis: install the package redis-server, or leave redis out")
        self._directory.mkdir(parents=True)
        (self._port,) = free_ports(1)
        settings = {
            "port": self._port, "bind": "127.0.0.1", "dir": self._directory, "appendonly": "yes",
            "appendfsync": "always", "save": "",
        }  # fmt: skip
        options = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
        log = self._directory / "redis.log"
        self._process = servers.start([server, *options], log)
        servers.wait_until_up(self.title, self._process, log, _START_S, self._ping)
        return self

    def settle(self) -> None:
        """It has written everything before each answer."""

    def _ping(self) -> None:
        async def ping() -> None:
            (line,) = await open_lines(1, self.place, _end)
            try:
                await line.ask(_command(b"PING"))
            finally:
                line.close()

        asyncio.run(ping())

    @staticmethod
    async def connect(place: tuple[str, int], connections: int) -> Sequence["_Session"]:
        """So many connections. Raises OSError."""
        return [_Session(line) for line in await open_lines(connections, place, _end)]


class _Session:
    """Puts entries."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def put(self, queue: str, value: bytes) -> None:
        """Add an entry to a stream; it is durable when this returns. Raises ServerUnreachable."""
        await self._line.ask(_command(b"XADD", queue.encode(), b"*", b"v", value))

    def close(self) -> None:
        """Close the connection."""
        self._line.close()


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def _end(data: bytes) -> int:
    """Where a line or a text ends; 0 while it is not here. Raises ServerUnreachable with what the server refuses."""
    end = data.find(_CRLF) + len(_CRLF)
    if end < len(_CRLF):
        return 0
    if data[:1] == b"-":
        raise ServerUnreachable(f"Redis refuses: {data[1:end].decode(errors='replace').strip()}")
    if data[:1] == b"$":
        end += int(data[1:end]) + len(_CRLF)
    return end if end <= len(data) else 0
