"""`make install` that is killed in the middle: the next one finishes."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients import until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of this one that installs the build tools and Duramen only: everything else would be the same again."""
    copy = tmp_path / "checkout"
    for name in ("tools", "requirements", "src"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy / name)
    shutil.copy(copy / "requirements" / "build.lock", copy / "requirements" / "all.lock")
    return copy


def begin(checkout: Path) -> "subprocess.Popen[bytes]":
    """Start to install, in a process group of its own."""
    system_python = str(Path(sys.executable).resolve())
    return subprocess.Popen([system_python, "tools/install.py"], cwd=checkout, start_new_session=True)


def has_begun(venv: Path) -> bool:
    return venv.exists()


def has_python_without_pip(venv: Path) -> bool:
    return (venv / "bin" / "python").exists()


def has_half_of_the_build_tools(venv: Path) -> bool:
    return any(venv.glob("lib/python*/site-packages/hatchling"))


def has_everything_but_duramen(venv: Path) -> bool:
    return any(venv.glob("lib/python*/site-packages/hatchling-*.dist-info/RECORD"))


@pytest.mark.long
@pytest.mark.parametrize(
    "moment", [has_begun, has_python_without_pip, has_half_of_the_build_tools, has_everything_but_duramen]
)
def test_the_next_one_finishes(checkout: Path, moment: Callable[[Path], bool]) -> None:
    venv = checkout / ".venv"
    with begin(checkout) as killed:
        until(lambda: moment(venv) or killed.poll() is not None)
        os.killpg(killed.pid, signal.SIGKILL)
    assert killed.returncode == -signal.SIGKILL
    assert not (venv / "installed.sha256").exists()
    with begin(checkout) as finished:
        assert finished.wait(300) == 0
    said = subprocess.run(
        [venv / "bin" / "python", "-I", "-c", "import duramen; print(duramen.__file__)"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert said.stdout.strip() == str(checkout / "src" / "duramen" / "__init__.py")
    stamped_ns = (venv / "installed.sha256").stat().st_mtime_ns
    with begin(checkout) as again:
        assert again.wait(300) == 0
    assert (venv / "installed.sha256").stat().st_mtime_ns == stamped_ns
