"""Detects settings with which two doors would listen on one address, before anything is bound."""

import ipaddress
import socket
from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

from duramen.base.errors import SettingInvalid
from duramen.node.addresses import Address

__all__ = ["ListenAddress", "as_written", "check_overlaps", "listeners", "resolved"]

_LOCALHOST = "127.0.0.1"  # the address that a door binds for the name


class ListenAddress(NamedTuple):
    """The address of a setting's listener; a wildcard of `both_families` accepts IPv4 and IPv6 connections."""

    setting: str
    address: Address
    both_families: bool


def listeners(setting: str, addresses: Sequence[Address]) -> list[ListenAddress]:
    """The listeners of one setting of the node's own doors, whose [::] leaves IPv4 to an IPv4 address beside it."""
    with_ipv4 = any(":" not in address.host for address in addresses)
    return [ListenAddress(setting, address, ":" in address.host and not with_ipv4) for address in addresses]


def as_written(address: Address) -> Address:
    """The address itself, with an unresolved name."""
    return address


def check_overlaps(
    all_listeners: Sequence[ListenAddress], where: Callable[[Address], Address] = lambda address: address
) -> None:
    """Raise SettingInvalid for two listeners if one takes the other's connections.

    `where` resolves the host's name to an address.
    """
    for one, other in combinations(all_listeners, 2):
        if one.address.port and one.address.port == other.address.port:
            first, second = _ip(where(one.address)), _ip(where(other.address))
            if _takes(first, second, one.both_families) or _takes(second, first, other.both_families):
                raise SettingInvalid(
                    f"{other.setting}: {other.address} does not fit; {one.setting} has {one.address}, and two doors"
                    " cannot share an address: give one of them another port"
                )


def resolved(address: Address) -> Address:
    """The address of a host's name, or the name again if it is unknown. Blocking."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    try:
        found = socket.getaddrinfo(address.host, address.port, family, socket.SOCK_STREAM)
    except OSError:
        return address
    return Address(str(found[0][4][0]), address.port)


def _ip(address: Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address | str:
    host = _LOCALHOST if address.host.lower() == "localhost" else address.host
    try:
        ip = ipaddress.ip_address(host)
    except ValueError:
        return host.lower()
    mapped = ip.ipv4_mapped if ip.version == 6 else None
    return mapped or ip


def _takes(
    one: ipaddress.IPv4Address | ipaddress.IPv6Address | str,
    other: ipaddress.IPv4Address | ipaddress.IPv6Address | str,
    both_families: bool,
) -> bool:
    if one == other:
        return True
    if isinstance(one, str) or not one.is_unspecified:
        return False
    # A name is bound as IPv4.
    return both_families or one.version == (4 if isinstance(other, str) else other.version)
