"""A node and its NATS server through starts, stops, deaths and strangers."""

import asyncio
import contextlib
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.aio.client import Client
from tests.doors.nats.conftest import Api, kafka_records, run, until
from tests.doors.nats.servers import Impostor, Server

from duramen.base.errors import ServerUnreachable
from duramen.doors.cluster.secret import SECRET_BYTES, make_secret
from duramen.node.process import NodeProcess, hold_port

psutil: Any = importlib.import_module("psutil")  # it has no types

NewNode = Callable[..., NodeProcess]


def _server_of(node: NodeProcess) -> Any:
    (child,) = [child for child in psutil.Process(node.pid).children() if child.name() == "nats-server"]
    return child


async def _publish(client: Client) -> None:
    """Publish to `a` until it is acknowledged."""
    async with asyncio.timeout(60):
        while True:
            try:
                await client.request("a", b"x", timeout=5)
            except (nats.errors.Error, ConnectionError):
                await asyncio.sleep(0.05)
            else:
                return


def _now_ms() -> int:
    return int(time.time() * 1000)


def _gone(process: Any) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


@pytest.fixture
def node(new_node: NewNode) -> NodeProcess:
    """A node of the test's own with an embedded nats-server, started."""
    return new_node({"nats.server": "embedded"}).start()


@pytest.fixture
def new_server(tmp_path: Path) -> Iterator[Callable[[str], Server]]:
    """Makes servers that end with the test."""
    made: list[Server] = []

    def make(config: str) -> Server:
        made.append(Server(tmp_path, config))
        return made[-1]

    yield make
    for server in made:
        server.stop()


# -- the server that belongs to the node ------------------------------------------------------------


def test_the_server_ends_with_the_node_that_stops(node: NodeProcess) -> None:
    server = _server_of(node)
    assert os.getsid(server.pid) != os.getsid(node.pid)
    assert node.stop() == 0
    assert _gone(server)
    assert "Traceback" not in node.log_path.read_text()


def test_the_server_ends_with_the_node_that_is_killed(node: NodeProcess) -> None:
    server = _server_of(node)
    node.kill()
    until(lambda: _gone(server))
    address = node.nats
    assert node.restart().nats == address


@pytest.mark.long
def test_a_server_that_dies_is_started_again_and_the_gap_is_kept(node: NodeProcess) -> None:
    api = Api(node)
    api.create("s", "a")
    created_ms = api.describe("s")["created_at_ms"]
    server = _server_of(node)

    async def test(client: Client) -> None:
        await client.request("a", b"1", timeout=60)
        before_ms = _now_ms()
        server.kill()
        after_ms = _now_ms()
        await _publish(client)
        (gap,) = api.gaps("s")["recent"]
        assert gap["cause"] == "server restart"
        assert created_ms <= gap["start_ms"] <= after_ms
        assert before_ms <= gap["end_ms"] <= _now_ms()

    run(test, node.nats, max_reconnect_attempts=-1, reconnect_time_wait=0.05)
    assert _server_of(node).pid != server.pid
    assert api.metric("duramen_nats_server_restarts_total") == 1
    assert api.metric("duramen_nats_gaps_total", stream="s") == 1
    assert api.metric("duramen_nats_gap_seconds_total", stream="s") > 0
    assert api.ready()[0] == 200
    kept = api.gaps("s")
    assert (kept["count"], kept["total_ms"] > 0) == (1, True)
    node.kill()
    node.restart()
    assert api.gaps("s")["recent"][0] == kept["recent"][0]
    until(lambda: api.metric("duramen_nats_gaps_total", stream="s") == 2)


@pytest.mark.long
def test_a_port_that_is_taken_is_a_clear_error(new_node: NewNode) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ServerUnreachable, match=rf"the NATS door cannot listen on 127.0.0.1:{port}") as raised:
            new_node({"nats.server": "embedded", "nats.listen": f"127.0.0.1:{port}"}).start()
    assert "Traceback" not in str(raised.value)
    assert "--nats-listen" in str(raised.value)


@pytest.mark.long
def test_a_node_that_cannot_start_leaves_no_server_behind(new_node: NewNode, node: NodeProcess) -> None:
    other = new_node({"nats.server": "embedded"})  # on the directory that the first one holds
    with pytest.raises(ServerUnreachable, match="in use by another node"):
        other.start()
    assert _server_of(node).is_running()


