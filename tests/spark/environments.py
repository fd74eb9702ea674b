"""Fresh environments with what pip brings, for what must not depend on the environment of the tests."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = ["NEWEST", "OLDEST", "Python", "make_environment"]

ROOT = Path(__file__).parents[2]
_SUPPORTED = re.compile(r"3\.1[1-4]\.\d+")
_INSTALL_S = 900


class Python(NamedTuple):
    """An interpreter of this machine."""

    version: tuple[int, ...]
    path: str


def _found() -> Iterator[Python]:
    """The supported interpreters on the PATH, and those that pyenv has."""
    candidates = [shutil.which(f"python3.{minor}") for minor in range(11, 15)]
    if pyenv := shutil.which("pyenv"):
        root = subprocess.run([pyenv, "root"], capture_output=True, text=True, check=True).stdout.strip()
        candidates += [str(path) for path in Path(root, "versions").glob("3.*/bin/python3")]
    for path in [str(Path(sys.executable).resolve()), *filter(None, candidates)]:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, check=False)
        version = asked.stdout.removeprefix("Python ").strip()
        if asked.returncode == 0 and _SUPPORTED.fullmatch(version):
            yield Python(tuple(map(int, version.split("."))), path)


_ALL = sorted(_found())
OLDEST, NEWEST = _ALL[0], _ALL[-1]


def make_environment(directory: Path, python: Python, *requirements: str, extras: str = "") -> Path:
    """A virtual environment with Duramen, its extras and more; returns its interpreter."""
    uv = str(Path(sys.executable).parent / "uv")
    environment = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    duramen = f"{ROOT}[{extras}]" if extras else str(ROOT)
    made = directory / "bin" / "python"
    for words in (["venv", "--python", python.path, str(directory)],
                  ["pip", "install", "--python", str(made), duramen, *requirements]):  # fmt: skip
        ran = subprocess.run(
            [uv, *words], env=environment, capture_output=True, text=True, check=False, timeout=_INSTALL_S
        )
        assert ran.returncode == 0, ran.stderr
    return made
