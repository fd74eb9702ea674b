"""The command as a user runs it: a process, its output, its exit code."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

from tests.cli.forking import fork_server


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


_UNLIKE_OTHERS: Final = frozenset({"serve", "bench", "completion", "doctor", "pipeline", "spark", "table"})
"""Commands that depend on how Python was started, or on what it has imported."""

_run = set[str]()
"""Commands that have run in a Python of their own, which imports what they need."""


def run(
    *words: str,
    stdin: bytes = b"",
    server: str | None = None,
    cwd: Path | None = None,
    also: Mapping[str, str] | None = None,
    timeout_s: float = 120,
) -> Ended:
    """Run `duramen WORDS…` with the variables of `also`; no traceback ever reaches a user.

    Most runs are forks of a process that has loaded the command, which is faster.
    """
    environment = command_environment(server, also)
    command = words[0] if words else ""
    if also or command in _UNLIKE_OTHERS or command not in _run:
        _run.add(command)
        ended = _run_python(words, stdin, environment, cwd, timeout_s)
    else:
        ended = _run_fork(words, stdin, environment, cwd, timeout_s)
    assert "Traceback" not in ended.err
    return ended


def _run_python(
    words: Sequence[str], stdin: bytes, environment: Mapping[str, str], cwd: Path | None, timeout_s: float
) -> Ended:
    done = subprocess.run(
        [sys.executable, "-m", "duramen", *words],
        input=stdin, capture_output=True, env=environment, cwd=cwd, check=False, timeout=timeout_s,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def _run_fork(
    words: Sequence[str], stdin: bytes, environment: Mapping[str, str], cwd: Path | None, timeout_s: float
) -> Ended:
    with ExitStack() as stack:
        (their_in, our_in), (our_out, their_out), (our_err, their_err) = os.pipe(), os.pipe(), os.pipe()
        given = stack.enter_context(open(our_in, "wb"))
        out, err = (stack.enter_context(open(one, "rb")) for one in (our_out, our_err))
        try:
            report = fork_server().start(words, environment, cwd, (their_in, their_out, their_err))
        finally:
            for one in (their_in, their_out, their_err):
                os.close(one)
        if report is None:
            return _run_python(words, stdin, environment, cwd, timeout_s)
        reports = stack.enter_context(open(report, encoding="ascii"))
        process_id = int(reports.readline())
        with ThreadPoolExecutor(3) as threads:
            threads.submit(_write, given, stdin)
            found = threads.submit(out.read), threads.submit(err.read)
            try:
                said, complained = (one.result(timeout_s) for one in found)
            except TimeoutError:
                os.kill(process_id, signal.SIGKILL)
                raise
        return Ended(int(reports.readline()), said.decode(), complained.decode())


def _write(file: BinaryIO, data: bytes) -> None:
    with suppress(BrokenPipeError), file:
        file.write(data)
