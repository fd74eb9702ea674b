from pathlib import Path

import pytest

from duramen.base.errors import DirectoryUnusable
from duramen.demo.directory import DemoDirectory
from duramen.node.process import NodeProcess


def test_an_earlier_demo_is_replaced(tmp_path: Path) -> None:
    first = DemoDirectory(tmp_path / "demo")
    first.node.mkdir()
    (first.node / "lock").touch()
    second = DemoDirectory(tmp_path / "demo")
    assert not second.node.exists()


def test_an_empty_directory_is_taken(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    assert DemoDirectory(tmp_path / "demo").path == tmp_path / "demo"


def test_anything_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name in ("demo", "file"):
        with pytest.raises(DirectoryUnusable, match=rf"{name} is there and was not made by the demo; name another"):
            DemoDirectory(tmp_path / name)
    assert (tmp_path / "demo" / "thesis.txt").read_text() == (tmp_path / "file").read_text() == "mine"


def test_one_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DirectoryUnusable, match="cannot be used: Not a directory"):
        DemoDirectory(tmp_path / "file" / "demo")


def test_one_whose_node_still_runs_is_refused(tmp_path: Path) -> None:
    directory = DemoDirectory(tmp_path / "demo")
    with NodeProcess(directory.node), pytest.raises(DirectoryUnusable, match=r"still runs in .*; stop it first"):
        DemoDirectory(tmp_path / "demo")
    DemoDirectory(tmp_path / "demo")


def test_how_paths_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = DemoDirectory(tmp_path / "demo")
    assert directory.shown(directory.node) == str(tmp_path / "demo" / "node")
    monkeypatch.chdir(tmp_path)
    assert directory.shown(directory.node) == "demo/node"
