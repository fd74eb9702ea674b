"""A reader's terminal: the commands of a page in a directory of its own, against a node of its own.

What is typed is run by bash as it stands, but for three things that cannot be as on a reader's machine:
- addresses: where a page says 127.0.0.1:9092, 9644 and 4222 (or localhost), the node has free ports. They are changed
  in what is typed, in programs and in examples/, and back in what comes out;
- `duramen serve` goes on in the background, as it does in a terminal of its own; what it prints is its banner;
- `$(pgrep -f 'duramen serve')` is the process id of that node: others may be running beside it.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Final

from tests.clients import until

__all__ = ["Terminal", "programs"]

ROOT: Final = Path(__file__).parents[2]
_KCAT: Final = ROOT / ".cache" / "kcat" / "root" / "usr"
_PORTS: Final = {"kafka": 9092, "http": 9644, "nats": 4222}
_PGREP: Final = re.compile(r"\$\(pgrep -f 'duramen serve'\)")
_BASH: Final = shutil.which("bash") or "bash"
_COLORS: Final = ("FORCE_COLOR", "PY_COLORS", "CLICOLOR_FORCE")  # what may ask for them though nobody looks on
_READY: Final = "is ready."
_TIMEOUT_S: Final = 900
_STOP_S: Final = 60


def programs(directory: Path) -> str:
    """A PATH with what this checkout has: duramen, python, and the kcat that tools/kcat.py brings."""
    if (_KCAT / "bin" / "kcat").exists():
        libraries = ":".join(map(str, (_KCAT / "lib").glob("*-linux-*")))
        kcat = directory / "kcat"
        kcat.write_text(f'#!/bin/sh\nLD_LIBRARY_PATH="{libraries}" exec "{_KCAT}/bin/kcat" "$@"\n')
        kcat.chmod(0o755)
    return os.pathsep.join([str(directory), str(Path(sys.executable).parent), os.environ["PATH"]])


class Terminal:
    """Runs commands; ends the node that they start."""

    def __init__(self, directory: Path) -> None:
        """`directory` is empty; commands run in `home` below it, beside a copy of examples/."""
        self.home = directory / "home"
        self.home.mkdir()
        (directory / "bin").mkdir()
        (self.home / "examples").mkdir()
        kept = {name: value for name, value in os.environ.items() if name not in _COLORS}
        self._environment = {name: value for name, value in kept.items() if not name.startswith("DURAMEN_")} | {
            "PATH": programs(directory / "bin"),
            "HOME": str(self.home),
            "COLUMNS": "120",
            "PYTHONUNBUFFERED": "1",
            "DURAMEN_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
            **{f"DURAMEN_{door.upper()}_LISTEN": "127.0.0.1:0" for door in _PORTS},
        }
        self._node: subprocess.Popen[str] | None = None
        self._reader = threading.Thread()
        self._addresses: dict[str, str] = {}

    def has(self, program: str) -> bool:
        """Whether a program is there to be run."""
        return shutil.which(program, path=self._environment["PATH"]) is not None

    @property
    def serving(self) -> bool:
        """Whether a node runs."""
        return self._node is not None and self._node.poll() is None

    def type(self, text: str, lines: int = 0) -> list[str]:
        """Run what is typed; the lines that come back on standard output and error. A banner has `lines` at least."""
        if text.startswith("duramen serve"):
            return self.serve(text, lines)
        if self._node is not None:
            text = _PGREP.sub(str(self._node.pid), text)
        done = subprocess.run(
            [_BASH, "-c", self._to_node(text)], cwd=self.home, env=self._environment, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True, timeout=_TIMEOUT_S,
        )  # fmt: skip
        if text.startswith("kill ") and self._node is not None:
            self._node.wait()
        return self._from_node(done.stdout).splitlines()

    def program(self, text: str) -> tuple[int, list[str], str]:
        """Run a Python program: its exit code, what it prints, what it says on standard error."""
        path = self.home / "example.py"
        path.write_text(self._to_node(text), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, str(path)], cwd=self.home, env=self._environment, check=False, capture_output=True,
            text=True, timeout=_TIMEOUT_S,
        )  # fmt: skip
        return done.returncode, self._from_node(done.stdout).splitlines(), done.stderr

    def serve(self, text: str = "duramen serve", lines: int = 0) -> list[str]:
        """Start a node, again on the ports that it had, and wait until it is ready; returns its banner."""
        with (self.home / "node.log").open("ab") as log:
            self._node = subprocess.Popen(
                [_BASH, "-c", f"exec {self._to_node(text)}"], cwd=self.home, env=self._environment,
                stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True,
            )  # fmt: skip
        banner: list[str] = []
        self._reader = threading.Thread(target=self._read, args=(self._node, banner), daemon=True)
        self._reader.start()
        ready = until(lambda: (len(banner) >= max(lines, 1) and banner[0].endswith(_READY)) or not self.serving)
        assert ready, f"{text}: {banner}"
        assert self.serving, (self.home / "node.log").read_text(encoding="utf-8")
        (written,) = self.home.glob("*/run/addresses.json")
        self._addresses = json.loads(written.read_text(encoding="utf-8"))
        for door, address in self._addresses.items():
            self._environment[f"DURAMEN_{door.upper()}_LISTEN"] = address
        self._environment["DURAMEN_SERVER"] = self._addresses["http"]
        for example in (ROOT / "examples").glob("*.py"):
            text = self._to_node(example.read_text(encoding="utf-8"))
            (self.home / "examples" / example.name).write_text(text, encoding="utf-8")
        return [self._from_node(line) for line in banner]

    def close(self) -> None:
        """End the node."""
        if self._node is not None:
            self._node.terminate()
            self._node.wait(_STOP_S)
            self._reader.join()

    @staticmethod
    def _read(node: "subprocess.Popen[str]", lines: list[str]) -> None:
        if node.stdout is not None:
            with node.stdout:
                lines.extend(line.rstrip("\n") for line in node.stdout)

    def _to_node(self, text: str) -> str:
        for door, address in self._addresses.items():
            text = re.sub(rf"(127\.0\.0\.1|localhost):{_PORTS[door]}\b", address, text)
        return text

    def _from_node(self, text: str) -> str:
        for door, address in self._addresses.items():
            text = text.replace(address, f"127.0.0.1:{_PORTS[door]}")
        return text
