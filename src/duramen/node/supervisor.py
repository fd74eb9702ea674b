"""Notifications to the service manager that started the node: the datagrams of systemd's sd_notify(3).

Without NOTIFY_SOCKET in the environment nothing is sent.
"""

import asyncio
import contextlib
import logging
import os
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

__all__ = ["Supervisor"]

_log = logging.getLogger("duramen.node")

_READY: Final = ("READY=1", "STATUS=ready")
_VARIABLE: Final = "NOTIFY_SOCKET"
_SEND_S: Final = 1.0  # a service manager reads at once; another must not block the node
_TELL_S: Final = 5.0
_EXTENSION_US: Final = 60_000_000


class Supervisor:
    """The service manager, if there is one."""

    def __init__(self) -> None:
        """Take the address from the environment, so that no child process sends notifications for the node."""
        address = os.environ.pop(_VARIABLE, "")
        # An abstract socket's name starts with a zero byte, which the variable has as @.
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._is_ready = False

    def ready(self) -> None:
        """The node has started."""
        self._is_ready = True
        self._send(*_READY)

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """The node reloads its settings. During its start and stop this is not sent: READY=1 would be wrong then."""
        if self._is_ready:
            now_us = time.monotonic_ns() // 1000
            self._send("RELOADING=1", f"MONOTONIC_USEC={now_us}", "STATUS=reloading the settings")
        yield
        if self._is_ready:
            self._send(*_READY)

    def stopping(self) -> None:
        """The node stops."""
        self._is_ready = False
        self._send("STOPPING=1", "STATUS=stopping")

    async def tell_start(self, how_far: Callable[[], str]) -> None:
        """Until it is cancelled: send the progress of the start, and extend the unit's timeout."""
        while self._address:
            self._send(f"STATUS=starting: {how_far()}", f"EXTEND_TIMEOUT_USEC={_EXTENSION_US}")
            await asyncio.sleep(_TELL_S)

    def _send(self, *assignments: str) -> None:
        if not self._address:
            return
        # A line break would start another assignment.
        said = "\n".join(" ".join(assignment.split("\n")) for assignment in assignments)
        try:
            with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)) as sender:
                sender.settimeout(_SEND_S)
                sender.sendto(said.encode(), self._address)
        except OSError as error:
            _log.warning("the service manager cannot be told %s: %s", assignments[0], error.strerror or error)
