"""Spark: rows a second of a batch count and sum through `format("duramen")`, beside Spark's own Kafka source.

Both run `spark_query` in a process of their own, with the same Java, cores and settings, and take turns. The first
run of each process warms the JVM up and does not count.
"""

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, Final

from confluent_kafka import Producer

from duramen.base.errors import RequestInvalid, RequestTimedOut
from duramen.bench import spark_query
from duramen.bench.ours import Ours
from duramen.bench.peers.kafka import ApacheKafka
from duramen.bench.peers.spark_kafka import CONNECTOR_VERSION, Connector, fetch_connector
from duramen.bench.targets import Outcome, Rounds, at_least, not_measured
from duramen.spark.java import find_java

__all__ = ["measure_spark"]

_TARGET: Final = "Spark, batch count and sum, records of 16 + 100 bytes"
_WANTED: Final = 1.5
_TOPIC: Final = "spark"
_PARTITIONS: Final = 4
_KEY_BYTES: Final = 16
_VALUE_BYTES: Final = 100
_QUERY_S: Final = 900.0
_FLUSH_S: Final = 120.0
_BLOCK_BYTES: Final = 1 << 20
_SAME: Final[Mapping[str, str]] = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_OURS: Final[Mapping[str, str]] = {"spark.python.unix.domain.socket.enabled": "true"}


def measure_spark(
    directory: Path, *, records: int = 5_000_000, rounds: int = 3, runs: int = 4, cores: int = 2, peer: bool = True
) -> Outcome:
    """Rows a second of both sources over `records` in each of their brokers, in `rounds` of `runs` warm runs.

    Needs Maven for the peer; with `peer=False` the outcome only says how quick ours is. Raises DependencyMissing,
    ServerUnreachable, RequestInvalid, RequestTimedOut.
    """
    connector = fetch_connector() if peer else None
    found = Rounds()
    with Ours(directory / "duramen", nats=False) as ours:
        here = ours.stream(_TOPIC, "sync", "kafka", _PARTITIONS).records
        _fill(here, records)
        if connector is None:
            for _ in range(rounds):
                found.add("duramen", _rate(here, records, runs, cores, None))
            return not_measured(_TARGET, _wanted(), f"without a peer; duramen {found.medians['duramen']:,.0f} rows/s")
        with ApacheKafka(directory / "kafka") as kafka:
            there = kafka.topic(_TOPIC, "lazy", _PARTITIONS).records
            _fill(there, records)
            for _ in range(rounds):
                found.add("duramen", _rate(here, records, runs, cores, None))
                found.add("kafka", _rate(there, records, runs, cores, connector))
    absolute = f"{found.medians['duramen']:,.0f} to {found.medians['kafka']:,.0f} rows/s"
    return at_least(_TARGET, found.ratio("duramen", "kafka"), _WANTED, _peer(), absolute)


def _peer() -> str:
    return f"Spark {CONNECTOR_VERSION}'s own Kafka source from Apache Kafka"


def _wanted() -> str:
    return f"at least {_WANTED:g} x {_peer()}"


def _fill(address: str, records: int) -> None:
    """Write records with keys and values of random bytes, one partition after another's turn."""
    failures: list[str] = []
    options: Mapping[str, Any] = {
        "bootstrap.servers": address, "acks": "all", "linger.ms": 20, "batch.size": 500_000,
        "queue.buffering.max.messages": 500_000, "delivery.report.only.error": True,
    }  # fmt: skip
    producer = Producer(dict(options))
    block = random.randbytes(_BLOCK_BYTES)
    for number in range(records):
        at = number * 37 % (_BLOCK_BYTES - _KEY_BYTES - _VALUE_BYTES)
        middle = at + _KEY_BYTES
        while True:
            try:
                producer.produce(
                    _TOPIC, block[middle : middle + _VALUE_BYTES], block[at:middle], number % _PARTITIONS,
                    on_delivery=lambda error, _: failures.append(str(error)),
                )  # fmt: skip
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(_FLUSH_S):
        raise RequestTimedOut(f"{address} has not acknowledged all records within {_FLUSH_S:g} s")
    if failures:
        raise RequestInvalid(f"{address} refused {len(failures)} records: {failures[0]}")


def _rate(address: str, records: int, runs: int, cores: int, connector: Connector | None) -> float:
    """Rows a second: the median of `runs` after a first that does not count. Raises RequestInvalid."""
    python = sys.executable if connector is None else str(connector.python)
    special = dict(_OURS) if connector is None else {"spark.jars": ",".join(map(str, connector.jars))}
    asked = {
        "cores": cores,
        "config": {**_SAME, **special},
        "runs": runs + 1,
        "format": "duramen" if connector is None else "kafka",
        "servers": address,
        "stream": _TOPIC,
    }
    ran = subprocess.run(
        [python, str(spark_query.__file__), json.dumps(asked)],
        capture_output=True, text=True, timeout=_QUERY_S, check=False,
        env={**os.environ, "JAVA_HOME": find_java().home, "PYSPARK_PYTHON": python},
    )  # fmt: skip
    if ran.returncode != 0:
        why = [line for line in ran.stderr.splitlines() if line.strip()][-1:]
        raise RequestInvalid(f"Spark failed with the source {asked['format']}: {' '.join(why)}")
    answer: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    if answer["found"] != [[records, records * _VALUE_BYTES]]:
        raise RequestInvalid(f"Spark read {answer['found']} with the source {asked['format']}, not {records} records")
    took_s: list[float] = answer["took_s"][1:]
    return records / median(took_s)
