"""`format("duramen")` where Spark looks for it in a Python without Duramen."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import duramen.spark
from duramen.client import BrokerCluster, Producer
from duramen.node.process import NodeProcess
from duramen.spark.launching.java import find_java
from pyspark_duramen import DefaultSource

PROGRAM = """
import re
import sys

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

import duramen.spark

servers, stream, how = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
reader = spark.read.format("duramen").option("kafka.bootstrap.servers", servers)
try:
    reader.load(stream)
except Py4JJavaError as error:
    print(*re.findall("DATA_SOURCE_NOT_FOUND", str(error)))
if how == "register":
    duramen.spark.register(spark)
else:
    assert duramen.spark.session() is spark
print(reader.load(stream).select("value").first().value.decode())
records = spark.readStream.format("duramen").option("kafka.bootstrap.servers", servers).load(stream)
writer = records.writeStream.format("noop").option("checkpointLocation", sys.argv[0] + ".d")
writer.trigger(availableNow=True).start().awaitTermination()
spark.stop()
"""


@pytest.mark.long
def test_spark_s_own_way_to_register(
    spark: SparkSession, node: NodeProcess, cluster: BrokerCluster, stream: str
) -> None:
    with Producer(cluster) as producer:
        producer.produce(stream, b"found")
    other = spark.newSession()
    other.dataSource.register(DefaultSource)
    duramen.spark.register(other)  # the one takes the place of the other
    frame = other.read.format("duramen").option("kafka.bootstrap.servers", node.kafka).load(stream)
    assert [bytes(row.value) for row in frame.select("value").collect()] == [b"found"]


@pytest.mark.long
@pytest.mark.parametrize("how", ["register", "session"])
def test_a_builder_in_an_environment_that_is_not_activated(
    node: NodeProcess, cluster: BrokerCluster, stream: str, tmp_path: Path, how: str
) -> None:
    with Producer(cluster) as producer:
        producer.produce(stream, b"found")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(
        Path(sys.executable).resolve()
    )  # which has none of what is installed here
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}", "JAVA_HOME": find_java().home}
    ran = subprocess.run(
        [sys.executable, str(program), node.kafka, stream, how],
        env=environment, capture_output=True, text=True, check=False, timeout=400,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["DATA_SOURCE_NOT_FOUND", "found"]
