"""The HTTP door: answers, problems, hostile requests."""

import json
import socket
from collections.abc import Callable
from http.client import HTTPConnection
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from duramen.base.metrics import CATALOGUE
from duramen.node.process import NodeProcess

Ask = Callable[..., tuple[int, Any]]


@pytest.fixture
def ask(node: NodeProcess) -> Ask:
    """Sends a request; gives the status and the JSON of the answer."""

    def send(method: str, path: str, body: object = None, raw: bytes | None = None) -> tuple[int, Any]:
        connection = HTTPConnection(node.http, timeout=30)
        connection.request(method, path, raw if raw is not None else None if body is None else json.dumps(body))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, json.loads(content) if content else None

    return send


def test_the_life_of_a_stream(ask: Ask, stream_name: str) -> None:
    path = f"/v1/streams/{stream_name}"
    wish = {"name": stream_name, "partitions": 2, "config": {"retention.ms": "1h", "durability": "os"}}
    status, created = ask("POST", "/v1/streams", wish)
    assert (status, created["created"], len(created["partitions"])) == (201, True, 2)
    assert created["durability_means"].startswith("acknowledged records are in the operating system's hands")
    assert ask("POST", "/v1/streams", wish)[0] == 200
    status, differs = ask("POST", "/v1/streams", {**wish, "partitions": 3})
    assert (status, differs["type"]) == (409, "stream-differs")
    status, changed = ask("PATCH", path, {"config": {"retention.ms": None, "segment.bytes": 5000}, "partitions": 3})
    assert (status, changed["config"]) == (200, {"durability": "os", "segment.bytes": "5000"})
    assert len(changed["partitions"]) == 3
    status, described = ask("GET", path)
    assert (status, described["id"]) == (200, created["id"])
    assert stream_name in [stream["name"] for stream in ask("GET", "/v1/streams")[1]["streams"]]
    assert ask("DELETE", path) == (204, None)
    assert ask("GET", path)[0] == 404


@pytest.mark.parametrize(
    "change",
    [
        {"config": {"retention.ms": "1h"}, "partitions": 1},
        {"config": {"retention.ms": "1h"}, "partitions": 1_000_000},
        {"config": {"retention.ms": "soon"}, "partitions": 3},
        {"config": {"retention.ms": "1h", "retention": "1h"}, "partitions": 3},
    ],
)
def test_a_change_that_is_refused_changes_nothing(ask: Ask, stream_name: str, change: object) -> None:
    path = f"/v1/streams/{stream_name}"
    ask("POST", "/v1/streams", {"name": stream_name, "partitions": 2})
    before = ask("GET", path)
    assert ask("PATCH", path, change)[0] == 400
    assert ask("GET", path) == before


@pytest.mark.parametrize(
    ("method", "path", "raw", "status", "said"),
    [
        ("GET", "/v1/streams/nope", None, 404, "there is no stream nope"),
        ("GET", "/nowhere", None, 404, "Not Found"),
        ("PUT", "/v1/streams", b"{}", 405, "Method Not Allowed"),
        ("POST", "/v1/streams", b"", 400, "the body does not fit"),
        ("POST", "/v1/streams", b"\xff\xfe", 400, "the body does not fit"),
        ("POST", "/v1/streams", b'{"name": 5}', 400, "Expected `str`, got `int`"),
        ("POST", "/v1/streams", b'{"name": "x", "partition": 5}', 400, "unknown field `partition`"),
        ("POST", "/v1/streams", b'{"name": "x/y"}', 400, "the name 'x/y' does not fit"),
        ("POST", "/v1/streams", b'{"name": "__consumer_offsets"}', 400, "__ begins the broker's own"),
        ("POST", "/v1/streams", b'{"name": "x", "partitions": 1000000000}', 400, "1 to 100000 partitions"),
        ("POST", "/v1/streams", b'{"name": "x", "partitions": -1}', 400, "1 to 100000 partitions"),
        ("POST", "/v1/streams", b'{"name": "x", "subjects": ["a.>.b"]}', 400, "has a '>' that is not its last token"),
        ("POST", "/v1/streams", b"[" * 100_000, 400, "the body does not fit"),
        ("POST", "/v1/streams", b" " * 2_000_000, 413, "at most 1048576 bytes"),
        ("DELETE", "/v1/streams/nope", None, 404, "there is no stream nope"),
    ],
)
def test_problems(ask: Ask, method: str, path: str, raw: bytes | None, status: int, said: str) -> None:
    found, problem = ask(method, path, raw=raw)
    assert (found, problem["status"]) == (status, status)
    assert said in problem["detail"]


def test_metrics_are_in_the_catalogue_and_well_formed(node: NodeProcess) -> None:
    connection = HTTPConnection(node.http, timeout=30)
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.headers["Content-Type"].startswith("text/plain")
    families = list(text_string_to_metric_families(answer.read().decode()))
    connection.close()
    known = {metric.name.removesuffix("_total"): metric for metric in CATALOGUE}
    assert families
    for family in families:
        assert family.type == known[family.name].kind
        assert family.documentation == known[family.name].doc


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x00\x00\x10garbage-of-kafka",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/streams HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/streams HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
    ],
)
def test_hostile_bytes(node: NodeProcess, ask: Ask, sent: bytes) -> None:
    host, port = node.http.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        answered = b""
        try:
            while chunk := connection.recv(65536):
                answered += chunk
        except ConnectionResetError:
            pass
    assert b"Traceback" not in answered
    assert ask("GET", "/v1/node")[0] == 200
    assert "Traceback" not in node.log_path.read_text()
