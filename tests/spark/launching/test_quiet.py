"""What a program of a user prints: what it shows, and nothing of how Spark stops reading or how the program ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from duramen.client import BrokerCluster, Producer
from duramen.node.process import NodeProcess

PROGRAM = """
import sys
import duramen.spark

spark = duramen.spark.session("quiet", "local[2]", config={
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false",
    "spark.python.authenticate.socketTimeout": "120s",
})
options = {"kafka.bootstrap.servers": sys.argv[1], "startingOffsets": "earliest"}
spark.read.format("duramen").options(**options).load(sys.argv[2]).select("offset").show(2)
rows = spark.readStream.format("duramen").options(**options).load(sys.argv[2])
query = rows.writeStream.format("memory").queryName("rows").option("checkpointLocation", sys.argv[3]).start()
query.processAllAvailable()
print(spark.table("rows").count())
"""


@pytest.mark.long
def test_show_and_an_end_without_stop_print_no_errors(
    node: NodeProcess, cluster: BrokerCluster, stream: str, tmp_path: Path
) -> None:
    """The first reads a part of what a worker has, and the query still runs at the end."""
    with Producer(cluster) as producer:
        for number in range(20_000):
            producer.produce(stream, b"x" * 100, partition=number % 2)
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, node.kafka, stream, str(tmp_path / "checkpoint")],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines()[-1] == "20000"
    loud = [
        line for line in finished.stderr.splitlines() if any(sign in line for sign in ("Traceback", "Error", "ERROR"))
    ]
    assert loud == [], finished.stderr
