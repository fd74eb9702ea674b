"""File descriptors of a node's process: given back with what is deleted, and what happens where there are no more."""

import socket
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.clients import open_logs, unready, until

from duramen.cli.top.samples import parse
from duramen.client.http import HttpNode
from duramen.node.process import NodeProcess

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="counts what /proc names")

_PARTITIONS: Final = 40
_ROUNDS: Final = 10
_MOST_BYTES: Final = 24 << 20
_LIMIT: Final = 192
_LIMIT_IT: Final = f"import resource, runpy; resource.setrlimit(resource.RLIMIT_NOFILE, 2 * ({_LIMIT},)); "
_LIMITED: Final = ("-c", _LIMIT_IT + "runpy.run_module('duramen', run_name='__main__', alter_sys=True)")


def _produce(servers: str, topic: str, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for partition in range(partitions):
        producer.produce(topic, b"x" * 1000, partition=partition)
    assert producer.flush(60) == 0


def test_the_files_of_a_deleted_stream_are_closed_at_once(new_node: Callable[..., NodeProcess]) -> None:
    node = new_node({"wal.copy.interval.ms": 100}).start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    before = open_logs(node)
    admin.create_topics([NewTopic("s", _PARTITIONS, 1)])["s"].result(60)
    _produce(node.kafka, "s", _PARTITIONS)
    until(lambda: open_logs(node) >= before + 2 * _PARTITIONS)
    admin.delete_topics(["s"])["s"].result(60)
    until(lambda: open_logs(node) <= before + 2)  # the metadata log's may be open by now


@pytest.mark.long
def test_what_deleted_streams_took_is_given_back(new_node: Callable[..., NodeProcess]) -> None:
    """Memory too: what one deleted stream had kept would be eight times as much in the end."""
    node = new_node({"wal.copy.interval.ms": 100}).start()
    admin = AdminClient({"bootstrap.servers": node.kafka})
    taken: list[tuple[int, float]] = []
    for round_ in range(_ROUNDS):
        name = f"s{round_}"
        admin.create_topics([NewTopic(name, _PARTITIONS, 1)])[name].result(60)
        _produce(node.kafka, name, _PARTITIONS)
        admin.delete_topics([name])[name].result(60)
        until(lambda: open_logs(node) <= 2)
        taken.append((_descriptors(node), _resident_bytes(node)))
    (descriptors, resident), last = taken[1], taken[-1]
    assert last[0] <= descriptors + _PARTITIONS // 2
    assert last[1] <= resident + _MOST_BYTES


def _descriptors(node: NodeProcess) -> int:
    return int(HttpNode(node.http).get("/v1/node")["health"]["descriptors"])


def _resident_bytes(node: NodeProcess) -> float:
    sample = parse(HttpNode(node.http).text("/metrics"), 0.0)
    return sample.total("duramen_process_resident_bytes") or 0.0


def test_at_the_limit_it_says_so_and_keeps_its_connections(tmp_path: Path) -> None:
    node = NodeProcess(tmp_path / "data", program=_LIMITED).start()
    try:
        producer = Producer({"bootstrap.servers": node.kafka})
        producer.produce("s", b"before")
        assert producer.flush(60) == 0
        host, _, port = node.kafka.rpartition(":")
        with ExitStack() as stack:
            for _ in range(_LIMIT):
                one = stack.enter_context(socket.create_connection((host, int(port))))
                one.settimeout(0.1)
            until(lambda: "file descriptors are open" in unready(node))
            producer.produce("s", b"meanwhile")
            assert producer.flush(60) == 0
        until(lambda: not unready(node))
        _produce(node.kafka, "s", 1)
        log = node.log_path.read_text()
        assert log.count("new client connections are refused") == 1
    finally:
        node.kill()