# -- starts and stops -------------------------------------------------------------------------------


def test_a_restart_is_a_gap_of_the_streams_there_were(node: NodeProcess) -> None:
    api = Api(node)
    api.create("s", "a")
    api.create("unbound")
    assert api.gaps("s") == {"count": 0, "total_ms": 0, "recent": []}
    assert api.gaps("unbound") is None
    stopped_ms = _now_ms()
    node.stop()
    node.restart()
    (stop,) = api.gaps("s")["recent"]
    assert stop["cause"] == "restart"
    assert stopped_ms <= stop["start_ms"] < stop["end_ms"]
    api.create("later", "b")
    assert api.gaps("later")["count"] == 0


@pytest.mark.long
def test_after_kill_9_the_gap_begins_at_the_last_moment_known(node: NodeProcess) -> None:
    api = Api(node)
    api.create("s", "a")
    noted = node.data_dir / "nats" / "listened-until"
    until(lambda: int(noted.read_text()) > api.describe("s")["created_at_ms"])
    node.kill()
    killed_ms = _now_ms()
    known_ms = int(noted.read_text())
    node.restart()
    (gap,) = api.gaps("s")["recent"]
    assert gap["start_ms"] == known_ms <= killed_ms < gap["end_ms"]


def test_ids_are_known_and_acknowledged_messages_are_there_after_kill_9(node: NodeProcess) -> None:
    api = Api(node)
    api.create("s", "a.>", partitions=3)
    acks: dict[int, dict[str, Any]] = {}

    async def publish(client: Client) -> None:
        async def one(number: int) -> None:
            headers = {"Nats-Msg-Id": f"id-{number}"}
            try:
                answer = await client.request(f"a.{number % 7}", b"%d" % number, timeout=5, headers=headers)
            except (nats.errors.Error, ConnectionError):
                return
            acks.setdefault(number, json.loads(answer.data))

        await one(0)
        killer = threading.Timer(0.3, node.kill)
        killer.start()
        for start in range(1, 100_000, 200):
            await asyncio.gather(*(one(number) for number in range(start, start + 200)))
            if not node.running:
                break
        killer.join()

    run(publish, node.nats, allow_reconnect=False)
    node.restart()
    assert acks

    async def repeat(client: Client) -> None:
        numbers = list(acks)[-500:]
        for number in numbers:
            headers = {"Nats-Msg-Id": f"id-{number}"}
            answer = await client.request(f"a.{number % 7}", b"%d" % number, timeout=60, headers=headers)
            assert json.loads(answer.data) == acks[number] | {"duplicate": True}

    run(repeat, node.nats)
    ends = api.ends("s")
    there = {(message.partition(), message.offset()): message.value() for message in kafka_records(node, "s", ends)}
    for number, ack in acks.items():
        assert there[ack["partition"], ack["offset"]] == b"%d" % number
    assert len(set(there.values())) == len(there)


def test_sigterm_drains_what_was_taken(node: NodeProcess) -> None:
    api = Api(node)
    api.create("s", "a", partitions=2)
    outcomes: dict[int, tuple[int, int] | str] = {}

    async def publish(client: Client) -> None:
        async def one(number: int) -> None:
            try:
                answer = await client.request("a", b"%d" % number, timeout=20, headers={"Duramen-Key": f"{number}"})
            except (nats.errors.Error, ConnectionError) as error:
                outcomes[number] = type(error).__name__
                return
            said = json.loads(answer.data)
            outcomes[number] = "error" if "error" in said else (said["partition"], said["offset"])

        async def publisher(first: int) -> None:
            for number in range(first, 100_000, 50):
                await one(number)
                if not node.running:
                    break

        await one(0)
        stopper = threading.Timer(0.4, node.signal, [signal.SIGTERM])
        stopper.start()
        await asyncio.gather(*map(publisher, range(1, 51)))
        stopper.join()

    started = time.monotonic()
    run(publish, node.nats, allow_reconnect=False)
    assert node.wait() == 0
    assert time.monotonic() - started < 60
    assert "not closed" not in node.log_path.read_text()
    node.restart()
    messages = kafka_records(node, "s", api.ends("s"))
    there = {(message.partition(), message.offset()): message.value() for message in messages}
    acknowledged = {number: place for number, place in outcomes.items() if isinstance(place, tuple)}
    assert acknowledged
    for number, place in acknowledged.items():
        assert there[place] == b"%d" % number
    # It was unsubscribed before anything else ended: what was stored was acknowledged.
    assert len(there) == len(acknowledged)


