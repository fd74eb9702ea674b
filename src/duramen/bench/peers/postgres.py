"""PostgreSQL: the system's own, with its defaults; queues are rows of a table, as `FOR UPDATE SKIP LOCKED` needs it."""

import asyncio
import os
import pwd
import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

from duramen.base.errors import DependencyMissing, ServerUnreachable
from duramen.bench.peers import servers
from duramen.bench.peers.lines import Line, open_lines
from duramen.bench.peers.servers import PeerServer, free_ports

__all__ = ["PostgreSQL"]

_USER: Final = "postgres"
_START_S: Final = 60.0
_PROTOCOL: Final = 196_608
_BINARY: Final = 1
_SIZE_BYTES: Final = 4
_READY: Final = ord("Z")
_ERROR: Final = ord("E")
_TABLE: Final = (
    "CREATE TABLE entries"
    " (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, queue text NOT NULL, value bytea NOT NULL);"
    "CREATE INDEX ON entries (queue, id)"
)
_INSERT: Final = "INSERT INTO entries (queue, value) VALUES ($1, $2)"
_NAME: Final = b"put\0"


class PostgreSQL(PeerServer):
    """A server in `directory`. It refuses to run as root: then it runs as the user of its package."""

    name: Final = "postgres"
    title = "PostgreSQL"

    def __enter__(self) -> Self:
        """Start it. Raises DependencyMissing or ServerUnreachable."""
        binaries, user = _binaries(), _other_user()
        self._directory.mkdir(parents=True)
        if user:
            # Who has made the directory above may be the only one who can pass through it.
            self._directory.parent.chmod(0o711)
            shutil.chown(self._directory, _USER)
        data, log = self._directory / "data", self._directory.parent / "postgres.log"
        init = [str(binaries / "initdb"), "-D", str(data), "-A", "trust", "-U", _USER, "-E", "UTF8", "--locale=C"]
        with log.open("ab") as output:
            made = subprocess.run([*user, *init], cwd="/", stdout=output, stderr=output, check=False)
        if made.returncode != 0:
            raise ServerUnreachable(f"PostgreSQL cannot make its directory: {servers.log_tail(log)}")
        (self._port,) = free_ports(1)
        settings = {"listen_addresses": "127.0.0.1", "port": self._port, "unix_socket_directories": ""}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        self._process = servers.start([*user, str(binaries / "postgres"), "-D", str(data), *options], log)
        servers.wait_until_up(self.title, self._process, log, _START_S, lambda: self.run(_TABLE))
        return self

    def settle(self) -> None:
        """Have everything written that it holds in memory only."""
        self.run("CHECKPOINT")

    def run(self, statements: str) -> None:
        """Run statements. Raises OSError, ServerUnreachable."""

        async def run() -> None:
            (line,) = await open_lines(1, self.place, _end)
            try:
                await line.ask(_start())
                await line.ask(_message(b"Q", statements.encode() + b"\0"))
            finally:
                line.close()

        asyncio.run(run())

    @staticmethod
    async def connect(place: tuple[str, int], connections: int) -> Sequence["_Session"]:
        """So many sessions with the statement prepared. Raises OSError, ServerUnreachable."""
        lines = await open_lines(connections, place, _end)
        prepare = _message(b"P", _NAME + _INSERT.encode() + b"\0" + struct.pack(">H", 0)) + _message(b"S", b"")
        for line in lines:
            await line.ask(_start())
            await line.ask(prepare)
        return [_Session(line) for line in lines]


class _Session:
    """Puts rows: each is a transaction of its own."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def put(self, queue: str, value: bytes) -> None:
        """Add a row; it is durable when this returns. Raises ServerUnreachable."""
        fields = b"".join(struct.pack(">i", len(one)) + one for one in (queue.encode(), value))
        bind = b"\0" + _NAME + struct.pack(">HHHH", 2, _BINARY, _BINARY, 2) + fields + struct.pack(">H", 0)
        await self._line.ask(_message(b"B", bind) + _message(b"E", b"\0" + bytes(4)) + _message(b"S", b""))

    def close(self) -> None:
        """End the session."""
        self._line.close()


def _message(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack(">i", _SIZE_BYTES + len(content)) + content


def _start() -> bytes:
    return _message(b"", struct.pack(">i", _PROTOCOL) + b"user\0" + _USER.encode() + b"\0\0")


def _end(data: bytes) -> int:
    """Where the answer ends, with the message that the server is ready for more; 0 while it is not here.

    Raises ServerUnreachable with what the server refuses.
    """
    at = 0
    while at + 1 + _SIZE_BYTES <= len(data):
        kind, end = data[at], at + 1 + int.from_bytes(data[at + 1 : at + 1 + _SIZE_BYTES], "big")
        if end > len(data):
            return 0
        if kind == _ERROR:
            fields = data[at + 1 + _SIZE_BYTES : end].split(b"\0")
            text = next((field[1:] for field in fields if field[:1] == b"M"), b"it does not say why")
            raise ServerUnreachable(f"PostgreSQL refuses: {text.decode(errors='replace')}")
        if kind == _READY:
            return end
        at = end
    return 0


def _binaries() -> Path:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    if not installed:
        raise DependencyMissing("--peer postgres needs PostgreSQL: install the package postgresql, or leave it out")
    return installed[-1].parent


def _other_user() -> list[str]:
    """What runs a command as another user where this one is root; it ends with us too."""
    if os.geteuid() != 0:
        return []
    setpriv = shutil.which("setpriv")
    try:
        pwd.getpwnam(_USER)
    except KeyError:
        setpriv = None
    if setpriv is None:
        raise DependencyMissing(
            f"PostgreSQL does not run as root: it needs setpriv and the user {_USER}, or another user"
        )
    return [setpriv, "--reuid", _USER, "--regid", _USER, "--clear-groups", "--pdeathsig", "KILL"]
