"""Servers and publishers that mean no good: nobody else notices."""

import asyncio
import contextlib
import importlib
import json
import random
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.aio.client import Client
from tests.doors.nats.conftest import Api, kafka_records, run, until
from tests.doors.nats.servers import Impostor, Server

from duramen.node.process import NodeProcess

psutil: Any = importlib.import_module("psutil")  # it has no types

_INFO = b'INFO {"server_id":"x","headers":true,"version":"2.15.1","max_payload":1048576}\r\n'
_SIZES = [
    b"0",
    b"1",
    b"5",
    b"1000",
    b"8388608",
    b"67108864",
    b"67108865",
    b"999999999",
    b"9999999999",
    b"-1",
    b"x",
    b"",
]


def _server_words(rng: random.Random) -> list[bytes]:
    """What a server says that goes mad as soon as its visitor has subscribed."""
    words = []
    for _ in range(rng.randrange(1, 30)):
        size, other = rng.choice(_SIZES), rng.choice(_SIZES)
        words.append(
            rng.choice(
                [
                    b"MSG a 1 r 5\r\nhello\r\n",
                    b"MSG a 1 %b\r\n" % size + rng.randbytes(rng.randrange(2000)),
                    b"MSG  1 %b\r\n\r\n" % size,
                    b"MSG a 1 r r r %b\r\n" % size,
                    b"HMSG a 1 r %b %b\r\nNATS/1.0\r\n\r\n" % (size, other) + rng.randbytes(rng.randrange(200)),
                    b"HMSG a 1 r 30 30\r\nNATS/1.0\r\nNats-TTL\xff: 1\r\n\r\n\r\n",
                    b"MSG %b 1 1\r\nx\r\n" % (b"a" * rng.choice([1, 4000, 70_000])),
                    b"PING\r\n" * rng.randrange(200),
                    b"PONG\r\n" * rng.randrange(20),
                    b"+OK\r\n",
                    b"-ERR 'Permissions Violation for Subscription to \"a\"'\r\n",
                    b"-ERR '" + rng.randbytes(50).replace(b"\r", b"") + b"'\r\n",
                    b"INFO {" + rng.randbytes(20) + b"\r\n",
                    b'INFO {"max_payload":"x","headers":[1]}\r\n',
                    rng.randbytes(rng.randrange(100)),
                    b"\r\n",
                ]
            )
        )
    said = b"".join(words)
    return [_INFO, b"PONG\r\n", b"PONG\r\n" + said[: rng.randrange(len(said) // 2, len(said) + 1)]]


@pytest.mark.long
def test_a_server_gone_mad(new_node: Callable[..., NodeProcess], tmp_path: Path) -> None:
    server = Server(tmp_path)
    server.start()
    try:
        settings = {"nats.server": f"nats://{server.address}", "memory.limit.bytes": "128MiB"}
        node = new_node(settings).start()
        api = Api(node)
        api.create("s", "a", config={"durability": "memory"})
        server.stop()
        until(lambda: api.ready()[0] == 503)
        rng = random.Random(7)
        mad = Impostor(server.port, [_server_words(rng) for _ in range(12)])
        mad.start()
        mad.join(60)
        assert not mad.is_alive()
        assert psutil.Process(node.pid).memory_info().rss < 128 << 20
        server.start()
        until(lambda: api.ready()[0] == 200)

        async def test(client: Client) -> None:
            assert json.loads((await client.request("a", b"x", timeout=60)).data)["stream"] == "s"

        run(test, server.address)
        assert "Traceback" not in node.log_path.read_text()
    finally:
        server.stop()


def _publisher_words(rng: random.Random, prefix: bytes) -> bytes:
    """What a publisher that means no good says to a real server."""
    words = [b'CONNECT {"headers":true,"no_responders":true,"verbose":false,"pedantic":false}\r\n']
    names = [
        b"Nats-Msg-Id",
        b"Duramen-Key",
        b"Nats-TTL\xff",
        b"Nats-Expected-Stream",
        b"Nats-Subject",
        b"\xff\xfe",
        b" ",
    ]
    for _ in range(rng.randrange(1, 60)):
        subject = (
            prefix + b"." + rng.choice([b"a", b"\xff\xfe", b"..", b"x" * 3000, b"\x01", b"a.b.c" * 20, b"%s", b"{}"])
        )
        reply = rng.choice([b"", prefix + b".a ", b"r." + b"y" * 3000 + b" ", b"\xff ", b"$JS.API.x ", b"> "])
        body = rng.randbytes(rng.choice([0, 1, 100, 10_000]))
        lines = [b"NATS/1.0"]
        for name in rng.choices(names, k=rng.randrange(5)):
            lines += [name + rng.choice([b":", b": ", b""]) + rng.randbytes(rng.randrange(20))]
        block = b"\r\n".join([*lines, b"", b""])
        words.append(
            rng.choice(
                [
                    b"PUB %b %b%d\r\n%b\r\n" % (subject, reply, len(body), body),
                    b"HPUB %b %b%d %d\r\n%b%b\r\n" % (subject, reply, len(block), len(block + body), block, body),
                    b"HPUB %b %b%d %d\r\n%b%b\r\n" % (subject, reply, len(block) // 2, len(block + body), block, body),
                    b"PING\r\n",
                ]
            )
        )
    words.append(
        rng.choice([b"", b"PUB %b.a 99999999999\r\n" % prefix, b"PUB %b.a 1000\r\nhalf" % prefix, b"\xff\r\n"])
    )
    return b"".join(words)


def test_publishers_that_mean_no_good_harm_no_other(nats_node: NodeProcess, api: Api, prefix: str) -> None:
    api.create(prefix, f"{prefix}.>")
    api.create(f"{prefix}-strict", f"{prefix}.>", config={"cleanup.policy": "compact", "nats.ack": "never"})
    host, _, port = nats_node.nats.rpartition(":")
    rng = random.Random(11)
    rss_before = psutil.Process(nats_node.pid).memory_info().rss

    def harm() -> None:
        for _ in range(80):
            with socket.create_connection((host, int(port))) as connection, contextlib.suppress(OSError):
                connection.settimeout(5)
                connection.sendall(_publisher_words(rng, prefix.encode()))
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

    async def test(client: Client) -> None:
        harming = asyncio.create_task(asyncio.to_thread(harm))
        offsets: list[int] = []
        while not harming.done() or len(offsets) < 100:
            headers = {"Duramen-Key": "k", "Good": f"{len(offsets)}"}
            ack = json.loads((await client.request(f"{prefix}.good", b"good", timeout=60, headers=headers)).data)
            offsets.append(ack["offset"])
        await harming
        assert offsets == sorted(set(offsets))
        messages = kafka_records(nats_node, prefix, api.ends(prefix))
        assert len(messages) > len(offsets)
        good = [message for message in messages if message.offset() in set(offsets)]
        assert [dict(message.headers() or [])["Good"] for message in good] == [b"%d" % n for n in range(len(offsets))]

    run(test, nats_node.nats)
    assert api.gaps(prefix)["count"] == 0
    assert "Traceback" not in nats_node.log_path.read_text()
    assert psutil.Process(nats_node.pid).memory_info().rss < rss_before + (64 << 20)


def test_a_subject_that_is_too_long_for_the_server_is_given_up_and_the_others_go_on(
    tmp_path: Path, new_node: Callable[..., NodeProcess]
) -> None:
    server = Server(tmp_path, "max_control_line: 700")
    server.start()
    try:
        node = new_node({"nats.server": f"nats://{server.address}"})
        api = Api(node.start())
        api.create("good", "good.>")
        for number in range(2):
            api.create(f"bad{number}", f"bad{number}." + "x" * (800 + number))

        async def publish(client: Client) -> None:
            answered = json.loads((await client.request("good.x", b"x", timeout=60)).data)
            assert answered["stream"] == "good"

        def taken() -> bool:
            """Between two tries the door is away for a moment."""
            with contextlib.suppress(nats.errors.Error):
                run(publish, server.address)
                return True
            return False

        until(lambda: "refuses the subscription to bad" in api.ready()[1])
        until(taken)
        said = node.log_path.read_text()
        assert all(f"the subject bad{number}.xxx" in said for number in range(2))
        for number in range(2):
            api.delete(f"bad{number}")
        until(lambda: api.ready()[0] == 200)
        until(taken)
    finally:
        server.stop()
