"""`duramen serve`: several addresses, IPv6, what a node says while it starts, and ports that are taken."""

import contextlib
import json
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from tests.cli.command import Run, command_environment, run
from tests.loopback import second_host

from duramen.doors.cluster.secret import SECRET_BYTES, make_secret
from duramen.node.process import NodeProcess, hold_port

NewNode = Callable[..., NodeProcess]

FREE = ("--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0")


NAMES = {"kafka": "Kafka", "http": "HTTP"}


@pytest.fixture
def free_port() -> Iterator[Callable[[], int]]:
    """Chooses ports that nobody else is given while the test goes on."""
    with contextlib.ExitStack() as held:

        def choose() -> int:
            port: int = held.enter_context(hold_port()).getsockname()[1]
            return port

        yield choose


def brokers(address: str) -> list[str]:
    """Where a client that comes to `address` is told to go."""
    metadata = AdminClient({"bootstrap.servers": address}).list_topics(timeout=60)
    return [f"{broker.host}:{broker.port}" for broker in metadata.brokers.values()]


@pytest.mark.long
def test_several_addresses(new_node: NewNode, free_port: Callable[[], int]) -> None:
    second = second_host()
    kafka_port, http_port = free_port(), free_port()
    node = new_node(
        {"kafka.listen": f"127.0.0.1:0, {second}:{kafka_port}", "http.listen": f"127.0.0.1:0,{second}:{http_port}"}
    )
    node.start()
    assert node.addresses.keys() == {"http", "kafka"}
    assert [node.kafka.rpartition(":")[0], node.http.rpartition(":")[0]] == ["127.0.0.1", "127.0.0.1"]
    assert brokers(node.kafka) == [node.kafka]
    assert [one.replace("[", "").replace("]", "") for one in brokers(f"{second}:{kafka_port}")] == [
        f"{second.strip('[]')}:{kafka_port}"
    ]
    for address in (node.http, f"{second}:{http_port}"):
        with urllib.request.urlopen(f"http://{address}/readyz") as answer:
            assert answer.read() == b"ready\n"


def test_one_address_for_all_who_come(new_node: NewNode) -> None:
    node = new_node({"kafka.listen": "127.0.0.1:0,127.0.0.2:0", "kafka.advertise": "broker.example:19092"})
    node.start()
    assert brokers(node.kafka) == ["broker.example:19092"]


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--kafka-listen", "0.0.0.0:0", "--insecure"), "with --kafka-advertise HOST:PORT"),
        (("--kafka-listen", "127.0.0.1:0,[::]:9092", "--insecure"), "kafka.listen: [::]:9092 is every address"),
        (("--nats-listen", "127.0.0.1:0,127.0.0.2:0"), "nats-server listens on one address only"),
        (("--http-listen", "127.0.0.1:7000,127.0.0.1:7000"), "http.listen: 127.0.0.1:7000 is there twice"),
        (("--http-listen", "127.0.0.1:0,10.0.0.1:0"), "http.listen: 10.0.0.1:0 is not loopback"),
        (("--log-level", "loud"), "logging.level: 'loud' does not fit; it must be one of debug, info, warning, error"),
        (("--log-format", "xml"), "logging.format: 'xml' does not fit; it must be one of text, json"),
    ],
)
def test_wrong_usage(duramen_alone: Run, words: tuple[str, ...], said: str) -> None:
    ended = duramen_alone("serve", *FREE, *words)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert len(ended.err.splitlines()) == 1


