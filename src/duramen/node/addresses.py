"""Addresses: reading HOST:PORT, refusing what is not loopback without --insecure, binding."""

import ipaddress
import socket
from typing import NamedTuple

from duramen.base.errors import DuramenError, SettingInvalid

__all__ = ["Address", "AddressInUse", "bind", "check_advertised", "check_loopback", "parse_address"]


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressInUse(DuramenError):
    """Something else listens there, or this machine has no such address."""

    id = "address-in-use"


def parse_address(setting: str, text: str) -> Address:
    """HOST:PORT, with an IPv6 host in brackets. Raises SettingInvalid."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
        raise SettingInvalid(f"{setting}: {text!r} does not fit; it must be HOST:PORT such as 127.0.0.1:9092")
    return Address(host, int(port))


def _ip(address: Address) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(address.host)
    except ValueError:
        return None


def check_loopback(setting: str, option: str, address: Address, *, insecure: bool) -> None:
    """Raise SettingInvalid for an address that others can reach, unless `insecure` was said."""
    if insecure or address.host == "localhost":
        return
    ip = _ip(address)
    if ip is None or not ip.is_loopback:
        raise SettingInvalid(
            f"{setting}: {address} is not loopback, and there is no authentication yet: whoever reaches it can read,"
            f" write and delete everything. Say --insecure if that is what you want, or give {option} 127.0.0.1"
        )


def check_advertised(listen: Address, advertise: str) -> None:
    """Raise SettingInvalid where clients would be told to connect to every address at once, or to none."""
    if advertise:
        if parse_address("kafka.advertise", advertise).port == 0:
            raise SettingInvalid(f"kafka.advertise: {advertise!r} does not fit; clients need its port")
        return
    ip = _ip(listen)
    if ip is not None and ip.is_unspecified:
        raise SettingInvalid(
            f"kafka.advertise: nothing does not fit, because kafka.listen is {listen}; say which HOST:PORT clients"
            " are to connect to"
        )


def bind(door: str, option: str, address: Address) -> socket.socket:
    """A socket bound to the address, not listening yet. Raises AddressInUse naming the door and the option."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address.host, address.port))
    except OSError as error:
        listener.close()
        raise AddressInUse(
            f"the {door} door cannot listen on {address}: {error.strerror or error}; choose another with {option}"
        ) from None
    listener.setblocking(False)
    return listener
