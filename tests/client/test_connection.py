"""A connection to brokers that are not there, say nothing, or say something else."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from duramen.base.errors import ServerUnreachable, SettingInvalid, UnsupportedFeature
from duramen.client import BrokerCluster
from duramen.client.cluster import parse_servers
from duramen.client.connection import BrokerConnection
from duramen.codec.kafka.header import encode_response
from duramen.codec.kafka.messages import REQUESTS, RESPONSES
from duramen.codec.kafka.versions import ApiKey
from duramen.node.process import NodeProcess

Serve = Callable[[Callable[[socket.socket], object]], int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Listens on a port and hands each connection to a function."""
    listeners: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def start(handle: Callable[[socket.socket], object]) -> int:
        listener = socket.create_server(("127.0.0.1", 0))
        listeners.append(listener)

        def run() -> None:
            while True:
                try:
                    connection = listener.accept()[0]
                except OSError:
                    return
                with connection, contextlib.suppress(OSError):
                    handle(connection)

        threads.append(threading.Thread(target=run))
        threads[-1].start()
        return int(listener.getsockname()[1])

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join()


def connect(port: int, timeout_s: float = 0.3) -> BrokerConnection:
    return BrokerConnection("127.0.0.1", port, client_id="test", timeout_s=timeout_s)


def until_closed(connection: socket.socket) -> None:
    while connection.recv(1000):
        pass


def answering(body: bytes) -> Callable[[socket.socket], None]:
    def handle(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.sendall(body)
        until_closed(connection)

    return handle


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ServerUnreachable, match=rf"127\.0\.0\.1:{port} cannot be reached: Connection refused"):
        connect(port)


def test_no_such_host() -> None:
    with pytest.raises(ServerUnreachable, match=r"no-such-host\.invalid:9092 cannot be reached"):
        BrokerConnection("no-such-host.invalid", 9092, client_id="test", timeout_s=60)


def test_silence_ends_with_the_timeout(serve: Serve) -> None:
    port = serve(until_closed)
    began = time.monotonic()
    with pytest.raises(ServerUnreachable, match=rf"127\.0\.0\.1:{port} did not answer within 0.3 s"):
        connect(port)
    assert 0.3 <= time.monotonic() - began < 60


def test_an_answer_byte_by_byte_ends_with_the_timeout_too(serve: Serve) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall((1000).to_bytes(4, "big"))
        while True:
            connection.sendall(b"x")
            time.sleep(0.01)

    with pytest.raises(ServerUnreachable, match=r"did not answer within 0\.3 s"):
        connect(serve(drip))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (b"\xff\xff\xff\xff", "does not speak Kafka's protocol"),
        (b"\0\0\0\x08\0\0\0\x09\0\0\0\0", "its answers do not belong to our requests"),
    ],
)
def test_other_protocols_are_recognised(serve: Serve, body: bytes, message: str) -> None:
    with pytest.raises(ServerUnreachable, match=message):
        connect(serve(answering(body)), timeout_s=60)


def test_a_connection_closed_at_once(serve: Serve) -> None:
    with pytest.raises(ServerUnreachable, match=r"it closed the connection|reset by peer"):
        connect(serve(lambda connection: connection.recv(1)), timeout_s=60)


def test_an_old_broker_is_told_from_a_new_one(serve: Serve) -> None:
    keys = [{"api_key": ApiKey.FETCH, "min_version": 0, "max_version": 11}]
    body = RESPONSES[ApiKey.API_VERSIONS].encode(3, {"error_code": 0, "api_keys": keys})
    connection = connect(serve(answering(encode_response(ApiKey.API_VERSIONS, 3, 1, body))), timeout_s=60)
    with pytest.raises(UnsupportedFeature, match=r"speaks FETCH 0 to 11, .* Kafka 3.1 or newer is needed"):
        connection.version(ApiKey.FETCH)
    connection.close()
    ancient = encode_response(ApiKey.API_VERSIONS, 0, 1, b"\0\x23\0\0\0\0")
    with pytest.raises(UnsupportedFeature, match=r"is too old: Kafka 3\.1 or newer is needed"):
        connect(serve(answering(ancient)), timeout_s=60)


def test_answers_are_told_apart(node: NodeProcess) -> None:
    """A request is answered although the answer to an earlier one has not been taken."""
    host, _, port = node.kafka.rpartition(":")
    connection = BrokerConnection(host, int(port), client_id="test", timeout_s=60)
    body = REQUESTS[ApiKey.DESCRIBE_GROUPS].encode(connection.version(ApiKey.DESCRIBE_GROUPS), {"groups": []})
    earlier = connection.send(ApiKey.DESCRIBE_GROUPS, [body])
    assert connection.request(ApiKey.LIST_GROUPS, {})["error_code"] == 0
    assert connection.receive(earlier)[0] == connection.version(ApiKey.DESCRIBE_GROUPS)
    assert not connection.has_ended
    connection.close()
    assert connection.has_ended


class TestServers:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("127.0.0.1:9092", [("127.0.0.1", 9092)]),
            ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
            ("[::1]:9092", [("::1", 9092)]),
        ],
    )
    def test_are_read(self, text: str, expected: list[tuple[str, int]]) -> None:
        assert parse_servers(text) == expected

    @pytest.mark.parametrize("text", ["", ",", "a", "a:", ":1", "a:x", "a:0", "a:65536", "a:-1", "http://a"])
    def test_that_are_none_are_refused(self, text: str) -> None:
        with pytest.raises(SettingInvalid, match=r"bootstrap\.servers"):
            parse_servers(text)

    def test_one_of_them_is_enough(self, node: NodeProcess, stream_name: str) -> None:
        with BrokerCluster(f"127.0.0.1:1,{node.kafka}", timeout_s=60) as cluster:
            assert cluster.topics([stream_name]) == {}

    def test_none_that_answers_is_said_with_all_of_them(self) -> None:
        began = time.monotonic()
        with (
            pytest.raises(ServerUnreachable, match=r"no broker answered within 0.5 s: 127.0.0.1:1 .*; 127.0.0.1:2 "),
            BrokerCluster("127.0.0.1:1,127.0.0.1:2", timeout_s=0.5) as cluster,
        ):
            cluster.topics()
        assert time.monotonic() - began < 60
