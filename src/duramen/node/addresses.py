"""Addresses: parses HOST:PORT, refuses addresses other than loopback without --insecure, binds sockets."""

import contextlib
import ipaddress
import socket
from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.base.errors import DuramenError, SettingInvalid
from duramen.base.hosts import host_port

__all__ = [
    "Address",
    "AddressInUse",
    "bind",
    "bind_all",
    "check_advertised",
    "check_loopback",
    "is_wildcard",
    "listen_all",
    "parse_address",
    "parse_addresses",
    "reachable",
]

_LARGEST_PORT: Final = 65535


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return host_port(self.host, self.port)


class AddressInUse(DuramenError):
    """Another process listens on the address, or this machine does not have it."""

    id = "address-in-use"
    safe = "Nothing was started and nothing was changed."
    remedy = "Choose another port with the option that the message names, or stop the other process."


def parse_address(setting: str, text: str) -> Address:
    """HOST:PORT, with an IPv6 host in brackets. Raises SettingInvalid."""
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    fits = colon and host and (":" in host) == bracketed and not set(host) & set("[]/, \t")
    if not fits or not (port.isascii() and port.isdigit()) or int(port) > _LARGEST_PORT:
        raise SettingInvalid(
            f"{setting}: {text!r} does not fit; it must be HOST:PORT such as 127.0.0.1:9092 or [::1]:9092"
        )
    return Address(host, int(port))


def parse_addresses(setting: str, text: str) -> tuple[Address, ...]:
    """One or more of HOST:PORT, separated by commas. Raises SettingInvalid."""
    addresses = tuple(parse_address(setting, part.strip()) for part in text.split(","))
    for at, address in enumerate(addresses):
        if address.port and address in addresses[:at]:
            raise SettingInvalid(f"{setting}: {address} is there twice")
    return addresses


def _ip(address: Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address.host)
    except ValueError:
        return None


def is_wildcard(address: Address) -> bool:
    """Whether it means every address of the machine."""
    ip = _ip(address)
    return ip is not None and ip.is_unspecified


def reachable(address: Address) -> Address:
    """An address for connections from this machine to a listener on `address`."""
    if not is_wildcard(address):
        return address
    return Address("::1" if ":" in address.host else "127.0.0.1", address.port)


def check_loopback(setting: str, option: str, address: Address, *, insecure: bool) -> None:
    """Raise SettingInvalid for an address that others can reach, unless `insecure` is set."""
    if insecure or address.host == "localhost":
        return
    ip = _ip(address)
    if ip is None or not ip.is_loopback:
        raise SettingInvalid(
            f"{setting}: {address} is not loopback, and there is no authentication yet: every client that reaches it "
            f"can read, write and delete everything. Use --insecure to allow that, or {option} 127.0.0.1"
        )


def check_advertised(addresses: Sequence[Address], advertise: str) -> None:
    """Raise SettingInvalid if clients would get a wildcard address, or none, to connect to."""
    if advertise:
        if parse_address("kafka.advertise", advertise).port == 0:
            raise SettingInvalid(f"kafka.advertise: {advertise!r} does not fit; clients need its port")
        return
    for address in addresses:
        if is_wildcard(address):
            raise SettingInvalid(
                f"kafka.listen: {address} means every address of this machine, and Kafka clients need one to connect "
                f"to: name it with --kafka-advertise HOST:{address.port or 'PORT'}"
            )


def bind_all(door: str, option: str, addresses: Sequence[Address]) -> list[socket.socket]:
    """Sockets bound to the addresses, not listening yet. Raises AddressInUse with the door and the option."""
    with_ipv4 = any(":" not in address.host for address in addresses)
    with contextlib.ExitStack() as unless_all:
        listeners = [
            unless_all.enter_context(bind(door, option, address, only_ipv6=with_ipv4)) for address in addresses
        ]
        unless_all.pop_all()
    return listeners


def bind(door: str, option: str, address: Address, *, only_ipv6: bool = False) -> socket.socket:
    """A socket bound to the address, not listening yet; with `only_ipv6` [::] leaves 0.0.0.0 to another.

    Raises AddressInUse with the door and the option.
    """
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if only_ipv6 and family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise AddressInUse(_cannot_listen(door, option, address, error)) from None
    listener.setblocking(False)
    return listener


def listen_all(door: str, option: str, listeners: Sequence[socket.socket]) -> None:
    """Listen on bound sockets. Raises AddressInUse if another process listened first: binding does not detect that."""
    for listener in listeners:
        try:
            listener.listen()
        except OSError as error:
            address = Address(*listener.getsockname()[:2])
            raise AddressInUse(_cannot_listen(door, option, address, error)) from None


def _cannot_listen(door: str, option: str, address: Address, error: OSError) -> str:
    return f"the {door} door cannot listen on {address}: {error.strerror or error}; choose another with {option}"