@pytest.mark.variants(1)
@pytest.mark.parametrize("door", ["kafka", "http"])
def test_a_port_that_is_taken_names_what_to_change(duramen_alone: Run, door: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = duramen_alone("serve", *FREE, "--nats", "off", f"--{door}-listen", f"127.0.0.1:0,127.0.0.1:{port}")
    assert (ended.code, ended.out) == (1, "")
    last = ended.err.splitlines()[-1]
    assert f"the {NAMES[door]} door cannot listen on 127.0.0.1:{port}" in last
    assert f"choose another with --{door}-listen [address-in-use]" in last


@pytest.mark.long
def test_where_a_nats_server_is_already_it_is_suggested(duramen_alone: Run, new_node: NewNode) -> None:
    node = new_node({"nats.server": "embedded"}).start()
    ended = duramen_alone("serve", *FREE, "--nats-listen", node.nats)
    assert (ended.code, ended.out) == (1, "")
    last = ended.err.splitlines()[-1]
    assert f"the NATS door cannot listen on {node.nats}, because another NATS server uses it" in last
    assert f"use that one with --nats nats://{node.nats}, or choose another port with --nats-listen" in last


@pytest.mark.long
def test_whatever_else_is_there_is_no_nats_server(duramen_alone: Run, node: NodeProcess) -> None:
    ended = duramen_alone("serve", *FREE, "--nats-listen", node.http)
    assert (ended.code, ended.out) == (1, "")
    assert f"the NATS door cannot listen on {node.http}: " in ended.err
    assert "choose another with --nats-listen" in ended.err
    assert "--nats nats://" not in ended.err


def test_log_lines_for_programs(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "duramen", "serve", *FREE, "--log-format", "json", "--log-level", "debug"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=command_environment()
    ) as process:
        assert process.stdout is not None
        banner = [process.stdout.readline() for _ in range(5)]
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "\x1b" not in "".join(banner)
    tries = [line.split("try: ")[1].split()[0] for line in banner if "try: " in line]
    assert tries == ["curl", "kcat", "nats"]
    events = [json.loads(line) for line in err.splitlines()]
    assert all(list(event)[:5] == ["ts", "level", "logger", "message", "fields"] for event in events)
    assert {event["logger"] for event in events} >= {"duramen.node", "duramen.nats-server"}
    assert "debug" in {event["level"] for event in events}
    (recovered,) = [event for event in events if event["message"].startswith("recovered ")]
    assert recovered["fields"].keys() == {"logs", "seconds", "replayed_bytes", "epoch"}


SLOW = """
import sys
import duramen.node.node as node
recover = node.recover

def slow(files, directory_id, handles, report, progress):
    progress.begin("reading every segment", 7)
    progress.logs_done = 3
    print("recovering", flush=True)
    sys.stdin.readline()
    return recover(files, directory_id, handles, report, progress)

node.recover = slow
from duramen.cli.main import main
main()
"""


@pytest.fixture
def recovering(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[tuple["subprocess.Popen[str]", str, str]]:
    """A node in the middle of its recovery, which goes on with a line on its standard input; its doors."""
    kafka, http_ = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    words = ["serve", "--kafka-listen", kafka, "--http-listen", http_, "--nats", "off"]
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, *words],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=command_environment(),
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "recovering\n"
        yield process, kafka, http_
        process.kill()


def test_during_recovery_readyz_says_how_far_it_is(recovering: tuple["subprocess.Popen[str]", str, str]) -> None:
    process, kafka, http_ = recovering
    assert process.stdin is not None
    assert process.stdout is not None
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(f"http://{http_}/readyz")
    with refused.value:
        assert refused.value.code == 503
        assert refused.value.read() == b"starting: reading every segment, 3 of 7 logs done\n"
    with urllib.request.urlopen(f"http://{http_}/healthz") as alive:
        assert alive.status == 200
    host, _, port = kafka.partition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(" is ready.\n")
    with urllib.request.urlopen(f"http://{http_}/readyz") as ready:
        assert ready.read() == b"ready\n"
    socket.create_connection((host, int(port))).close()
    process.terminate()
    assert process.wait(60) == 0


def test_a_node_of_no_cluster_says_whom_it_lacks(tmp_path: Path, free_port: Callable[[], int]) -> None:
    secret = tmp_path / "secret"
    make_secret(str(secret), b"s" * SECRET_BYTES)
    http_, here, there = (f"127.0.0.1:{free_port()}" for _ in range(3))
    words = [
        "serve", "--kafka-listen", "127.0.0.1:0", "--http-listen", http_, "--nats", "off", "--cluster-listen", here,
        "--cluster-seeds", f"{here},{there}", "--cluster-secret-file", str(secret), "--node-id", "1",
    ]  # fmt: skip
    why = f"a cluster is formed once all seeds are there; missing: {there}"
    with subprocess.Popen(
        [sys.executable, "-m", "duramen", *words],
        stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=command_environment(),
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert any(line.endswith(f"this node belongs to no cluster yet: {why}\n") for line in process.stderr)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"http://{http_}/readyz")
        with refused.value:
            assert refused.value.read().decode() == f"starting: looking for the nodes of the cluster: {why}\n"
        status = run("cluster", "status", server=http_)
        assert (status.code, status.err.count("\n")) == (1, 1)
        assert f"{http_} is not ready: starting: looking for the nodes of the cluster: {why}" in status.err
        process.kill()
