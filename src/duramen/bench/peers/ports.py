"""Free ports for servers that cannot say which one they took."""

import socket
from contextlib import ExitStack

__all__ = ["free_ports"]


def free_ports(count: int) -> list[int]:
    """Ports of the loopback that nobody listens on now."""
    with ExitStack() as held:
        found = []
        for _ in range(count):
            one = held.enter_context(socket.socket())
            one.bind(("127.0.0.1", 0))
            found.append(int(one.getsockname()[1]))
    return found
