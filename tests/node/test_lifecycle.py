"""A node as a process: ready, stopped, stopped twice, killed, started again."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from duramen.base.errors import ServerUnreachable
from duramen.node.process import NodeProcess

NewNode = Callable[..., NodeProcess]


def _produce(node: NodeProcess, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.kafka})
    for number in range(count):
        producer.produce("s", str(number).encode())
    assert producer.flush(60) == 0


def _values(node: NodeProcess, count: int) -> list[int]:
    consumer = Consumer({"bootstrap.servers": node.kafka, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["s"])
    values: list[int] = []
    while len(values) < count:
        for message in consumer.consume(count, 30):
            assert message.error() is None
            values.append(int(message.value() or b""))
    consumer.close()
    return values


def test_ready_means_every_door(new_node: NewNode) -> None:
    node = new_node().start()
    assert set(node.addresses) == {"http", "kafka"}
    for path, said in (("healthz", b"ok\n"), ("readyz", b"ready\n")):
        with urllib.request.urlopen(f"http://{node.http}/{path}") as answer:
            assert answer.read() == said
    _produce(node, 10)
    assert _values(node, 10) == list(range(10))


def test_sigterm_and_ctrl_c_stop_with_0_and_leave_it_clean(new_node: NewNode) -> None:
    node = new_node().start()
    for number in (signal.SIGTERM, signal.SIGINT):
        _produce(node, 100)
        node.signal(number)
        assert node.wait() == 0
        assert not (node.data_dir / "run" / "addresses.json").exists()
        node.restart()
    *_, recovered = (line for line in node.log_path.read_text().splitlines() if "bytes replayed" in line)
    assert " 0 bytes replayed" in recovered
    assert _values(node, 200) == [*range(100), *range(100)]


def test_a_second_signal_stops_at_once(new_node: NewNode) -> None:
    node = new_node().start()
    _produce(node, 100)
    node.signal(signal.SIGTERM)
    node.signal(signal.SIGTERM)
    assert node.wait() == 0
    node.restart()
    assert _values(node, 100) == list(range(100))


def test_killed_and_started_again(new_node: NewNode) -> None:
    node = new_node().start()
    _produce(node, 1000)
    node.kill()
    assert (node.data_dir / "run" / "addresses.json").exists()
    node.restart()
    assert _values(node, 1000) == list(range(1000))


def test_the_addresses_of_a_node_that_was_killed_go_first(new_node: NewNode) -> None:
    node = new_node().start()
    node.kill()
    addresses = node.data_dir / "run" / "addresses.json"
    assert addresses.exists()
    (node.data_dir / "wal").rename(node.data_dir / "wal.moved")
    (node.data_dir / "wal").write_bytes(b"")  # so that it never becomes ready
    with pytest.raises(ServerUnreachable):
        node.start()
    assert not addresses.exists()


def test_a_second_node_leaves_the_addresses_of_the_first(new_node: NewNode) -> None:
    node = new_node().start()
    with pytest.raises(ServerUnreachable):
        new_node().start()
    assert json.loads((node.data_dir / "run" / "addresses.json").read_text()) == node.addresses


def test_ports_and_addresses_file(new_node: NewNode) -> None:
    node = new_node().start()
    written = json.loads((node.data_dir / "run" / "addresses.json").read_text())
    assert written == {"http": node.http, "kafka": node.kafka}
    assert all(address.startswith("127.0.0.1:") and not address.endswith(":0") for address in written.values())


def test_started_alone_with_nothing_but_a_directory(tmp_path: Path) -> None:
    """The banner on standard output, log lines on standard error."""
    words = ["--kafka-listen", "127.0.0.1:0", "--http-listen", "127.0.0.1:0", "--nats-listen", "127.0.0.1:0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DURAMEN_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "duramen", "serve", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert process.stdout is not None
    banner = [process.stdout.readline() for _ in range(5)]
    process.terminate()
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert banner[0].startswith("Duramen ")
    assert banner[0].endswith(" is ready.\n")
    assert [line.split()[0] for line in banner[1:]] == ["data", "http", "kafka", "nats"]
    assert str(tmp_path / "duramen-data") in banner[1]
    assert out == ""
    assert "INFO duramen.node: recovered 0 logs" in err
