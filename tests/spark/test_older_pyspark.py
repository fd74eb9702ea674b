"""PySpark 4.0 and 4.1, each in an environment of its own: batches, streaming queries and the sink."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.spark.environments import OLDEST, make_environment

from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.launching.java import find_java

PROGRAM = Path(__file__).with_name("reading_and_writing.py")


@pytest.mark.long
@pytest.mark.parametrize("version", ["4.0", "4.1"])
def test_reads_and_writes(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path, version: str
) -> None:
    names = [f"{stream_name[-80:]}-{end}" for end in ("numbers", "copies")]
    for name in names:
        StreamAdmin(cluster).create_stream(name, 2)
    python = make_environment(tmp_path / "environment", OLDEST, f"pyspark=={version}.*", extras="spark")
    ran = subprocess.run(
        [python, str(PROGRAM), node.kafka, *names, str(tmp_path)],
        env=os.environ | {"JAVA_HOME": find_java().home},
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-5_000:]
    said = json.loads(ran.stdout)
    assert said["version"].startswith(version)
    # Each run reads all there is as one micro-batch, and goes on where the one before ended.
    assert said["progress"] == [[5_000], [100]]
    assert (said["rows"], said["headers"], said["copied"]) == (10, "of", True)
