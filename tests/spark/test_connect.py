"""Spark Connect: a client whose server has Duramen reads and writes with it; the client itself needs nothing of it."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.spark.environments import OLDEST, make_environment

from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.launching.java import find_java

PROGRAM = Path(__file__).with_name("submitted.py")
_WAIT_S = 300


def environment_of(python: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
    return kept | {"PATH": path, "JAVA_HOME": find_java().home, "SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": ""}


@contextmanager
def connect_server(python: Path, directory: Path) -> Iterator[str]:
    """A server of Spark Connect with one Python; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = [
        str(next(python.parents[1].glob("lib/python3*/site-packages/pyspark/bin/spark-submit"))),
        "--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]",
        "--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.ui.enabled=false", "spark-internal",
    ]  # fmt: skip
    with (directory / "server.log").open("wb") as log:
        server = subprocess.Popen(words, cwd=directory, env=environment_of(python), stdout=log, stderr=log)
    try:
        end_s = time.monotonic() + _WAIT_S
        while True:
            assert server.poll() is None, (directory / "server.log").read_text()
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < end_s
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.mark.long
def test_batches_streaming_queries_and_the_sink(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    names = [f"{stream_name[-80:]}-{end}" for end in ("numbers", "copies")]
    for name in names:
        StreamAdmin(cluster).create_stream(name, 2)
    python = make_environment(tmp_path / "environment", OLDEST, "pyspark[connect]==4.3.*", extras="spark")
    with connect_server(python, tmp_path) as remote:
        ran = subprocess.run(
            [python, str(PROGRAM), node.kafka, *names, str(tmp_path), remote],
            env=environment_of(python), capture_output=True, text=True, check=False, timeout=500,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-5_000:]
    assert ran.stdout.split() == ["3000", "True"]
