"""Apache Kafka: its jars from Maven Central, one KRaft node as broker and controller, with default settings.

Topics are unsynced, Kafka's default, or have `flush.messages=1`, which syncs before each acknowledgement.
"""

import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, Self

from duramen.base.errors import DependencyMissing, ServerUnreachable
from duramen.bench.contenders import Contender
from duramen.bench.peers import servers
from duramen.bench.peers.servers import free_ports
from duramen.client import BrokerCluster, StreamAdmin
from duramen.spark.cache import cache_directory
from duramen.spark.launching.java import find_java

__all__ = ["KAFKA_VERSION", "ApacheKafka", "Flush", "fetch_jars"]

KAFKA_VERSION: Final = "4.4.0"

Flush = Literal["lazy", "flush.messages=1"]

_CLUSTER_ID: Final = "ZHVyYW1lbi1iZW5jaC0wMQ"
_FETCH_S: Final = 600.0
_FORMAT_S: Final = 60.0
_START_S: Final = 60.0
_STOP_S: Final = 15.0

# Kafka's tools need kafka-tools-api, which the broker itself does without.
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>duramen</groupId><artifactId>bench</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{version}</version>
      <exclusions>
        <exclusion><groupId>org.apache.kafka</groupId><artifactId>kafka-tools-api</artifactId></exclusion>
      </exclusions>
    </dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-nop</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
"""

_PROPERTIES: Final = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
log.dirs={logs}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


def fetch_jars() -> Path:
    """The directory of Kafka's jars, fetched once and kept in the user's cache. Raises DependencyMissing."""
    maven = shutil.which("mvn")
    cache = cache_directory()
    jars = cache / f"kafka-{KAFKA_VERSION}"
    if jars.is_dir():
        return jars
    if maven is None:
        raise DependencyMissing("--peer kafka needs Maven (mvn) to fetch Apache Kafka: install it, or leave kafka out")
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix="kafka-new-") as temporary:
        (Path(temporary) / "pom.xml").write_text(_POM.format(version=KAFKA_VERSION))
        command = [maven, "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=lib"]
        try:
            ran = subprocess.run(command, cwd=temporary, capture_output=True, text=True, timeout=_FETCH_S, check=False)
        except subprocess.TimeoutExpired:
            raise DependencyMissing(f"Maven did not fetch Apache Kafka within {_FETCH_S:g} s") from None
        if ran.returncode != 0:
            lines = [line for line in ran.stdout.splitlines() if line.startswith("[ERROR]")]
            why = lines[0].removeprefix("[ERROR]").strip() if lines else "it does not say why"
            raise DependencyMissing(f"Maven cannot fetch Apache Kafka {KAFKA_VERSION}: {why}")
        (Path(temporary) / "lib").rename(jars)
    return jars


class ApacheKafka:
    """One node in `directory`, with a heap of `heap_mb`, which is Kafka's own default; `settings` by Kafka's names."""

    def __init__(
        self,
        directory: Path,
        heap_mb: int = 1024,
        settings: Mapping[str, object] | None = None,
        *,
        first_heap_mb: int | None = None,
    ) -> None:
        """`first_heap_mb` is what the heap begins with, where that is not all of it."""
        self._directory = directory
        self._heap = [f"-Xms{first_heap_mb or heap_mb}m", f"-Xmx{heap_mb}m"]
        self._settings = settings or {}
        self._command: list[str] = []
        self.logs = directory / "logs"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ""

    def __enter__(self) -> Self:
        """Start it. Raises DependencyMissing without Java or Maven, or ServerUnreachable."""
        try:
            java = str(Path(find_java().home) / "bin" / "java")
        except DependencyMissing:
            raise DependencyMissing("--peer kafka needs Java 17 or newer: install one, or leave kafka out") from None
        jars = fetch_jars()
        self._directory.mkdir(parents=True)
        broker, controller = free_ports(2)
        self.address = f"127.0.0.1:{broker}"
        own = "".join(f"{name}={value}\n" for name, value in self._settings.items())
        self._properties.write_text(_PROPERTIES.format(broker=broker, controller=controller, logs=self.logs) + own)
        self._command = [java, *self._heap, "-cp", str(jars / "*")]
        with self.log.open("ab") as output:
            formatted = subprocess.run(
                [*self._command, "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(self._properties)],
                stdout=output, stderr=output, timeout=_FORMAT_S, check=False,
            )  # fmt: skip
            if formatted.returncode != 0:
                raise ServerUnreachable(f"Apache Kafka cannot format its directory: {servers.log_tail(self.log)}")
        self.start()
        return self

    @property
    def _properties(self) -> Path:
        return self._directory / "server.properties"

    @property
    def log(self) -> Path:
        """What it says."""
        return self._directory / "kafka.log"

    def start(self, within_s: float = _START_S) -> None:
        """Start it, again where it was stopped. Raises ServerUnreachable where it is not up in time."""
        self._process = servers.start([*self._command, "kafka.Kafka", str(self._properties)], self.log)
        servers.wait_until_up("Apache Kafka", self._process, self.log, within_s, self._ask)

    def stop(self, within_s: float = _STOP_S) -> None:
        """Stop it, or kill it where that takes longer."""
        if self._process is not None:
            servers.stop(self._process, within_s)

    def _ask(self) -> None:
        with BrokerCluster(self.address, timeout_s=2.0) as cluster:
            cluster.topics([])

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def process_id(self) -> int | None:
        """Of the node; None while there is none."""
        return None if self._process is None else self._process.pid

    def topic(self, name: str, flush: Flush, partitions: int = 1) -> Contender:
        """A new topic."""
        config = {} if flush == "lazy" else {"flush.messages": "1"}
        with BrokerCluster(self.address) as cluster:
            StreamAdmin(cluster).create_stream(name, partitions, config)
        return Contender("kafka", flush, "kafka", self.address, name, name, self.address)
