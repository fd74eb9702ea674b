"""A node as a child process: started, awaited until it is ready, stopped or killed. For tests, demos, benchmarks."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from duramen.base.errors import ServerUnreachable
from duramen.base.settings import config_text

__all__ = ["NodeProcess", "hold_port"]

_READY: Final = "is ready."
_ANY_PORT: Final = "127.0.0.1:0"
# A shared machine is slow at times; a node that ends during its start is noticed at once.
_START_S: Final = 120.0
_STOP_S: Final = 60.0


def hold_port() -> socket.socket:
    """A free port of the loopback, reserved until the socket is closed.

    Linux lets another socket listen on a port that a non-listening socket is bound to, if both allow it.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    return held


class NodeProcess:
    """`duramen serve` on free ports of the loopback. Its log is appended to `log_path` across restarts."""

    def __init__(
        self,
        data_dir: Path,
        settings: Mapping[str, object] | None = None,
        program: Sequence[str] = ("-m", "duramen"),
    ) -> None:
        """`settings` by their dotted names, over free ports and no NATS; `program` are the arguments of Python."""
        self.data_dir = data_dir
        self.log_path = data_dir.parent / f"{data_dir.name}.log"
        self._settings: dict[str, object] = {
            "kafka.listen": _ANY_PORT,
            "http.listen": _ANY_PORT,
            "nats.listen": _ANY_PORT,
            "nats.server": "off",
            **(settings or {}),
        }
        self._program = program
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.addresses: dict[str, str] = {}

    def start(self, timeout_s: float = _START_S) -> Self:
        """Start it and wait until every door accepts requests. Raises ServerUnreachable with the end of its log."""
        if sys.platform == "linux":
            self._hold_ports()
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as after an installation by pip: nothing is compiled again
        for name, value in self._settings.items():
            text = config_text(value)
            environment["DURAMEN_" + name.replace(".", "_").upper()] = text
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *self._program, "serve", "--data-dir", str(self.data_dir)],
                stdout=subprocess.PIPE, stderr=log, env=environment, text=True, cwd=self.log_path.parent,
            )  # fmt: skip
        if not self._wait_ready(self._process, timeout_s):
            self.kill()
            tail = self.log_path.read_text(errors="replace")[-2000:]
            raise ServerUnreachable(f"the node did not become ready:\n{tail}")
        self.addresses = json.loads((self.data_dir / "run" / "addresses.json").read_text())
        # The same ports after a restart: clients continue.
        self._settings |= {f"{door}.listen": address for door, address in self.addresses.items()}
        return self

    def _hold_ports(self) -> None:
        """Choose and reserve the free ports here: while the node is stopped, no other process gets them."""
        for name in ("kafka.listen", "http.listen", "nats.listen"):
            if self._settings[name] == _ANY_PORT:
                held = hold_port()
                weakref.finalize(self, held.close)
                self._settings[name] = f"127.0.0.1:{held.getsockname()[1]}"

    def _wait_ready(self, process: "subprocess.Popen[str]", timeout_s: float) -> bool:
        ready = threading.Event()
        said: list[str] = []
        output = process.stdout
        if output is None:
            return False

        def read() -> None:
            with output:
                for line in output:
                    if _READY in line:
                        said.append(line)
                        ready.set()
            ready.set()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()
        # Its output ends a little before the process does, so both are checked.
        return ready.wait(timeout_s) and bool(said) and process.poll() is None

    @property
    def pid(self) -> int:
        """The process id. Raises ServerUnreachable if it does not run."""
        if self._process is None:
            raise ServerUnreachable("the node is not running")
        return self._process.pid

    @property
    def running(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def kafka(self) -> str:
        """The address of the Kafka door."""
        return self.addresses["kafka"]

    @property
    def http(self) -> str:
        """The address of the HTTP door."""
        return self.addresses["http"]

    @property
    def nats(self) -> str:
        """The address of the NATS door."""
        return self.addresses["nats"]

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self.wait()

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        if self._process is not None:
            self._process.send_signal(number)

    def wait(self, timeout_s: float = _STOP_S) -> int:
        """Wait until it has ended; returns its exit code."""
        if self._process is None:
            return 0
        code = self._process.wait(timeout_s)
        if self._reader is not None:
            self._reader.join()
        return code

    def stop(self) -> int:
        """SIGTERM, and wait until it has drained; returns its exit code."""
        if not self.running:
            return 0
        self.signal(signal.SIGTERM)
        return self.wait()

    def restart(self) -> Self:
        """Start it again on the same ports and directory."""
        return self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        if self.running:
            self.stop()
