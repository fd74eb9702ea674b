"""Who may ask the node, by which name: DNS rebinding and the pages of others are refused."""

from http.client import HTTPConnection
from pathlib import Path

import pytest
from starlette.datastructures import Headers

from duramen.base.catalogue.catalogue import BROKER
from duramen.base.errors import DuramenError, HostRefused, OriginRefused, SettingInvalid
from duramen.base.settings import Settings
from duramen.doors.http.serving.hosts import Hosts
from duramen.node.process import NodeProcess


def hosts(allowed: str = "", listen: str = "127.0.0.1:9644", *, at: tuple[str, int] = ("127.0.0.1", 9644)) -> Hosts:
    made = Hosts(Settings(BROKER, options={"http.allowed.hosts": allowed, "http.listen": listen}))
    made.listen(*at)
    return made


def refused(by: Hosts, host: str | None, origin: str | None = None) -> type[DuramenError] | None:
    raw = [(b"host", host)] if host is not None else []
    raw += [(b"origin", origin)] if origin is not None else []
    try:
        by.check(Headers(raw=[(name, value.encode("latin-1")) for name, value in raw]))
    except DuramenError as error:
        return type(error)
    return None


@pytest.mark.parametrize(
    "host", ["127.0.0.1:9644", "localhost:9644", "LocalHost:9644", "localhost.:9644", "[::1]:9644", None]
)
def test_the_loopback(host: str | None) -> None:
    assert refused(hosts(), host) is None


@pytest.mark.parametrize(
    "host",
    [
        "evil.example:9644", "evil.example", "localhost", "localhost:1", "127.0.0.1:80", "",
        "localhost.evil.example:9644", "127.0.0.1.evil.example:9644", "192.168.0.7:9644", "x@localhost:9644",
        "localhost:9644/", "localhost:9644:9644", "[::1:9644", "localhost:", "\xff:9644",
    ],
)  # fmt: skip
def test_other_names_at_the_loopback(host: str) -> None:
    assert refused(hosts(), host) is HostRefused


def test_a_door_that_others_reach_is_asked_by_any_address_and_by_no_other_name() -> None:
    wild = hosts(listen="[::]:9644", at=("::", 9644))
    for host in ("192.168.0.7:9644", "10.0.0.1:80", "[2001:db8::1]:9644", "localhost:8080", "127.0.0.1:9644"):
        assert refused(wild, host) is None
    assert refused(wild, "evil.example:9644") is HostRefused
    named = hosts(listen="log.internal:9644", at=("10.0.0.5", 9644))
    assert refused(named, "log.internal:9644") is None
    assert refused(named, "evil.internal:9644") is HostRefused


def test_allowed_names() -> None:
    allowed = hosts("log.example.com, other.example.com:8080,")
    assert refused(allowed, "log.example.com:9644") is refused(allowed, "LOG.example.com") is None
    assert refused(allowed, "other.example.com:8080") is None
    assert refused(allowed, "other.example.com:8081") is refused(allowed, "example.com:9644") is HostRefused
    with pytest.raises(SettingInvalid, match=r"http\.allowed\.hosts: 'a/b' does not fit"):
        hosts("a/b")


@pytest.mark.parametrize(
    ("host", "origin", "expected"),
    [
        ("localhost:9644", "http://localhost:9644", None),
        ("[::1]:9644", "http://[::1]:9644", None),
        ("log.example.com", "https://log.example.com", None),
        ("log.example.com:80", "http://log.example.com", None),
        ("localhost:9644", "http://127.0.0.1:9644", OriginRefused),
        ("localhost:9644", "http://localhost:3000", OriginRefused),
        ("localhost:9644", "http://localhost", OriginRefused),
        ("localhost:9644", "https://evil.example", OriginRefused),
        ("localhost:9644", "null", OriginRefused),
        ("localhost:9644", "", OriginRefused),
        ("localhost:9644", "file://localhost:9644", OriginRefused),
        (None, "http://localhost:9644", OriginRefused),
    ],
)
def test_origins(host: str | None, origin: str, expected: type[DuramenError] | None) -> None:
    assert refused(hosts("log.example.com"), host, origin) is expected


@pytest.mark.parametrize("path", ["/v1/streams", "/metrics", "/healthz", "/nowhere"])
@pytest.mark.parametrize(
    ("headers", "status", "type_"),
    [
        ({"Host": "evil.example"}, 421, "host-refused"),
        ({"Origin": "http://evil.example"}, 403, "origin-refused"),
        ({"Origin": "null"}, 403, "origin-refused"),
    ],
)
def test_at_the_door(node: NodeProcess, path: str, headers: dict[str, str], status: int, type_: str) -> None:
    connection = HTTPConnection(node.http, timeout=60)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Type"]) == (status, "application/problem+json")
    assert f'"type":"{type_}"' in answer.read().decode()
    connection.close()


@pytest.mark.parametrize("type_", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_what_a_form_can_send_is_no_request(node: NodeProcess, stream_name: str, type_: str) -> None:
    connection = HTTPConnection(node.http, timeout=60)
    body = f'{{"name": "{stream_name}"}}'
    connection.request("POST", "/v1/streams", body, {"Content-Type": type_} if type_ else {})
    answer = connection.getresponse()
    assert answer.status == 415
    assert "application/json" in answer.read().decode()
    connection.request("GET", f"/v1/streams/{stream_name}")
    assert connection.getresponse().status == 404
    connection.close()


def test_a_name_that_cannot_be_is_said_at_the_start(tmp_path: Path) -> None:
    process = NodeProcess(tmp_path / "data", {"http.allowed.hosts": "http://x"})
    with pytest.raises(DuramenError, match=r"http\.allowed\.hosts: 'http://x' does not fit"):
        process.start()
