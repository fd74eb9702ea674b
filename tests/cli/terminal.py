"""The command in a terminal of its own: what it shows there, and answers typed into it."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import Final, Self

from tests.cli.command import command_environment

_DEADLINE_S: Final = 60.0
_PATIENCE_S: Final = 5.0


class Terminal:
    """`duramen WORDS…` on a pseudo-terminal."""

    def __init__(self, *words: str, server: str | None = None, columns: int = 80, lines: int = 24) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        environment = command_environment(server, {"TERM": "xterm-256color"})
        environment.pop("COLUMNS", None)
        environment.pop("LINES", None)
        # A session of its own, whose controlling terminal this is: Ctrl-C is a signal there.
        begin = (
            "import fcntl, runpy, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0);"
            " runpy.run_module('duramen', run_name='__main__', alter_sys=True)"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", begin, *words],
            stdin=theirs, stdout=theirs, stderr=theirs, env=environment, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self._shown = b""
        self._answered = 0

    def answer(self, question: str, keys: str) -> Self:
        """Wait until `question` is shown, after what was answered last, and type `keys`."""
        deadline = time.monotonic() + _DEADLINE_S
        while question.encode() not in self._shown[self._answered :]:
            if not self._read(deadline):
                self._process.kill()
                raise AssertionError(f"{question!r} never came: {self._shown!r}")
        self._answered = len(self._shown)
        os.write(self._ours, keys.encode())
        return self

    def interrupt(self, question: str) -> Self:
        """Wait until `question` is shown and press Ctrl-C until it has ended.

        One that comes just before it reads is seen when it has read: never, if nothing else is typed.
        """
        self.answer(question, "\x03")
        deadline = time.monotonic() + _DEADLINE_S
        # A second one while it ends would end it otherwise: it gets time to end before.
        while not self._drained(time.monotonic() + _PATIENCE_S) and time.monotonic() < deadline:
            os.write(self._ours, b"\x03")
        return self

    def end(self) -> tuple[int, str]:
        """Wait until it has ended; returns its exit code and everything that was shown."""
        if not self._drained(time.monotonic() + _DEADLINE_S):
            self._process.kill()
        code = self._process.wait(_DEADLINE_S)
        os.close(self._ours)
        return code, self._shown.decode(errors="replace").replace("\r\n", "\n")

    def _drained(self, deadline: float) -> bool:
        """Read until it has closed the terminal; False where it has not by then."""
        while time.monotonic() < deadline:
            if not self._read(deadline):
                return time.monotonic() < deadline
        return False

    def _read(self, deadline: float) -> bool:
        """Read what it shows; False where there is nothing more, or nothing until then."""
        ready, _, _ = select.select([self._ours], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return False
        try:
            piece = os.read(self._ours, 65536)
        except OSError:  # the other end is closed
            return False
        self._shown += piece
        return bool(piece)
