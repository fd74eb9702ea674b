"""The parent's side of `testing.child`: starts the process, waits for it, sends commands, kills it."""

import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from duramen.base.errors import DuramenError, ServerUnreachable, SettingInvalid

__all__ = ["ChildProcess"]

_START_S: Final = 120.0
_ANSWER_S: Final = 60.0
_STOP_S: Final = 30.0
_PROGRAM: Final = "from duramen.testing.child import main; main()"
_PIECE_BYTES: Final = 65536


def _environment() -> dict[str, str]:
    # Pip compiles installed modules; otherwise compiling them at each start takes longer than everything else.
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class ChildProcess:
    """One run of a broker, from `start` to `kill` or `stop`. Its log is appended to a file."""

    def __init__(self, log_path: Path) -> None:
        self._log_path = log_path
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._lock = threading.Lock()

    def start(self, node: Mapping[str, object], settings: Mapping[str, object]) -> dict[str, str]:
        """Start it and wait until its doors accept requests; returns their addresses.

        `node` has settings that the user may override. Raises SettingInvalid, or ServerUnreachable with its log.
        """
        with self._log_path.open("ab") as log:
            # A session of its own: Ctrl-C is for the tests, which end it.
            self._process = subprocess.Popen(
                [sys.executable, "-c", _PROGRAM],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=self._log_path.parent,
                start_new_session=True, bufsize=0, env=_environment(),
            )  # fmt: skip
        given = {"node": {name: value for name, value in node.items() if name not in settings}, "settings": settings}
        try:
            answer = self._ask(given, _START_S)
            if "error" in answer:
                raise (SettingInvalid if answer["error"] == SettingInvalid.id else ServerUnreachable)(answer["message"])
        except DuramenError:
            self.kill()
            raise
        addresses: dict[str, str] = answer["addresses"]
        return addresses

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        """The id of the last started process."""
        return None if self._process is None else self._process.pid

    def ask(self, order: Mapping[str, object]) -> dict[str, Any]:
        """Send a command; returns the response once it is executed.

        Raises ServerUnreachable if the process has ended.
        """
        with self._lock:
            return self._ask(order, _ANSWER_S)

    def _ask(self, order: Mapping[str, object], timeout_s: float) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise ServerUnreachable("the broker does not run: restart() starts it again")
        try:
            process.stdin.write(json.dumps(order, default=str).encode() + b"\n")
            line = self._line(process.stdout.fileno(), time.monotonic() + timeout_s)
        except BrokenPipeError:
            line = b""
        if not line:
            raise ServerUnreachable(f"the broker ended or does not answer:\n{self._end_of_log()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _line(self, output: int, deadline: float) -> bytes:
        """The next line; empty if there is none."""
        while b"\n" not in self._rest:
            waiting = select.poll()
            waiting.register(output, select.POLLIN)
            if not waiting.poll(max(0.0, 1000 * (deadline - time.monotonic()))):
                return b""
            data = os.read(output, _PIECE_BYTES)
            if not data:
                return b""
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        return line

    def _end_of_log(self) -> str:
        return self._log_path.read_text(errors="replace")[-2000:]

    def kill(self) -> None:
        """Kill -9, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._wait(self._process)

    def stop(self) -> None:
        """Let it drain and end; kill it if that takes too long."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            self._wait(self._process)

    def _wait(self, process: "subprocess.Popen[bytes]") -> None:
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
        self._process = None
        self._rest = b""
