"""Wakes a thread that waits in a client: shuts its sockets down, and it opens no new ones. Any thread may call it."""

import contextlib
import socket
import threading
from typing import Final

from duramen.base.errors import ClientClosed

__all__ = ["Interrupt", "open_socket"]


class Interrupt:
    """Set once, for good. Operations of a thread on a watched socket fail at once; `check` then raises the reason."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._sockets: set[socket.socket] = set()
        self._set = threading.Event()

    @property
    def is_set(self) -> bool:
        """Whether it has been set."""
        return self._set.is_set()

    def wait(self, timeout_s: float) -> None:
        """Wait until it is set, at most this long."""
        self._set.wait(timeout_s)

    def set(self) -> None:
        """Wake waiting threads."""
        with self._lock:
            self._set.set()
            for one in self._sockets:
                _shut_down(one)

    def check(self) -> None:
        """Raise ClientClosed if it is set."""
        if self._set.is_set():
            raise ClientClosed("the client was closed, or its call was cancelled")

    def watch(self, one: socket.socket) -> None:
        """Shut this socket down too. It is to be forgotten before it is closed: its number may be another's then."""
        with self._lock:
            self._sockets.add(one)
            if self._set.is_set():
                _shut_down(one)

    def forget(self, one: socket.socket) -> None:
        """Leave this socket alone."""
        with self._lock:
            self._sockets.discard(one)


def _shut_down(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)


def open_socket(host: str, port: int, timeout_s: float, interrupt: Interrupt) -> socket.socket:
    """A connected socket that `interrupt` watches. Raises OSError, TimeoutError among them, or ClientClosed."""
    failed: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM):
        interrupt.check()
        one = socket.socket(family, kind, protocol)
        interrupt.watch(one)
        try:
            one.settimeout(timeout_s)
            one.connect(address)
        except OSError as error:
            interrupt.forget(one)
            one.close()
            failed = error
            continue
        return one
    interrupt.check()
    raise failed or OSError("the name has no address")
