"""Sockets that kafka-python leaves open where a connection fails."""

import gc
import socket

__all__ = ["close_leaked_sockets"]


def close_leaked_sockets() -> None:
    """Close them; what others in this process listen on, or hold a port with, stays as it is."""
    for found in gc.get_objects():
        # The type, and not what it says of its class: a proxy of what is gone can say nothing.
        if type(found) is socket.socket and found.family is socket.AF_INET and found.fileno() >= 0 and _failed(found):
            found.close()


def _failed(one: socket.socket) -> bool:
    """Whether it is set up as kafka-python does it before it connects, and is not connected."""
    try:
        one.getpeername()
    except OSError:
        return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0
    return False
