"""`spark-submit` to a standalone cluster whose executors have a bare Python, and one archive of Duramen."""

import os
import subprocess
import sys
import venv
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.spark.standalone import standalone

from duramen.client import BrokerCluster, StreamAdmin
from duramen.node.process import NodeProcess
from duramen.spark.launching.java import find_java

PROGRAM = Path(__file__).with_name("submitted.py")


def submit_command() -> str:
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "bin" / "spark-submit")


@pytest.mark.long
def test_executors_have_nothing_but_the_archive(
    node: NodeProcess, cluster: BrokerCluster, stream_name: str, tmp_path: Path
) -> None:
    names = [f"{stream_name[-80:]}-{end}" for end in ("numbers", "copies")]
    for name in names:
        StreamAdmin(cluster).create_stream(name, 2)
    archive = tmp_path / "packages.zip"
    subprocess.run([sys.executable, "-m", "duramen", "spark", "package", str(archive)], check=True, timeout=300)
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False)
    executors = {"PATH": f"{bare / 'bin'}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": ""}
    driver = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "JAVA_HOME": find_java().home,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    driver = {name: value for name, value in driver.items() if not name.startswith("PYSPARK_")}
    with standalone(tmp_path, 1, executors) as master:
        words = [
            submit_command(), "--master", master, "--archives", f"{archive}#duramen-packages",
            "--conf", "spark.executorEnv.PYTHONPATH=duramen-packages", "--conf", "spark.executor.memory=512m",
        ]  # fmt: skip
        ran = subprocess.run(
            [*words, str(PROGRAM), node.kafka, *names, str(tmp_path)],
            env=driver, capture_output=True, text=True, check=False, timeout=500,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr[-5_000:]
    assert ran.stdout.split() == ["3000", "True"]
