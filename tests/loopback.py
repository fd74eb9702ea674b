"""The addresses that a machine's loopback has: not every machine has those of IPv6."""

import contextlib
import socket

__all__ = ["has_ipv6", "second_host"]


def has_ipv6() -> bool:
    """Whether this machine has an IPv6 loopback."""
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET6) as probe:
        probe.bind(("::1", 0))
        return True
    return False


def second_host() -> str:
    """Another host than 127.0.0.1, as it is written in an address."""
    return "[::1]" if has_ipv6() else "127.0.0.2"