# -- a server elsewhere -----------------------------------------------------------------------------


def test_a_server_elsewhere_with_a_password(new_server: Callable[[str], Server], new_node: NewNode) -> None:
    server = new_server("authorization { user: me, password: 's3cret/@' }")
    server.start()
    node = new_node({"nats.server": f"nats://me:s3cret%2F%40@{server.address}"}).start()
    assert node.nats == server.address
    api = Api(node)
    api.create("s", "a")

    async def test(client: Client) -> None:
        assert json.loads((await client.request("a", b"x", timeout=60)).data)["seq"] == 1

    run(test, server.address, user="me", password="s3cret/@")
    server.stop()
    until(lambda: api.ready()[0] == 503)
    status, reason = api.ready()
    assert (status, "s3cret" in reason) == (503, False)
    assert api.gaps("s")["recent"][0]["end_ms"] is None
    server.start()
    until(lambda: api.ready()[0] == 200)
    run(_publish_again, server.address, user="me", password="s3cret/@")
    (gap,) = api.gaps("s")["recent"]
    assert (gap["cause"], gap["end_ms"] > gap["start_ms"]) == ("reconnect", True)
    assert "s3cret" not in node.log_path.read_text()


async def _publish_again(client: Client) -> None:
    assert json.loads((await client.request("a", b"x", timeout=60)).data)["seq"] == 2


def test_a_token(new_server: Callable[[str], Server], new_node: NewNode) -> None:
    server = new_server("authorization { token: abc }")
    server.start()
    api = Api(new_node({"nats.server": f"nats://abc@{server.address}"}).start())
    assert api.ready()[0] == 200


def test_tls_is_refused_with_one_line(new_node: NewNode) -> None:
    with pytest.raises(ServerUnreachable, match="tls:// is not supported yet") as raised:
        new_node({"nats.server": "tls://127.0.0.1:1"}).start()
    assert "Traceback" not in str(raised.value)


@pytest.mark.long
def test_a_subscription_that_is_not_allowed_makes_the_node_unready(
    new_server: Callable[[str], Server], new_node: NewNode
) -> None:
    server = new_server(
        "authorization { users: [{ user: me, password: pw, permissions: { subscribe: { deny: ['secret.>'] } } },"
        " { user: other, password: pw }] }"
    )
    server.start()
    api = Api(new_node({"nats.server": f"nats://me:pw@{server.address}"}).start())
    api.create("open", "open.>")
    assert api.ready()[0] == 200
    api.create("secret", "secret.x")
    status, reason = api.ready()
    assert (status, "secret.x" in reason) == (503, True)
    api.delete("secret")
    assert api.ready()[0] == 200


@pytest.mark.long
def test_who_reads_too_slowly_is_cut_off_and_knows_it(new_server: Callable[[str], Server], new_node: NewNode) -> None:
    server = new_server("max_pending: 1MB\nwrite_deadline: '2s'")
    server.start()
    node = new_node({"nats.server": f"nats://{server.address}"}).start()
    api = Api(node)
    api.create("s", "a")

    async def test(client: Client) -> None:
        before_ms = _now_ms()
        node.signal(signal.SIGSTOP)
        after_ms = _now_ms()
        published = 0
        stopped = time.monotonic()
        while published < 300 or time.monotonic() < stopped + 3:
            await client.publish("a", bytes(100_000))
            await client.flush(60)
            published += 1
        node.signal(signal.SIGCONT)
        (gap,) = until(lambda: [gap for gap in api.gaps("s")["recent"] if gap["end_ms"]])
        assert gap["cause"] == "slow consumer"
        assert gap["start_ms"] <= after_ms
        assert before_ms < gap["end_ms"]
        assert json.loads((await client.request("a", b"x", timeout=60)).data)["seq"] < published

    run(test, server.address)


