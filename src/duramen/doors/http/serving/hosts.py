"""The host names by which a request may address the node, and the origins of web pages that may send requests.

Any web page can make a browser send requests to this node: by the node's own address, which `Origin` reveals; or by a
name of the page's domain that resolves to this machine (DNS rebinding), which `Host` reveals. A name can be rebound, an
address cannot.
"""

import ipaddress
import re
from typing import Final, NamedTuple

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from duramen.base.errors import HostRefused, OriginRefused, SettingInvalid
from duramen.base.settings import Settings
from duramen.doors.http.serving.problems import answer_with
from duramen.doors.problems import problem_of

__all__ = ["AllowedHost", "Guard", "Hosts", "parse_place"]

_PLACE: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]/@?#\s]+)(?::([0-9]{1,5}))?")
_SCHEMES: Final = {"http": 80, "https": 443}
_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_SHOWN: Final = 80  # characters of a name that a refusal repeats


class AllowedHost(NamedTuple):
    """A host in lower case without brackets, and an optional port."""

    host: str
    port: int | None


def parse_place(text: str) -> AllowedHost | None:
    """`HOST` or `HOST:PORT`, an IPv6 address in brackets; None if it is neither."""
    found = _PLACE.fullmatch(text.strip().lower())
    if found is None:
        return None
    return AllowedHost(found[1].strip("[]").removesuffix("."), int(found[2]) if found[2] else None)


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class Hosts:
    """The accepted names: listening addresses, loopback names, and those of `http.allowed.hosts`."""

    def __init__(self, settings: Settings) -> None:
        """Raises SettingInvalid."""
        listened = map(parse_place, settings.text("http.listen").split(","))
        self._listened = {place.host for place in listened if place is not None}
        self._allowed: set[AllowedHost] = set()
        for name in settings.text("http.allowed.hosts").split(","):
            place = parse_place(name)
            if place is not None:
                self._allowed.add(place)
            elif name.strip():
                raise SettingInvalid(
                    f"http.allowed.hosts: {name.strip()[:_SHOWN]!r} does not fit; it must be names such as"
                    " log.example.com or log.example.com:9644, with commas between them"
                )
        self._ports: set[int] = set()
        self._reached_by_others = False

    def listen(self, host: str, port: int) -> None:
        """Add a listening address."""
        self._ports.add(port)
        ip = _ip(host)
        self._reached_by_others |= ip is None or not ip.is_loopback
        self._listened.add(host)

    def check(self, headers: Headers) -> None:
        """Raise HostRefused or OriginRefused for a request that another site may have caused."""
        said = headers.get("host")
        place = parse_place(said) if said else None
        if said is not None and (place is None or not self._own(place)):
            raise HostRefused(
                f"this node is not {said[:_SHOWN]}: use an address or localhost, or add the name to http.allowed.hosts"
            )
        for origin in headers.getlist("origin"):
            if place is None or not _same(origin, place):
                raise OriginRefused(f"pages of {origin[:_SHOWN]} may not send requests to this node")

    def _own(self, place: AllowedHost) -> bool:
        if place in self._allowed or AllowedHost(place.host, None) in self._allowed:
            return True
        if self._reached_by_others:
            # Neither the machine's address nor a forwarded port is known here.
            return place.host in _LOCAL or place.host in self._listened or _ip(place.host) is not None
        port = _SCHEMES["http"] if place.port is None else place.port
        return port in self._ports and (place.host in _LOCAL or place.host in self._listened)


def _same(origin: str, place: AllowedHost) -> bool:
    """Whether a page of `origin` was served by the host of this request."""
    scheme, separator, rest = origin.strip().lower().partition("://")
    asking = parse_place(rest)
    if not separator or scheme not in _SCHEMES or asking is None:
        return False
    usual = _SCHEMES[scheme]
    return (asking.host, asking.port or usual) == (place.host, place.port or usual)


class Guard:
    """Rejects requests that `hosts` refuses."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry point: pass the request on, or refuse it."""
        answering = self._app
        try:
            self._hosts.check(Headers(scope=scope))
        except (HostRefused, OriginRefused) as error:
            answering = answer_with(problem_of(error, scope["path"]))
        await answering(scope, receive, send)
