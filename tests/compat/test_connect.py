"""Kafka Connect, distributed, with the file connectors; MirrorMaker 2 from a real Apache Kafka and back."""

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import pytest
from tests.clients import CONFLUENT, Record
from tests.compat.building import Missing, kafka_jars, tool
from tests.compat.conftest import settings
from tests.compat.results import Results
from tests.compat.staging import made, unique
from tests.untyped import untyped

from duramen.base.errors import DependencyMissing
from duramen.bench.peers.kafka import ApacheKafka
from duramen.bench.peers.servers import free_ports
from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess

pytestmark = pytest.mark.long

_VERSION: Final = "4.1.1"
_WAIT_S: Final = 480.0
_EPOCH: Final = 1_600_000_000_000
_FILE: Final = "org.apache.kafka.connect.file."

_WORKER: Final = """bootstrap.servers={address}
group.id=connect
listeners=http://127.0.0.1:{port}
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
offset.storage.topic=connect-offsets
status.storage.topic=connect-status
config.storage.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
offset.flush.interval.ms=1000
plugin.discovery=service_load
plugin.path={path}
"""

_MIRROR: Final = """clusters=kafka,duramen
kafka.bootstrap.servers={kafka}
duramen.bootstrap.servers={duramen}
kafka->duramen.enabled=true
kafka->duramen.topics={there}
duramen->kafka.enabled=true
duramen->kafka.topics={back}
replication.factor=1
checkpoints.topic.replication.factor=1
heartbeats.topic.replication.factor=1
offset-syncs.topic.replication.factor=1
offset.storage.replication.factor=1
status.storage.replication.factor=1
config.storage.replication.factor=1
refresh.topics.interval.seconds=2
plugin.discovery=service_load
kafka.plugin.discovery=service_load
duramen.plugin.discovery=service_load
kafka.consumer.auto.offset.reset=earliest
duramen.consumer.auto.offset.reset=earliest
"""


class Java:
    """Programs in Java that run until the test ends."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.path = kafka_jars(_VERSION)
        self.running: list[subprocess.Popen[bytes]] = []

    def start(self, name: str, properties: str) -> subprocess.Popen[bytes]:
        """Start a program with a file of properties."""
        file = self.directory / f"{unique('properties')}.properties"
        file.write_text(properties, encoding="utf-8")
        with (self.directory / "java.log").open("ab") as log:
            self.running.append(
                subprocess.Popen(
                    [tool("java"), "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{self.path}/*", name, str(file)],
                    stdout=log, stderr=log, cwd=self.directory,
                )
            )  # fmt: skip
        return self.running[-1]


@pytest.fixture
def java(tmp_path: Path) -> Iterator[Java]:
    """Programs in Java."""
    try:
        found = Java(tmp_path)
    except Missing as missing:
        pytest.skip(str(missing))
    yield found
    for process in found.running:
        process.kill()
        process.wait()


def _until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


def _rest(port: int, method: str, path: str, body: Mapping[str, object] | None = None) -> Any:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    except OSError:
        return None
    finally:
        connection.close()
    return json.loads(text) if answer.status < 300 and text else None


def _answers(what: Callable[[], Any]) -> bool:
    return what() is not None


def _is_there(address: str, topic: str, count: int) -> bool:
    with BrokerCluster(address) as cluster:
        if topic not in cluster.topics([topic]):
            return False
    kafka = untyped("confluent_kafka")
    consumer = kafka.Consumer({"bootstrap.servers": address, "group.id": "unused"})
    try:
        return bool(consumer.get_watermark_offsets(kafka.TopicPartition(topic, 0), 30)[1] >= count)
    finally:
        consumer.close()


def _through_files(java: Java, node: NodeProcess) -> None:
    (port,) = free_ports(1)
    source, sink, topic = java.directory / "in.txt", java.directory / "out.txt", made(node)
    lines = [f"line {number}" for number in range(200)]
    source.write_text("".join(f"{line}\n" for line in lines[:100]))
    properties = _WORKER.format(address=node.kafka, port=port, path=java.path)
    program = "org.apache.kafka.connect.cli.ConnectDistributed"
    worker = java.start(program, properties)
    _until(lambda: _rest(port, "GET", "/connectors") is not None, "the worker does not answer")
    connectors = (("FileStreamSource", {"topic": topic, "file": str(source)}),
                  ("FileStreamSink", {"topics": topic, "file": str(sink)}))  # fmt: skip
    for kind, config in connectors:
        whole = {"connector.class": f"{_FILE}{kind}Connector", "tasks.max": "1", **config}
        create = partial(_rest, port, "POST", "/connectors", {"name": kind, "config": whole})
        _until(partial(_answers, create), f"{kind} cannot be made")
    _until(lambda: sink.exists() and sink.read_text().split("\n")[:-1] == lines[:100], "the lines did not come")
    # Its configs and offsets lie in the node: another worker goes on with them; a clean end repeats nothing.
    worker.terminate()
    worker.wait()
    with source.open("a") as file:
        file.write("".join(f"{line}\n" for line in lines[100:]))
    java.start(program, properties)
    _until(lambda: sink.read_text().split("\n")[:-1] == lines, "the rest did not come")


def test_connect_copies_files(java: Java) -> None:
    results = Results("Kafka Connect", _VERSION, "Java")
    with NodeProcess(java.directory / "data", settings() | {"group.min.session.timeout.ms": 6000}) as node:
        results.show(
            "distributed, file source and sink, another worker goes on after the first",
            lambda: _through_files(java, node), node,
        )  # fmt: skip
    results.write()


def _mirror(java: Java, node: NodeProcess, kafka: ApacheKafka) -> None:
    # The records' times are years ago: with Kafka's usual retention they are gone before they are copied.
    kept = {"retention.ms": "-1"}
    there, back = unique("there"), made(node, config=kept)
    records = [
        Record(f"value {number}".encode(), b"key", (("h", b"1"),), _EPOCH + number, 0) for number in range(300)
    ]  # fmt: skip
    with BrokerCluster(kafka.address) as cluster:
        StreamAdmin(cluster).create_stream(there, 1, kept)
    CONFLUENT.produce(kafka.address, there, records)
    CONFLUENT.produce(node.kafka, back, records)
    java.start(
        "org.apache.kafka.connect.mirror.MirrorMaker",
        _MIRROR.format(kafka=kafka.address, duramen=node.kafka, there=there, back=back),
    )
    for address, topic in ((node.kafka, f"kafka.{there}"), (kafka.address, f"duramen.{back}")):
        _until(partial(_is_there, address, topic, len(records)), f"{topic} does not come")
        found = CONFLUENT.consume(address, topic, 1, len(records))
        assert [(one.value, one.key, one.headers, one.timestamp_ms) for one in found] == [
            (one.value, one.key, one.headers, one.timestamp_ms) for one in records
        ]
        with BrokerCluster(address) as cluster:
            assert kept.items() <= StreamAdmin(cluster).stream_configs(topic).items()


def test_mirror_maker_copies_both_ways(java: Java) -> None:
    results = Results("MirrorMaker 2", _VERSION, "Java")
    try:
        with (
            ApacheKafka(java.directory / "kafka") as kafka,
            NodeProcess(java.directory / "data", settings() | {"group.min.session.timeout.ms": 6000}) as node,
        ):
            name = "from Apache Kafka 4.4.0 into Duramen and back: values, keys, headers, times, topic configs"
            results.show(name, lambda: _mirror(java, node, kafka), node)
    except DependencyMissing as missing:
        pytest.skip(str(missing))
    results.write()
