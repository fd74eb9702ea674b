"""An application whose Spark does not start says why, in one line."""

import subprocess
import sys
from pathlib import Path

PIPELINE = """\
pipeline: it
brokers: 127.0.0.1:1
sources: {there: {stream: there}}
sinks: {out: {from: there, console: true}}
"""


def test_a_master_that_spark_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "it.yaml").write_text(PIPELINE)
    command = [sys.executable, "-m", "duramen", "pipeline", "validate", "--offline", "--master", "locl", "it.yaml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("duramen: Spark does not start on locl: Master must ")
    assert ended.stderr.endswith("[spark-failed]\n")
    assert len(ended.stderr.splitlines()) == 1
