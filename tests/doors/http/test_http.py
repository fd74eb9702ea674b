"""The HTTP door: answers, problems, hostile requests."""

import contextlib
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.client import HTTPConnection

import psutil
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.doors.http.conftest import Ask

from duramen.base.catalogue.catalogue import BROKER, STREAM
from duramen.base.metrics import CATALOGUE
from duramen.base.units import MIB
from duramen.doors.http.serving.server import MOST_CONNECTIONS
from duramen.node.process import NodeProcess


def test_the_life_of_a_stream(ask: Ask, stream_name: str) -> None:
    path = f"/v1/streams/{stream_name}"
    wish = {"name": stream_name, "partitions": 2, "config": {"retention.ms": "1h", "durability": "os"}}
    status, created = ask("POST", "/v1/streams", wish)
    assert (status, created["created"], len(created["partitions"])) == (201, True, 2)
    assert created["durability_means"].startswith("acknowledged records are in the operating system's cache")
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


def test_pages_of_streams(ask: Ask, stream_name: str) -> None:
    names = [f"{stream_name}.{number}" for number in range(5)]
    for name in names:
        ask("POST", "/v1/streams", {"name": name})
    path = f"/v1/streams?prefix={stream_name}."
    answered = ask("GET", path)[1]
    assert ([stream["name"] for stream in answered["streams"]], answered["next"]) == (names, None)
    page = ask("GET", f"{path}&limit=2")[1]
    found = [[stream["name"] for stream in page["streams"]]]
    while page["next"] is not None:
        page = ask("GET", f"{path}&limit=2&after={page['next']}")[1]
        found.append([stream["name"] for stream in page["streams"]])
    assert found == [names[:2], names[2:4], names[4:]]
    assert ask("GET", f"{path}&limit=0")[1]["type"] == "request-invalid"


def test_configs(ask: Ask, stream_name: str) -> None:
    ask("POST", "/v1/streams", {"name": stream_name, "config": {"retention.ms": "1h"}})
    configs = {one["name"]: one for one in ask("GET", f"/v1/streams/{stream_name}/configs")[1]["configs"]}
    assert configs.keys() == STREAM.keys()
    retention = configs["retention.ms"]
    assert (retention["value"], retention["source"], retention["default"]) == ("3600000", "stream", "604800000")
    assert (configs["segment.bytes"]["source"], configs["segment.bytes"]["without_effect"]) == ("default", None)
    assert "implie" in configs["flush.messages"]["without_effect"]  # by durability=sync
    settings = {one["name"]: one for one in ask("GET", "/v1/configs")[1]["configs"]}
    assert settings.keys() == BROKER.keys()
    assert settings["group.initial.rebalance.delay.ms"]["source"] == "environment"
    assert settings["node.id"] == {
        "name": "node.id", "value": "1", "source": "default", "default": "1", "doc": BROKER["node.id"].doc,
            "dynamic": False,
    }  # fmt: skip


def test_nodes(ask: Ask, node: NodeProcess) -> None:
    info = ask("GET", "/v1/node")[1]
    assert info["addresses"]["kafka"] == node.kafka
    assert info.pop("followers") == []
    health = info.pop("health")
    assert (health["problem"], health["storage"]) == ("", "writable")
    assert 0 < health["descriptors"] < health["descriptors_limit"]
    assert health["disk_free_bytes"] > 0
    assert health["uptime_seconds"] > 0
    assert ask("GET", "/v1/nodes") == (200, {"nodes": [info]})


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
        ("GET", "/nowhere", None, 404, "there is no path /nowhere"),
        ("PUT", "/v1/streams", b"{}", 405, "/v1/streams takes GET, HEAD, POST, not PUT"),
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
        ("POST", "/v1/streams", b" " * 2_000_000, 413, "at most 131072 bytes"),
        ("DELETE", "/v1/streams/nope", None, 404, "there is no stream nope"),
    ],
)
def test_problems(ask: Ask, method: str, path: str, raw: bytes | None, status: int, said: str) -> None:
    found, problem = ask(method, path, raw=raw)
    assert (found, problem["status"]) == (status, status)
    assert said in problem["detail"]


