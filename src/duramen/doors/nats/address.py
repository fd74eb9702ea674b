"""The address of a NATS server in the setting `nats.server`. Pure."""

from typing import Final, NamedTuple
from urllib.parse import unquote, urlsplit

from duramen.base.errors import SettingInvalid
from duramen.base.hosts import host_port

__all__ = ["ServerAddress", "parse_server"]

_PORT: Final = 4222
_EXPECTED: Final = "it must be embedded, off, or an address such as nats://127.0.0.1:4222"


class ServerAddress(NamedTuple):
    """The address of a server, and the credentials for it."""

    host: str
    port: int
    user: str = ""
    password: str = ""
    token: str = ""

    def __str__(self) -> str:
        """Without anything secret."""
        return host_port(self.host, self.port)


def parse_server(text: str) -> ServerAddress:
    """`nats://[user:password@|token@]host[:port]`. Raises SettingInvalid, without repeating secrets."""
    shown = "the address" if "@" in text else repr(text)
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise SettingInvalid(f"nats.server: {shown} does not fit; {_EXPECTED}") from None
    if parts.scheme in ("tls", "wss", "ws"):
        raise SettingInvalid(f"nats.server: {parts.scheme}:// is not supported yet; {_EXPECTED}")
    if parts.scheme != "nats" or not host or parts.path not in ("", "/") or parts.query or parts.fragment:
        raise SettingInvalid(f"nats.server: {shown} does not fit; {_EXPECTED}")
    if parts.password is None:
        return ServerAddress(host, port or _PORT, token=unquote(parts.username or ""))
    return ServerAddress(host, port or _PORT, unquote(parts.username or ""), unquote(parts.password))
