"""The two sides of every Spark benchmark: source, broker, and the process that runs a query.

Both have the same Java and cores. Duramen has the settings of `duramen.spark.session`, as its users have; the peer runs
with Spark's defaults, and again with those of the session's settings that apply to it.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Producer

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.bench.ours import Ours
from duramen.bench.peers.kafka import ApacheKafka
from duramen.bench.peers.spark_kafka import Connector, fetch_connector, fetch_formats
from duramen.bench.spark import query
from duramen.spark.launching.home import lean_home
from duramen.spark.launching.java import find_java
from duramen.spark.launching.java_compiler import source_of
from duramen.spark.launching.localdisk import DISK_CLASS
from duramen.spark.launching.sessions import JAVA_OPTIONS, java_options, tuning

__all__ = [
    "KEY_BYTES",
    "PARTITIONS",
    "VALUE_BYTES",
    "BenchSide",
    "both",
    "environment",
    "fill",
    "process",
    "run",
    "with_delta",
]

PARTITIONS: Final = 4
KEY_BYTES: Final = 16
VALUE_BYTES: Final = 100
_QUERY_S: Final = 900.0
_FLUSH_S: Final = 120.0
_BLOCK_BYTES: Final = 1 << 20
_SAME: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_DELTA: Final[Mapping[str, str]] = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


class BenchSide(NamedTuple):
    """A source and the broker that it reads; `connector` is None for ours, which has an HTTP door too."""

    name: str
    servers: str
    stream: str
    connector: Connector | None
    http: str = ""

    @property
    def format(self) -> str:
        """What Spark calls the source."""
        return "duramen" if self.connector is None else "kafka"

    @property
    def python(self) -> str:
        """The interpreter that has the right PySpark."""
        return sys.executable if self.connector is None else str(self.connector.python)


def with_delta(side: BenchSide) -> BenchSide:
    """The same, the peer with Delta's own writer, which is there for another Spark. Raises DependencyMissing."""
    return side if side.connector is None else side._replace(connector=fetch_formats())


@contextmanager
def both(directory: Path, stream: str, *, peer: bool) -> Iterator[Sequence[BenchSide]]:
    """Ours, and with `peer` Spark's own source on Apache Kafka, each with an empty stream of `PARTITIONS`.

    Raises DependencyMissing, ServerUnreachable.
    """
    connector = fetch_connector() if peer else None
    with ExitStack() as stack:
        ours = stack.enter_context(Ours(directory / "duramen", nats=False))
        servers = ours.stream(stream, "sync", "kafka", PARTITIONS).records
        sides = [BenchSide("duramen", servers, stream, None, ours.process.http)]
        if connector is not None:
            kafka = stack.enter_context(ApacheKafka(directory / "kafka"))
            sides.append(BenchSide("kafka", kafka.topic(stream, "lazy", PARTITIONS).records, stream, connector))
        yield sides


def fill(side: BenchSide, records: int) -> None:
    """Write records with keys and values of random bytes, one partition after another's turn.

    Raises RequestInvalid, RequestTimedOut.
    """
    failures: list[str] = []
    options: Mapping[str, Any] = {
        "bootstrap.servers": side.servers, "acks": "all", "linger.ms": 20, "batch.size": 500_000,
        "queue.buffering.max.messages": 500_000, "delivery.report.only.error": True,
    }  # fmt: skip
    producer = Producer(dict(options))
    block = random.randbytes(_BLOCK_BYTES)
    for number in range(records):
        at = number * 37 % (_BLOCK_BYTES - KEY_BYTES - VALUE_BYTES)
        middle = at + KEY_BYTES
        while True:
            try:
                producer.produce(
                    side.stream, block[middle : middle + VALUE_BYTES], block[at:middle], number % PARTITIONS,
                    on_delivery=lambda error, _: failures.append(str(error)),
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(_FLUSH_S):
        raise RequestTimedOut(f"{side.servers} has not acknowledged all records within {_FLUSH_S:g} s")
    if failures:
        raise RequestInvalid(f"{side.servers} refused {len(failures)} records: {failures[0]}")


def environment(side: BenchSide) -> dict[str, str]:
    """The variables of its process."""
    made = {**os.environ, "JAVA_HOME": find_java().home, "PYSPARK_PYTHON": side.python}
    home = None if side.connector is not None else lean_home(made)
    return made if home is None else made | {"SPARK_HOME": str(home)}


def process(
    side: BenchSide, work: str, *, cores: int, runs: int, places: Path, tuned: bool = False, our_java: bool = False
) -> list[str]:
    """The command of the process that does `work` so often.

    `tuned` gives the peer our settings too, `our_java` only those of Java.
    """
    config = dict(_SAME)
    if our_java:
        config[JAVA_OPTIONS] = java_options(find_java())
    if tuned:
        config |= tuning("local", find_java())
    if side.connector is None or tuned:
        config["spark.sql.shuffle.partitions"] = str(cores)
    if side.connector is not None:
        config["spark.jars"] = ",".join(map(str, side.connector.jars))
    if side.connector is not None and work == "delta":
        config |= _DELTA
    asked = {
        "work": work,
        "cores": cores,
        "config": config,
        "runs": runs,
        "format": side.format,
        "servers": side.servers,
        "stream": side.stream,
        "http": side.http,
        "disk": source_of(DISK_CLASS) if tuned else "",
        "disk class": DISK_CLASS,
        "into": str(places / f"{side.name}-into"),
        "checkpoint": str(places / f"{side.name}-checkpoint"),
    }
    return [side.python, str(query.__file__), json.dumps(asked)]


def run(
    side: BenchSide, work: str, *, cores: int, runs: int, places: Path, our_java: bool = False
) -> tuple[list[float], list[Any]]:
    """Seconds of each run, and what each found. Raises RequestInvalid."""
    command = process(side, work, cores=cores, runs=runs, places=places, our_java=our_java)
    ran = subprocess.run(command, capture_output=True, text=True, timeout=_QUERY_S, check=False, env=environment(side))
    if ran.returncode != 0:
        why = [line for line in ran.stderr.splitlines() if line.strip()][-1:]
        raise RequestInvalid(f"Spark failed with the source {side.format}: {' '.join(why)}")
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return answer["took_s"], answer["found"]
