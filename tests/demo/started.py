"""A demo that runs as a process of its own, and every process that it has started."""

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from tests.untyped import untyped

__all__ = ["Started"]

psutil = untyped("psutil")

_MARK = "DEMO_UNDER_TEST"


class Started:
    """A demo that runs, and every process that it has started, and they."""

    def __init__(
        self, directory: Path, arguments: tuple[str, ...], environment: dict[str, str], module: str = "duramen.demo"
    ) -> None:
        self._mark = uuid.uuid4().hex
        command = [sys.executable, "-m", module, "--directory", str(directory), *arguments]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "COLUMNS": "80", **environment, _MARK: self._mark},
        )  # fmt: skip

    def end(self, timeout_s: float = 600) -> tuple[int, str, str]:
        """Its exit code, output and errors."""
        said, complained = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, said, complained

    def wait_for(self, text: str) -> None:
        """Wait until it says so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if text in line:
                return
        raise AssertionError(f"it never said {text}")

    def interrupt(self) -> None:
        """Ctrl-C: every process of the terminal gets the signal."""
        os.killpg(self.process.pid, signal.SIGINT)

    def processes(self) -> list[Any]:
        """All that are there."""
        return [process for process in psutil.process_iter() if self._ours(process)]

    def _ours(self, process: Any) -> bool:
        try:
            return bool(process.environ().get(_MARK) == self._mark and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False

    def left_behind(self) -> list[Any]:
        """What is still there, after a moment: what ends with its parent does so a little later."""
        deadline_s = time.monotonic() + 60
        while (there := self.processes()) and time.monotonic() < deadline_s:
            time.sleep(0.05)
        return there