@pytest.mark.long
def test_whatever_answers_in_place_of_a_server_harms_nothing(
    new_server: Callable[[str], Server], new_node: NewNode
) -> None:
    server = new_server("")
    server.start()
    node = new_node({"nats.server": f"nats://{server.address}", "memory.limit.bytes": "128MiB"}).start()
    api = Api(node)
    api.create("s", "a")
    server.stop()
    until(lambda: api.ready()[0] == 503)
    info = b'INFO {"server_id":"x","headers":true,"version":"2.15.1"}\r\n'
    impostor = Impostor(
        server.port,
        [
            os.urandom(100_000),
            b"HTTP/1.1 400 Bad Request\r\n\r\n",
            info + b"PONG\r\nPONG\r\nMSG a 1 99999999999\r\n",
            info + b"PONG\r\nPONG\r\nMSG a 1 67108864\r\n" + bytes(20_000_000),
            info + b"PONG\r\nMSG " + b"a" * 1_000_000,
            info.replace(b"true", b"false"),
            info * 1000 + b"-ERR 'Authorization Violation'\r\n",
            info + b"PONG\r\nHMSG a 1 x 12 13\r\nNATS/2.0\r\n\r\n\xff\r\nPONG\r\nPING\r\n+OK\r\n\r\n",
        ],
    )
    impostor.start()
    impostor.join(60)
    assert not impostor.is_alive()
    assert psutil.Process(node.pid).memory_info().rss < 128 << 20
    server.start()
    until(lambda: api.ready()[0] == 200)

    async def test(client: Client) -> None:
        assert json.loads((await client.request("a", b"x", timeout=60)).data)["seq"] == 1

    run(test, server.address)
    assert "Traceback" not in node.log_path.read_text()


@pytest.mark.long
def test_memory_stays_bounded_under_a_flood(new_node: NewNode) -> None:
    settings = {
        "nats.server": "embedded", "memory.limit.bytes": "128MiB", "wal.max.bytes": "8MiB", "wal.file.bytes": "1MiB",
        "wal.copy.bytes": "64KiB",
    }  # fmt: skip
    node = new_node(settings).start()
    api = Api(node)
    api.create("s", "a", config={"retention.bytes": 50_000_000, "segment.bytes": 10_000_000})
    process = psutil.Process(node.pid)
    most = 0
    held = 0.0

    async def test(client: Client) -> None:
        nonlocal most, held
        going_on = True
        published = 0

        async def flood() -> None:
            nonlocal published
            while going_on:
                for _ in range(20):
                    await client.publish("a", bytes(200_000))
                    published += 1
                await client.flush(60)

        flooding = asyncio.create_task(flood())
        until_s = time.monotonic() + 4
        while time.monotonic() < until_s or published <= 100 or not held:
            assert time.monotonic() < until_s + 60, (published, held)
            most = max(most, process.memory_info().rss)
            held = max(held, await asyncio.to_thread(api.metric, "duramen_nats_inflight_bytes"))
        going_on = False
        await flooding
        await _publish(client)  # the server may have cut us off as slow; then we come again

    run(test, node.nats)
    assert most < 128 << 20
    assert held < 20 << 20


# A nats-server that ends at once, whatever it is asked for.
_BROKEN_SERVER = """
import runpy
import shutil

shutil.which = lambda *_, **__: "/bin/false"
runpy.run_module("duramen", run_name="__main__", alter_sys=True)
"""


@pytest.mark.long
def test_a_node_whose_server_does_not_start_does_not_help_to_form_a_cluster(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    make_secret(str(secret), os.urandom(SECRET_BYTES))
    with contextlib.closing(hold_port()) as mine, contextlib.closing(hold_port()) as others:
        here, there = (f"127.0.0.1:{one.getsockname()[1]}" for one in (mine, others))
        options = {
            "--data-dir": str(tmp_path / "data"), "--kafka-listen": "127.0.0.1:0", "--http-listen": "127.0.0.1:0",
            "--nats-listen": "127.0.0.1:0", "--node-id": "1", "--cluster-listen": here,
            "--cluster-seeds": f"{here},{there}", "--cluster-secret-file": str(secret),
        }  # fmt: skip
        words = [word for option in options.items() for word in option]
        done = subprocess.run(
            [sys.executable, "-c", _BROKEN_SERVER, "serve", *words],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("duramen: nats-server does not start")
