"""The command as a user runs it: a process, its output, its exit code."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


Run = Callable[..., Ended]


def command_environment(server: str | None = None, also: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment for a command: nothing of Duramen's but what is given."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DURAMEN_")}
    if server is not None:
        environment["DURAMEN_SERVER"] = server
    return environment | dict(also or {})


def run(
    *words: str,
    stdin: bytes = b"",
    server: str | None = None,
    cwd: Path | None = None,
    also: Mapping[str, str] | None = None,
    timeout_s: float = 120,
) -> Ended:
    """Run `duramen WORDS…` with the variables of `also`; no traceback ever reaches a user."""
    environment = command_environment(server, also)
    done = subprocess.run(
        [sys.executable, "-m", "duramen", *words],
        input=stdin, capture_output=True, env=environment, cwd=cwd, check=False, timeout=timeout_s,
    )  # fmt: skip
    ended = Ended(done.returncode, done.stdout.decode(), done.stderr.decode())
    assert "Traceback" not in ended.err
    return ended
