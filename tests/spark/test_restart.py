"""A driver is killed in the middle of two queries; both go on from their checkpoints with nothing lost or twice."""

import os
import runpy
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess

DRIVER = Path(__file__).parent / "restarting.py"
RECORDS = 12_000


def fill(cluster: BrokerCluster, stream: str) -> None:
    StreamAdmin(cluster).create_stream(stream, 2)
    with Producer(cluster) as producer:
        for number in range(RECORDS):
            producer.produce(stream, b"%d" % number, partition=number % 2)


def run_until_under_way(node: NodeProcess, directory: Path, streams: list[str]) -> set[str]:
    """Run the driver until both queries have written a few micro-batches, and kill it; returns what they said."""
    command = [sys.executable, str(DRIVER), node.kafka, str(directory), *streams]
    seen: dict[str, int] = dict.fromkeys(streams, 0)
    with (directory / "driver.log").open("wb") as log:
        # The JVM, which is the driver, and what started it are one process group.
        driver = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True)
    guard = threading.Timer(600, os.killpg, (driver.pid, signal.SIGKILL))
    guard.start()
    try:
        assert driver.stdout is not None
        with driver.stdout:
            for line in driver.stdout:
                name, _, batch = line.partition(" ")
                if name in seen:
                    seen[name] = int(batch)
                if min(seen.values()) >= 2:
                    break
    finally:
        guard.cancel()
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    return {stream for stream, batch in seen.items() if batch >= 2}


@pytest.mark.long
def test_two_queries_go_on_from_their_checkpoints_after_the_driver_was_killed(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    streams = [f"{stream_name[-100:]}-{way}" for way in ("rows", "files")]
    for stream in streams:
        fill(cluster, stream)
    assert run_until_under_way(node, tmp_path, streams) == set(streams), (tmp_path / "driver.log").read_text()
    begin = runpy.run_path(str(DRIVER))["begin"]
    for stream in streams:
        before = spark.read.parquet(str(tmp_path / stream)).count()
        assert 0 < before < RECORDS
    queries = [begin(spark, node.kafka, tmp_path, stream, until_caught_up=True) for stream in streams]
    for query in queries:
        query.awaitTermination()
    for stream in streams:
        rows = spark.read.parquet(str(tmp_path / stream)).collect()
        assert sorted((row.partition, row.offset, bytes(row.value)) for row in rows) == sorted(
            (number % 2, number // 2, b"%d" % number) for number in range(RECORDS)
        )