def test_metrics_are_in_the_catalogue_and_well_formed(node: NodeProcess) -> None:
    connection = HTTPConnection(node.http, timeout=60)
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
        b"POST /v1/streams HTTP/1.1\r\nHost: localhost:PORT\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"POST /v1/streams HTTP/1.1\r\nHost: localhost:PORT\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000 + b"\r\n",
    ],
)
def test_hostile_bytes(node: NodeProcess, ask: Ask, sent: bytes) -> None:
    host, port = node.http.split(":")
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        connection.sendall(sent.replace(b"PORT", port.encode()))
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


class TestWhatIsNeverFinished:
    HEAD = (
        b"POST /v1/streams HTTP/1.1\r\nHost: localhost:PORT\r\n"
        b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    )

    def _connect(self, node: NodeProcess, sent: bytes) -> socket.socket:
        host, port = node.http.split(":")
        connection = socket.create_connection((host, int(port)), timeout=60)
        with contextlib.suppress(OSError):  # a server that closes at once leaves no time to send everything
            connection.sendall(sent.replace(b"PORT", port.encode()))
        return connection

    def _answer(self, connection: socket.socket) -> bytes:
        """What comes until the node closes the connection."""
        answered = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := connection.recv(65536):
                answered += chunk
        connection.close()
        return answered.partition(b"\r\n")[0]

    @pytest.mark.long
    def test_is_closed(self, node: NodeProcess) -> None:
        expected = {
            b"": b"",
            b"GET /healthz HTTP/1.1\r\nHost": b"",
            self.HEAD: b"HTTP/1.1 408 Request Timeout",
            self.HEAD + b"x" * 100_000: b"HTTP/1.1 408 Request Timeout",
            self.HEAD + b"x" * 200_000: f"HTTP/1.1 413 {HTTPStatus(413).phrase}".encode(),
            b"GET /healthz HTTP/1.1\r\nHost: localhost:PORT\r\n\r\n": b"HTTP/1.1 200 OK",
            self.HEAD.replace(b"POST /v1/streams", b"GET /healthz"): b"HTTP/1.1 200 OK",
        }
        connections = {sent: self._connect(node, sent) for sent in expected}
        assert {sent: self._answer(connection) for sent, connection in connections.items()} == expected

    @pytest.mark.parametrize(
        "sent", [b"GET /healthz HTTP/1.1\r\n", pytest.param(HEAD + b"x" * 200_000, marks=pytest.mark.long)]
    )
    def test_is_closed_although_more_comes(self, node: NodeProcess, sent: bytes) -> None:
        """Drop by drop: neither a head, nor a body that is answered already, is waited for without end."""
        connection = self._connect(node, sent)
        drop = threading.Event()

        def go_on() -> None:
            while not drop.wait(0.02):
                connection.sendall(b"x")

        with pytest.raises(OSError, match=r"Broken pipe|reset"):
            go_on()
        connection.close()

    @pytest.mark.long
    def test_of_many_does_not_fill_the_memory(self, new_node: Callable[..., NodeProcess]) -> None:
        node = new_node().start()
        process = psutil.Process(node.pid)
        idle_bytes = process.memory_info().rss
        connections = [self._connect(node, self.HEAD + b"x" * 900_000) for _ in range(300)]
        assert process.memory_info().rss - idle_bytes < 48 * MIB
        answers = {self._answer(connection)[:12] for connection in connections}
        assert answers <= {b"HTTP/1.1 413", b"HTTP/1.1 503", b""}
        assert self._answer(self._connect(node, b"GET /readyz HTTP/1.0\r\n\r\n")) == b"HTTP/1.1 200 OK"

    @pytest.mark.long
    def test_of_many_is_refused(self, new_node: Callable[..., NodeProcess]) -> None:
        node = new_node().start()
        connections = [self._connect(node, self.HEAD) for _ in range(MOST_CONNECTIONS + 20)]
        answers = [self._answer(connection) for connection in connections]
        waited = answers.count(b"HTTP/1.1 408 Request Timeout")
        assert 0 < waited < MOST_CONNECTIONS
        assert answers.count(b"HTTP/1.1 503 Service Unavailable") == len(connections) - waited
        assert self._answer(self._connect(node, b"GET /readyz HTTP/1.0\r\n\r\n")) == b"HTTP/1.1 200 OK"
        assert "ERROR" not in node.log_path.read_text()
