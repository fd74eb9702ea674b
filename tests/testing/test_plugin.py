"""The pytest plugin, as a project of somebody else's has it: in a process of its own, found by its entry point."""

import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import duramen
from duramen.testing import Broker


def run(directory: Path, tests: str, *options: str) -> tuple[int, str]:
    """Run tests in a project that knows nothing of ours; the exit code, and what pytest says."""
    (directory / "pytest.ini").write_text("[pytest]\n")
    (directory / "test_it.py").write_text(tests)
    words = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-W", "error", "--color=no", *options]
    done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False, timeout=600)
    return done.returncode, done.stdout + done.stderr


def test_it_is_registered() -> None:
    [point] = [one for one in entry_points(group="pytest11") if one.name == "duramen"]
    assert point.value == "duramen.testing.plugin"


def test_nothing_is_imported_until_a_fixture_is_used() -> None:
    program = (
        "import pytest, sys, json; before = set(sys.modules); import duramen.testing.plugin;"
        "print(json.dumps(sorted(set(sys.modules) - before)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == ["duramen", "duramen.testing", "duramen.testing.plugin"]


@pytest.mark.long
def test_a_run_without_fixtures_of_ours_loads_nothing_else(tmp_path: Path) -> None:
    tests = """
import sys

def test_nothing():
    loaded = {name for name in sys.modules if name.startswith("duramen")}
    assert loaded == {"duramen", "duramen.testing", "duramen.testing.plugin"}, loaded
"""
    code, said = run(tmp_path, tests)
    assert code == 0, said


def test_a_stream_of_ones_own(duramen_broker: Broker, duramen_stream: str) -> None:
    with duramen.connect(duramen_broker.http_url) as client:
        assert len(client.streams.describe(duramen_stream).partitions) == 1
        client.produce(duramen_stream, ["a"])
    assert [record.text for record in duramen_broker.records(duramen_stream)] == ["a"]


@pytest.mark.parametrize("odd", ["ä b/c", "x" * 300, ""])
def test_its_name_is_one_that_kafka_takes(odd: str, duramen_broker: Broker, duramen_stream: str) -> None:
    assert len(odd) in (0, 5, 300)
    assert duramen_broker.records(duramen_stream) == []


_SPOILT = """
def test_that_spoils(duramen_broker, duramen_stream):
    duramen_broker.faults.error("Produce", "KAFKA_STORAGE_ERROR", times=None)
    duramen_broker.faults.error("Fetch", "NO_SUCH")

def test_that_crashes(duramen_broker):
    assert not duramen_broker.faults.any_set
    duramen_broker.crash()

def test_that_finds_it_as_it_was(duramen_broker, duramen_stream):
    import duramen
    with duramen.connect(duramen_broker.http_url) as client:
        client.produce(duramen_stream, ["a"])
    assert len(duramen_broker.records(duramen_stream)) == 1
"""


def test_one_test_does_not_spoil_another(tmp_path: Path) -> None:
    code, said = run(tmp_path, _SPOILT)
    assert code == 1
    assert "2 passed, 1 failed" in said or "1 failed, 2 passed" in said, said


_FAILING = """
import duramen

def test_quiet(duramen_broker):
    pass

def test_failing(duramen_broker, duramen_stream):
    duramen_broker.faults.error("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
    with duramen.connect(duramen_broker.http_url) as client:
        client.produce(duramen_stream, ["a"])
    assert False, "on purpose"

def test_of_its_own(duramen_broker_factory):
    broker = duramen_broker_factory({"num.partitions": 3})
    with duramen.connect(broker.http_url) as client:
        assert len(client.streams.create("s").partitions) == 2

def test_before_it_runs(duramen_broker_factory):
    duramen_broker_factory({"num.partitions": "none"})
"""


@pytest.mark.long
def test_a_failing_tests_report_has_the_log(tmp_path: Path) -> None:
    code, said = run(tmp_path, _FAILING, "-rN", "--tb=short")
    assert code == 1
    failing, own = said.index("_ test_failing _"), said.index("_ test_of_its_own _")
    before = said.index("_ test_before_it_runs _")
    assert "- duramen broker log -" in said[failing:own]
    assert said[failing:own].count("duramen-python answered with NOT_LEADER_OR_FOLLOWER") == 3
    assert "recovered 0 logs" not in said[failing:own]  # the start was another test's
    assert "- duramen broker log -" in said[own:before]
    assert "recovered 0 logs" in said[own:before]
    assert "num.partitions: 'none' does not fit" in said[before:]


_PARALLEL = """
import os, pathlib, time

def meet(number, address):
    here = pathlib.Path(os.environ["MEETING"])
    (here / str(number)).write_text(address)
    deadline = time.monotonic() + 60
    while len(list(here.iterdir())) < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len({path.read_text() for path in here.iterdir()}) == 2

def test_one(duramen_broker, duramen_stream):
    assert duramen_broker.records(duramen_stream) == []
    meet(1, duramen_broker.bootstrap_servers)

def test_two(duramen_broker, duramen_stream):
    assert duramen_broker.records(duramen_stream) == []
    meet(2, duramen_broker.bootstrap_servers)
"""


@pytest.mark.long
def test_every_worker_of_xdist_has_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meeting").mkdir()
    monkeypatch.setenv("MEETING", str(tmp_path / "meeting"))
    code, said = run(tmp_path, _PARALLEL, "-n", "2")
    assert code == 0, said


@pytest.mark.long
def test_ctrl_c_ends_the_tests_and_the_broker(tmp_path: Path) -> None:
    tests = """
import os, signal

def test_it(duramen_broker):
    print("PID", duramen_broker.pid, flush=True)
    os.killpg(os.getpgid(0), signal.SIGINT)
    signal.pause()
"""
    (tmp_path / "test_it.py").write_text(tests)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=600, start_new_session=True,
    )  # fmt: skip
    assert done.returncode == pytest.ExitCode.INTERRUPTED, done.stdout
    pid = int(done.stdout.split("PID ")[1].split()[0])
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
