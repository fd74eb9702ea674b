"""A peer's server process: it ends with this process, after a moment for a clean stop."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from duramen.base.errors import ServerUnreachable
from duramen.node import tether

__all__ = ["free_ports", "start", "stop"]

_STOP_S: Final = 15.0


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


def stop(process: "subprocess.Popen[bytes]") -> None:
    """Ask it to stop, then make it, and wait until it is gone."""
    process.terminate()
    try:
        process.wait(_STOP_S)
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
