"""A peer's server process: it ends with this process, after a moment for a clean stop."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, Final

from duramen.base.errors import DuramenError, ServerUnreachable
from duramen.node import tether

__all__ = ["PeerServer", "free_ports", "log_tail", "start", "stop", "wait_until_up"]

_STOP_S: Final = 15.0
_RETRY_S: Final = 0.05


class PeerServer:
    """A server of a peer on a port of the loopback, with its data in `directory`."""

    title: ClassVar[str]

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            stop(self._process)

    @property
    def process_id(self) -> int:
        """The server's process, perhaps with child processes. Raises ServerUnreachable if it is not running."""
        if self._process is None:
            raise ServerUnreachable(f"{self.title} is not running")
        return self._process.pid

    @property
    def place(self) -> tuple[str, int]:
        """Host and port."""
        return "127.0.0.1", self._port

    @property
    def address(self) -> str:
        """Host and port, as text."""
        return f"127.0.0.1:{self._port}"


def start(command: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
    """Start it in a session of its own, its output appended to `log`. Raises ServerUnreachable where it cannot run."""
    if sys.platform == "linux":
        command = [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command]
    with log.open("ab") as output:
        try:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        except OSError as error:
            raise ServerUnreachable(f"{command[0]} cannot be run: {error.strerror or error}") from None


def wait_until_up(
    name: str, process: "subprocess.Popen[bytes]", log: Path, within_s: float, ask: Callable[[], object]
) -> None:
    """Ask until it answers. Where it does not, end it and raise ServerUnreachable with the end of its log."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            ask()
        except (DuramenError, OSError) as error:
            if time.monotonic() > deadline_s or process.poll() is not None:
                stop(process)
                raise ServerUnreachable(f"{name} does not start: {error}; its last words: {log_tail(log)}") from None
            time.sleep(_RETRY_S)
        else:
            return


def log_tail(log: Path) -> str:
    """The end of a log."""
    return log.read_text(errors="replace")[-500:]


def stop(process: "subprocess.Popen[bytes]", within_s: float = _STOP_S) -> None:
    """Ask it to stop, then make it, and wait until it is gone."""
    process.terminate()
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now."""
    with ExitStack() as held:
        found = []
        for _ in range(count):
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found.append(int(one.getsockname()[1]))
    return found
