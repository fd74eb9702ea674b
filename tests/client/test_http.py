"""One question to a node's HTTP door, and what becomes of its answer, byte by byte."""

import itertools
import socket
import threading
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import (
    MemberIdRequired,
    NodeStarting,
    RequestInvalid,
    ServerUnreachable,
    SettingInvalid,
    StreamNotFound,
)
from duramen.client.http import HttpExchange, HttpNode
from duramen.node.process import NodeProcess

WHOLE = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'
CHUNKED = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{"a\r\n5\r\n": 1}\r\n0\r\n\r\n'
UNTIL_CLOSED = b'HTTP/1.0 200 OK\r\n\r\n{"a": 1}'


def problem(status: int, content: bytes) -> HttpExchange:
    exchange = HttpExchange("127.0.0.1:1", "GET", "/v1/node")
    assert exchange.take(b"HTTP/1.1 %d Oops\r\nContent-Length: %d\r\n\r\n%s" % (status, len(content), content))
    return exchange


@given(answer=st.sampled_from([WHOLE, CHUNKED, UNTIL_CLOSED]), cuts=st.lists(st.integers(0, 90)))
def test_an_answer_in_any_pieces(answer: bytes, cuts: list[int]) -> None:
    exchange = HttpExchange("127.0.0.1:1", "GET", "/v1/node")
    places = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    pieces = [answer[start:end] for start, end in itertools.pairwise(places) if start < end]
    done = [exchange.take(piece) for piece in pieces]
    assert not any(done[:-1])
    assert done[-1] is (answer is not UNTIL_CLOSED)
    assert done[-1] or exchange.take(b"")
    assert exchange.answer() == {"a": 1}


def test_a_question_with_a_document() -> None:
    question = HttpExchange("[::1]:9644", "POST", "/v1/streams", {"name": "é"}).question
    head, _, body = question.partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/streams HTTP/1.1\r\nHost: [::1]:9644\r\n")
    assert b"Content-Length: %d" % len(body) in head
    assert body == b'{"name": "\\u00e9"}'


def test_a_path_that_cannot_be_asked_for() -> None:
    with pytest.raises(RequestInvalid, match="cannot be asked over HTTP"):
        HttpExchange("127.0.0.1:1", "GET", "/v1/a\r\nb")


def test_errors_are_those_that_the_node_names() -> None:
    with pytest.raises(StreamNotFound, match=r"^there is no stream x$"):
        problem(404, b'{"type": "stream-not-found", "detail": "there is no stream x"}').answer()
    with pytest.raises(NodeStarting, match="not ready: it starts"):
        problem(503, b'{"type": "node-starting", "detail": "it starts"}').answer()
    with pytest.raises(RequestInvalid, match=r"^new$"):
        problem(400, b'{"type": "of-a-newer-version", "detail": "new"}').answer()
    with pytest.raises(MemberIdRequired):
        problem(400, b'{"type": "member-id-required", "detail": "again"}').answer()
    with pytest.raises(ServerUnreachable, match=r"not a Duramen node \(HTTP 404\)"):
        problem(404, b"<html>").answer()


@pytest.mark.parametrize("answer", [b"+PONG\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"])
def test_others_that_answer(answer: bytes) -> None:
    exchange = HttpExchange("127.0.0.1:1", "GET", "/v1/node")
    with pytest.raises(ServerUnreachable, match=r"^what listens at 127\.0\.0\.1:1 is not a Duramen node$"):
        (exchange.take(answer), exchange.answer())


@pytest.mark.parametrize(
    ("ask", "end"),
    [
        (
            lambda server: server.get("/v1/streams"),
            r"did not answer GET /v1/streams \(the node closed the connection\)$",
        ),
        (lambda server: server.delete("/v1/streams/x"), r"; it may have been done all the same$"),
    ],
)
def test_a_lost_answer_says_what_may_have_been_done(ask: Callable[[HttpNode], object], end: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1000)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(ServerUnreachable, match=end):
            ask(HttpNode(f"127.0.0.1:{listener.getsockname()[1]}"))
        thread.join()


def test_addresses() -> None:
    assert HttpNode("http://localhost:9644/").address == "localhost:9644"
    with pytest.raises(SettingInvalid, match=r"^server: 'localhost' does not fit; it must be HOST:PORT such as"):
        HttpNode("localhost")


def test_where_the_kafka_door_is(node: NodeProcess) -> None:
    assert HttpNode(node.http).kafka() == node.kafka
    somewhere = HttpNode("10.0.0.1:9644")
    assert somewhere.kafka_of({"addresses": {"kafka": "0.0.0.0:9092"}}) == "10.0.0.1:9092"
    assert somewhere.kafka_of({"addresses": {"kafka": "[::]:9092"}}) == "10.0.0.1:9092"
    assert somewhere.kafka_of({"addresses": {"kafka": "kafka.example:9092"}}) == "kafka.example:9092"


def test_questions_share_a_connection_until_the_node_closes_it() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        heads, connections = list[bytes](), list[int]()

        def answer() -> None:
            for number in range(2):
                connection, _ = listener.accept()
                with connection:
                    for _ in range(2):
                        heads.append(connection.recv(10_000))
                        connections.append(number)
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

        thread = threading.Thread(target=answer)
        thread.start()
        server = HttpNode(f"127.0.0.1:{listener.getsockname()[1]}", keep=True)
        assert [server.get("/v1/node") for _ in range(2)] == [{}, {}]
        while connections != [0, 0]:
            thread.join(0.01)
        thread.join(0.2)  # the connection is closed: the next question needs another
        assert [server.get("/v1/node") for _ in range(2)] == [{}, {}]
        server.close()
        thread.join()
    assert connections == [0, 0, 1, 1]
    assert not any(b"Connection: close" in head for head in heads)
