"""What runs on executors needs nothing that a broker needs."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from duramen.client import BrokerCluster, Producer
from duramen.node.process import NodeProcess
from duramen.spark.batches import native

SAID = pa.schema([pa.field("said", pa.string())])
BLOCKED = Path(__file__).parent / "blocked"

READ = """
import sys
from duramen.client import BrokerCluster, TopicPartition
from duramen.spark.options import Options
from duramen.spark.read.reader import OffsetSpan, PartitionReader

servers, stream = sys.argv[1:]
reading = PartitionReader(Options({"kafka.bootstrap.servers": servers, "includeHeaders": "true"}, "batch"))
topic = BrokerCluster(servers).topic(stream)
rows = [
    row
    for partition in topic.leaders
    for batch in reading.read(OffsetSpan(TopicPartition(stream, partition), str(topic.id), 0, 10))
    for row in batch.to_pylist()
]
print(sorted(row["value"].decode() for row in rows))
brokers_only = ("uvloop", "rocksdict", "starlette", "uvicorn", "nats")
print(sorted(name for name in sys.modules if name.split(".")[0] in brokers_only))
"""


def test_a_fresh_interpreter_reads_without_them(node: NodeProcess, cluster: BrokerCluster, stream: str) -> None:
    with Producer(cluster) as producer:
        for number in range(40):
            producer.produce(stream, b"%02d" % number, partition=number % 4)
    finished = subprocess.run(
        [sys.executable, "-c", READ, node.kafka, stream],
        env={**os.environ, "PYTHONPATH": str(BLOCKED)}, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    # A process says once that it does without the native package, and nothing else.
    said = [line.partition(":")[0] for line in finished.stderr.splitlines()]
    assert said == ([] if native.is_installed() else ["duramen-native is not installed"])
    assert finished.stdout.splitlines() == [str([f"{number:02}" for number in range(40)]), "[]"]


def test_the_blocking_blocks() -> None:
    for module in ("uvloop", "rocksdict", "starlette", "uvicorn", "nats", "duramen.node", "duramen.service.broker"):
        finished = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            env={**os.environ, "PYTHONPATH": str(BLOCKED)}, capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert "is not for executors" in finished.stderr


def test_sparks_workers_are_blocked_too(spark: SparkSession) -> None:
    """So every other test here says that reading and writing work without them."""

    def attempt(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            try:
                __import__("uvloop")
            except ImportError as error:
                yield pa.RecordBatch.from_arrays([pa.array([str(error)])], schema=SAID)

    (row,) = spark.range(1).mapInArrow(attempt, "said string").collect()
    assert row.said == "uvloop is not for executors"
