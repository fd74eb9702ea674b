"""The whole demo of a cluster with fewer flights, as a process of its own: its end, and what it leaves behind."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.demo.started import Started


@pytest.mark.long
def test_everything_comes_through(demo_cluster: Callable[..., Started], tmp_path: Path) -> None:
    started = demo_cluster("--flights", "4000", "--seconds", "8")
    code, said, complained = started.end()
    assert (code, complained) == (0, "")
    assert "every flight is where its acknowledgement says: none missing, none twice" in said
    assert re.search(r"node \d  +killed: others led after [\d.]+ m?s", said)
    assert re.search(r"node \d  +paused: others led after [\d.]+ m?s", said)
    assert max(len(line) for line in said.splitlines() if str(tmp_path) not in line) <= 80
    assert started.left_behind() == []
    assert (tmp_path / "demo" / "timeline.png").read_bytes().startswith(b"\x89PNG")
    assert "leads partition" in (tmp_path / "demo" / "timeline.html").read_text()


@pytest.mark.long
def test_ctrl_c_leaves_nothing_behind(demo_cluster: Callable[..., Started]) -> None:
    started = demo_cluster("--seconds", "60")
    started.wait_for("Producing and reading")
    started.interrupt()
    code, said, complained = started.end()
    assert (code, complained) == (130, "\nmake demo-cluster: interrupted; every process has been stopped\n")
    assert "Traceback" not in said
    assert started.left_behind() == []
