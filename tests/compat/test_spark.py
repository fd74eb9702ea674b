"""Spark's own `format("kafka")`: source and sink, in a batch and as a stream, and what is committed."""

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import pytest
from tests.compat.building import SOURCES
from tests.compat.results import Results
from tests.compat.staging import made
from tests.untyped import untyped

from duramen.base.errors import DependencyMissing
from duramen.bench.peers.spark_kafka import CONNECTOR_VERSION, Connector, fetch_connector
from duramen.node.process import NodeProcess
from duramen.spark.launching.java import find_java

pytestmark = pytest.mark.long

_RUN_S: Final = 300.0


def _transactions(address: str, topic: str) -> None:
    producer = untyped("confluent_kafka").Producer({"bootstrap.servers": address, "transactional.id": topic})
    producer.init_transactions(60)
    for value, commit in (("a", True), ("b", False), ("c", True)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(60)
        (producer.commit_transaction if commit else producer.abort_transaction)(60)


def _read_and_write(node: NodeProcess, connector: Connector, directory: Path) -> None:
    written, transactional = made(node, 3), made(node)
    _transactions(node.kafka, transactional)
    jars = ",".join(map(str, connector.jars))
    arguments = [node.kafka, jars, str(directory), written, transactional]
    done = subprocess.run(
        [str(connector.python), str(SOURCES / "spark_job.py"), *arguments], capture_output=True, text=True,
        timeout=_RUN_S, check=False, env={**os.environ, "JAVA_HOME": str(find_java().home)}, cwd=directory,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"batch": True, "stream": True, "committed": ["a", "c"], "uncommitted": ["a", "b", "c"]}


def test_spark_reads_and_writes(tmp_path: Path) -> None:
    try:
        connector = fetch_connector()
    except DependencyMissing as missing:
        pytest.skip(str(missing))
    results = Results('Spark, format("kafka")', CONNECTOR_VERSION, "Scala")
    with NodeProcess(tmp_path / "data") as node:
        results.show(
            "sink, batch, streaming with AvailableNow, read_committed",
            lambda: _read_and_write(node, connector, tmp_path), node, (22, 24, 26),
        )  # fmt: skip
    results.write()
