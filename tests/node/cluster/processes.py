"""Processes of the program, on ports that are held for as long as the test runs."""

import contextlib
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

WAIT_S = 120.0
QUICK = "500,2000,150,500,3000"
"""Timeouts of the quorum: a leader may be silent for long, on a machine that runs many tests."""
PATIENT = "500,600000,150,500,600000"
"""A leader is never given up for its silence."""

ROOT = Path(__file__).parents[3]


class Process:
    """A node: its directory and address, and its process while it runs."""

    def __init__(self, node_id: int, directory: Path, address: str, secret: Path) -> None:
        self.node_id = node_id
        self.directory = directory
        self.address = address
        self.secret = secret
        self.timeouts = QUICK
        self.snapshot_bytes = 0  # as the defaults say
        self.lines: list[str] = []
        self._more = threading.Condition()
        self._ended = True
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def start(self, seeds: Sequence[str]) -> None:
        self.lines = []
        self._ended = False
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "tests.node.cluster.program", str(self.node_id), str(self.directory),
                self.address, ",".join(seeds), str(self.secret), self.timeouts, str(self.snapshot_bytes),
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1, cwd=ROOT,
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(self._process,), daemon=True)
        self._reader.start()

    def _read(self, process: "subprocess.Popen[str]") -> None:
        output = process.stdout
        assert output is not None
        with output:
            for line in output:
                with self._more:
                    self.lines.append(line.rstrip())
                    self._more.notify_all()
        with self._more:
            self._ended = True
            self._more.notify_all()

    def matches(self, pattern: str) -> "list[re.Match[str]]":
        """The lines that fit."""
        found = (re.fullmatch(pattern, line) for line in self.lines)
        return [match for match in found if match is not None]

    def wait(self, pattern: str, count: int = 1) -> "re.Match[str]":
        """The `count`th line that fits, as soon as it is said."""
        with self._more:
            self._more.wait_for(lambda: len(self.matches(pattern)) >= count or self._ended, WAIT_S)
            found = self.matches(pattern)
        assert len(found) >= count, f"node {self.node_id} has not said {pattern!r}, but\n" + "\n".join(self.lines)
        return found[count - 1]

    def tell(self, line: str) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def create(self, name: str) -> str:
        """Have a stream created, and wait for the answer: the name that it has then.

        Where nobody knows what became of it, because the leader went meanwhile, another name is tried.
        """
        self.tell(f"create {name}")
        if self.wait(f"(answered|unanswered) {name} .*")[1] == "answered":
            return name
        return self.create(f"{name}-again")

    def describe(self) -> dict[str, Any]:
        before = len(self.matches("described .*"))
        self.tell("describe")
        found: dict[str, Any] = json.loads(self.wait("described (.*)", before + 1)[1])
        return found

    def leader(self, after: int = 0) -> tuple[int, int]:
        """The leader that it hears of in an epoch after that one, and the epoch."""
        count = 1
        while True:
            said = self.wait(r"duramen\.cluster: node (\d+) leads the controller quorum in epoch (\d+)", count)
            if int(said[2]) > after:
                return int(said[1]), int(said[2])
            count += 1

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._gone()

    def stop(self) -> None:
        """Have it end as a node does."""
        self.tell("stop")
        self.wait("stopped: None")
        self._gone()

    def _gone(self) -> None:
        assert self._process is not None
        assert self._reader is not None
        self._process.wait(WAIT_S)
        self._reader.join()
        if self._process.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()


class Place:
    """Where nodes of a test are: directories, a secret, and addresses that nobody else is given meanwhile."""

    def __init__(self, directory: Path, close: contextlib.ExitStack) -> None:
        self._directory = directory
        self._close = close
        self.secret = directory / "secret"
        self.secret.write_bytes(b"s" * 32)
        self.secret.chmod(0o600)

    def node(self, node_id: int, directory: str = "", secret: Path | None = None) -> Process:
        held = self._close.enter_context(socket.socket())
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        held.bind(("127.0.0.1", 0))
        where = self._directory / (directory or f"node{node_id}")
        process = Process(node_id, where, f"127.0.0.1:{held.getsockname()[1]}", secret or self.secret)
        self._close.callback(process.kill)
        return process

    def nodes(self, *node_ids: int) -> list[Process]:
        return [self.node(node_id) for node_id in node_ids]


@contextlib.contextmanager
def place(directory: Path) -> Iterator[Place]:
    with contextlib.ExitStack() as close:
        yield Place(directory, close)


def seeds_of(nodes: Sequence[Process]) -> list[str]:
    return [node.address for node in nodes]


def start_all(nodes: Sequence[Process]) -> str:
    """Start them with each other as seeds; the cluster id once all are of it."""
    for node in nodes:
        node.start(seeds_of(nodes))
    found = {node.wait("joined (.*)")[1] for node in nodes}
    assert len(found) == 1
    return found.pop()
