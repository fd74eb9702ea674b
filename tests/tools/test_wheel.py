"""`make wheel`: the wheel alone, in an empty environment, is a whole node."""

import json
import os
import subprocess
import sys
import urllib.request
import zipfile
from pathlib import Path

import pytest
from tests.clients import until

ROOT = Path(__file__).parents[2]
UV = str(Path(sys.executable).parent / "uv")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built as `make wheel` does."""
    place = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)],
        cwd=ROOT, check=True, capture_output=True,
    )  # fmt: skip
    (found,) = place.glob("duramen-*-py3-none-any.whl")
    return found


def test_it_holds_every_module_and_the_mark_of_types(wheel: Path) -> None:
    sources = ROOT / "src"
    modules = {str(path.relative_to(sources)) for path in sources.rglob("*.py")}
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert modules - names == set()
    assert "duramen/py.typed" in names
    assert all(name.startswith(("duramen/", "duramen-")) or name == "pyspark_duramen.py" for name in names)


def duramen(environment: Path, *arguments: str, server: str, stdin: str = "") -> str:
    """What a command of the installed wheel prints."""
    return subprocess.run(
        [environment / "bin" / "duramen", *arguments, "--server", server],
        input=stdin, capture_output=True, text=True, check=True, timeout=60,
    ).stdout  # fmt: skip


@pytest.mark.long
def test_it_runs_in_an_empty_environment(wheel: Path, tmp_path: Path) -> None:
    environment = tmp_path / "an empty one"
    python = str(environment / "bin" / "python")
    subprocess.run([UV, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    # Of the versions that are locked, and from uv's cache, where `make install` has put them.
    locked = ["--constraint", str(ROOT / "requirements" / "all.lock")]
    subprocess.run([UV, "pip", "install", "--quiet", "--python", python, *locked, str(wheel)], check=True)
    data = tmp_path / "data"
    addresses = [f"--{door}-listen=127.0.0.1:0" for door in ("kafka", "http", "nats")]
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [environment / "bin" / "duramen", "serve", "--data-dir", str(data), *addresses],
            stdout=subprocess.DEVNULL, stderr=log, cwd=tmp_path, env=clean,
        ) as node,
    ):  # fmt: skip
        try:
            place = data / "run" / "addresses.json"
            until(lambda: place.exists() or node.poll() is not None)
            assert node.poll() is None, (tmp_path / "log").read_text()
            server = json.loads(place.read_text())["http"]
            with urllib.request.urlopen(f"http://{server}/readyz", timeout=60) as answer:
                assert answer.status == 200
            duramen(environment, "stream", "create", "s", server=server)
            duramen(environment, "produce", "s", server=server, stdin="hello\n")
            assert duramen(environment, "consume", "s", server=server) == "hello\n"
        finally:
            node.terminate()
        assert node.wait(60) == 0
