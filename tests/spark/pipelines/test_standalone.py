"""A pipeline on a real Spark cluster: two workers, whose executors are processes of their own."""

import subprocess
import sys
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.spark.standalone import standalone

from duramen.client import BrokerCluster, Producer, StreamAdmin
from duramen.node.process import NodeProcess

PIPELINE = """
import os

import pyarrow as pa
from pyspark.sql import DataFrame

from duramen.spark.pipelines import Pipeline

# The first task waits until both executors are there, so each of them gets one of the first two.
pipeline = Pipeline("everywhere", brokers="{brokers}", spark={{
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}})
pipeline.stream("numbers", "{stream}", options={{"startingOffsets": "earliest"}})


def with_daemon(batches):
    # Python workers of one executor are children of one daemon.
    for batch in batches:
        where = pa.array([os.getppid()] * batch.num_rows, pa.int64())
        yield pa.RecordBatch.from_arrays([batch.column("partition"), batch.column("offset"), where],
                                         ["partition", "offset", "daemon"])


@pipeline.step
def read(numbers: DataFrame) -> DataFrame:
    return numbers.mapInArrow(with_daemon, "partition INT, offset BIGINT, daemon BIGINT")


pipeline.to_delta("out", read, "out")
"""


@pytest.mark.long
def test_executors_of_two_processes_read_the_brokers(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    StreamAdmin(cluster).create_stream(stream_name, 4)
    with Producer(cluster) as producer:
        # More than a micro-batch has that the driver reads by itself.
        for number in range(4_000):
            producer.produce(stream_name, b"%d" % number, partition=number % 4)
    file = tmp_path / "everywhere.py"
    file.write_text(PIPELINE.format(brokers=node.kafka, stream=stream_name))
    with standalone(tmp_path, 2) as master:
        for _ in range(2):  # the second run finds nothing new
            ran = subprocess.run(
                [sys.executable, "-m", "duramen", "pipeline", "run", "--once", "--master", master, str(file)],
                capture_output=True, text=True, check=False, timeout=500,
            )  # fmt: skip
            log = tmp_path / "checkpoints" / "everywhere" / "spark.log"
            assert ran.returncode == 0, ran.stderr + log.read_text()[-5_000:]
    rows = DeltaTable(str(tmp_path / "out")).to_pyarrow_table().to_pylist()
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        (partition, offset) for partition in range(4) for offset in range(1_000)
    ]
    assert len({row["daemon"] for row in rows}) == 2
    assert all(len({row["daemon"] for row in rows if row["partition"] == partition}) == 1 for partition in range(4))
