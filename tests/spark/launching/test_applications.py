"""An application whose Spark does not start says why, in one line."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from duramen.spark.launching.applications import unreachable
from duramen.spark.launching.jvm import interrupted_later

PIPELINE = """\
pipeline: it
brokers: 127.0.0.1:1
sources: {there: {stream: there}}
sinks: {out: {from: there, console: true}}
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("master", "why"),
    [("locl", "Master must "), ("spark://127.0.0.1:1", "127.0.0.1:1 cannot be reached: Connection refused")],
)
def test_a_master_that_cannot_be(tmp_path: Path, master: str, why: str) -> None:
    (tmp_path / "it.yaml").write_text(PIPELINE)
    command = [sys.executable, "-m", "duramen", "pipeline", "validate", "--offline", "--master", master, "it.yaml"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=500)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"duramen: Spark does not start on {master}: {why}")
    assert ended.stderr.endswith("[spark-failed]\n")
    assert len(ended.stderr.splitlines()) == 1


def test_one_of_several_masters_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as there:
        port = there.getsockname()[1]
        assert unreachable(f"spark://127.0.0.1:1,127.0.0.1:{port}") is None
    assert unreachable("spark://127.0.0.1:1,[::1]:1") is not None
    assert unreachable("spark://127.0.0.1:99999") is not None
    assert unreachable("local[*]") is None


def test_a_signal_that_waits_comes_though_the_block_fails() -> None:
    seen: list[int] = []

    def fail() -> None:
        with interrupted_later():
            signal.raise_signal(signal.SIGTERM)
            assert not seen
            raise ConnectionRefusedError

    before = signal.signal(signal.SIGTERM, lambda number, _: seen.append(number))
    try:
        with pytest.raises(ConnectionRefusedError):
            fail()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert seen == [signal.SIGTERM]


def test_java_that_ends_while_spark_starts(tmp_path: Path) -> None:
    script = """
from pathlib import Path
from duramen.base.errors import SparkFailed
from duramen.spark.launching import applications
def refused(*_, **__):
    raise ConnectionRefusedError(111, "Connection refused")
applications.make_session = refused
try:
    with applications.application("it", "local[2]", {}, Path("log")):
        pass
except SparkFailed as error:
    print(error)
"""
    code, said, complained = _ran(script, tmp_path)
    assert (code, complained) == (0, "")
    assert re.match(r"Spark does not start on local\[2\]: its Java has ended: .*Connection refused", said)


@pytest.mark.long
def test_java_that_ends_first_leaves_no_traceback(tmp_path: Path) -> None:
    script = """
from pathlib import Path
from duramen.spark.launching.applications import application
with application("it", "local[1]", {"spark.ui.enabled": "false"}, Path("log")) as spark:
    try:
        raise EOFError
    except EOFError:
        spark.sparkContext._accumulatorServer.handle_error(None, "")
"""
    assert _ran(script, tmp_path) == (0, "", "")


def _ran(script: str, directory: Path) -> tuple[int, str, str]:
    """Exit code, output and errors, in a process of its own: an application ends the Java of its process."""
    command = [sys.executable, "-c", script]
    ended = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False, timeout=500)
    return ended.returncode, ended.stdout, ended.stderr
