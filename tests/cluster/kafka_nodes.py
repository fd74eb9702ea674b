"""Three KRaft nodes of Apache Kafka, each in a network namespace of its own, and the router between them.

The router is this process: it runs in a namespace too (`unshare -n`). Needs root, iproute2, Java and Maven.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.clients import until

from duramen.bench.peers import servers
from duramen.bench.peers.kafka import fetch_jars
from duramen.spark.launching.java import find_java

__all__ = ["KafkaNetwork", "KafkaNodes"]

_CLUSTER_ID: Final = "ZHVyYW1lbi1iZW5jaC0wMQ"
_IP: Final = shutil.which("ip") or "ip"
_BROKER: Final = 9092
_CONTROLLER: Final = 9093
_START_S: Final = 120.0
_OPTIONS: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SESSION_MS: Final = 5_000
"""Of brokers with the controller; Kafka's default is longer than the cut."""

_PROPERTIES: Final = """process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://{host}:{broker},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=3
transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2
broker.session.timeout.ms={session}
broker.heartbeat.interval.ms=500
replica.lag.time.max.ms=6000
group.initial.rebalance.delay.ms=0
"""


def _host(node: int) -> str:
    return f"10.77.{node}.1"


def _subnet(node: int) -> str:
    return f"10.77.{node}.0/24"


def _namespace(node: int) -> str:
    return f"duramen-kafka-{os.getpid()}-{node}"


def _ip(*words: str) -> None:
    subprocess.run([_IP, *words], check=True)


class KafkaNetwork:
    """A namespace for each node, and this process between them. What is cut is dropped without a word."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._nodes = list(nodes)
        self._cut: list[tuple[str, ...]] = []
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        _ip("link", "set", "lo", "up")
        for node in self._nodes:
            name, there = _namespace(node), f"k{node}"
            _ip("netns", "add", name)
            _ip("link", "add", there, "type", "veth", "peer", "name", "e0", "netns", name)
            _ip("addr", "add", f"10.77.{node}.254/24", "dev", there)
            _ip("link", "set", there, "up")
            for words in (
                ("addr", "add", f"{_host(node)}/24", "dev", "e0"), ("link", "set", "e0", "up"),
                ("link", "set", "lo", "up"), ("route", "add", "default", "via", f"10.77.{node}.254"),
            ):  # fmt: skip
                _ip("-n", name, *words)

    def part(self, ones: Iterable[int], others: Iterable[int]) -> None:
        """Nothing gets from these to those, nor back."""
        theirs = list(others)
        for one in ones:
            for other in theirs:
                for way in ((one, other), (other, one)):
                    rule = ("from", _subnet(way[0]), "to", _subnet(way[1]), "blackhole")
                    _ip("rule", "add", *rule)
                    self._cut.append(rule)

    def heal(self) -> None:
        """The network is whole again."""
        for rule in self._cut:
            _ip("rule", "del", *rule)
        self._cut.clear()

    def close(self) -> None:
        """Remove the namespaces."""
        for node in self._nodes:
            _ip("netns", "del", _namespace(node))


class KafkaNode(NamedTuple):
    """Where clients reach it, and what is its own."""

    kafka: str
    directory: Path


class KafkaNodes:
    """Three nodes that are brokers and controllers."""

    def __init__(self, directory: Path, numbers: Iterable[int]) -> None:
        self.nodes = {number: KafkaNode(f"{_host(number)}:{_BROKER}", directory / f"{number}") for number in numbers}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._java = [str(Path(find_java().home) / "bin" / "java"), *_OPTIONS, "-cp", str(fetch_jars() / "*")]
        voters = ",".join(f"{number}@{_host(number)}:{_CONTROLLER}" for number in self.nodes)
        for number, node in self.nodes.items():
            node.directory.mkdir(parents=True)
            (node.directory / "server.properties").write_text(
                _PROPERTIES.format(
                    node=number, voters=voters, host=_host(number), broker=_BROKER, controller=_CONTROLLER,
                    logs=node.directory / "logs", session=_SESSION_MS,
                )
            )  # fmt: skip
            command = ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", self._properties(number)]
            subprocess.run([*self._java, *command], check=True, stdout=subprocess.DEVNULL)

    def _properties(self, number: int) -> str:
        return str(self.nodes[number].directory / "server.properties")

    @property
    def bootstrap_servers(self) -> str:
        """All of them."""
        return ",".join(node.kafka for node in self.nodes.values())

    def start(self, numbers: Iterable[int] | None = None) -> None:
        """Start these, or all."""
        for number in self.nodes if numbers is None else numbers:
            command = [_IP, "netns", "exec", _namespace(number), *self._java, "kafka.Kafka", self._properties(number)]
            self._processes[number] = servers.start(command, self.nodes[number].directory / "kafka.log")
        if numbers is None:
            until(self._is_whole, _START_S)

    def _is_whole(self) -> bool:
        try:
            found = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0}).list_topics(timeout=5)
        except KafkaException:
            return False
        return len(found.brokers) == len(self.nodes) and found.controller_id > 0

    def kill(self, *numbers: int) -> None:
        """Kill -9."""
        for number in numbers:
            process = self._processes.pop(number)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def close(self) -> None:
        """Kill all that run."""
        self.kill(*list(self._processes))
