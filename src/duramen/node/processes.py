"""The nodes of a cluster as child processes on this machine. For tests, demos, benchmarks."""

import os
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, Self

from duramen.doors.cluster.secret import SECRET_BYTES, make_secret
from duramen.node.process import NodeProcess, hold_port

__all__ = ["NodeProcesses", "Reached"]

Reached = Callable[[int, str], str]
"""The address of a node for others, by its id and the address of its listener."""

_PROGRAM: Final = ("-m", "duramen")


class NodeProcesses:
    """Nodes 1 to `count`, which form a cluster when they are started together.

    They keep their ports across restarts.
    """

    def __init__(
        self,
        directory: Path,
        count: int = 3,
        settings: Mapping[str, object] | None = None,
        *,
        own: Mapping[int, Mapping[str, object]] | None = None,
        reached: Reached = lambda _, listen: listen,
        programs: Mapping[int, Sequence[str]] | None = None,
        nats: bool = False,
    ) -> None:
        """`settings` are for all nodes, `own` for one each; `programs` has Python's arguments in place of a node.

        With `nats` each has a nats-server, and all of these form a cluster. Creates the directory and the secret in it.
        Raises SecretUnusable.
        """
        directory.mkdir(parents=True, exist_ok=True)
        secret = directory / "secret"
        if not secret.exists():
            make_secret(str(secret), os.urandom(SECRET_BYTES))
        numbers = range(1, count + 1)
        self._held_nats: dict[int, socket.socket] = {}
        self._held = {number: hold_port() for number in numbers}
        listens = {number: f"127.0.0.1:{held.getsockname()[1]}" for number, held in self._held.items()}
        self.cluster: Mapping[int, str] = {number: reached(number, listens[number]) for number in numbers}
        """The address of each node for the others."""
        self.nodes: Mapping[int, NodeProcess] = {
            number: NodeProcess(
                directory / f"node{number}",
                {
                    "node.id": number,
                    "cluster.listen": listens[number],
                    "cluster.advertise": self.cluster[number],
                    "cluster.seeds": ",".join(self.cluster.values()),
                    "cluster.secret.file": str(secret),
                    **(self._nats(number) if nats else {}),
                    **(settings or {}),
                    **(own or {}).get(number, {}),
                },
                (programs or {}).get(number, _PROGRAM),
            )
            for number in numbers
        }
        self._paused: set[int] = set()

    def _nats(self, number: int) -> Mapping[str, object]:
        held = self._held_nats[number] = hold_port()
        return {"nats.server": "embedded", "nats.cluster.listen": f"127.0.0.1:{held.getsockname()[1]}"}

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all nodes for Kafka clients. Raises KeyError before the first start."""
        return ",".join(node.kafka for node in self.nodes.values())

    @property
    def running(self) -> list[int]:
        """The nodes with running processes, including paused ones."""
        return [number for number, node in self.nodes.items() if node.running]

    def start(self, numbers: Iterable[int] | None = None) -> None:
        """Start these, or all, together, and wait until every door accepts requests.

        Raises ServerUnreachable with the end of the log of one that does not become ready.
        """
        wanted = list(self.nodes if numbers is None else numbers)
        with ThreadPoolExecutor(max(len(wanted), 1)) as threads:
            list(threads.map(lambda number: self.nodes[number].start(), wanted))

    def kill(self, *numbers: int) -> None:
        """Kill -9 these at once, paused ones too, and wait until they are gone."""
        for number in numbers:
            self.nodes[number].signal(signal.SIGKILL)
        for number in numbers:
            self.nodes[number].wait()
        self._paused -= set(numbers)

    def pause(self, number: int) -> None:
        """Pause a node, with its connections open (SIGSTOP)."""
        self.nodes[number].signal(signal.SIGSTOP)
        self._paused.add(number)

    def resume(self, number: int) -> None:
        """Resume a node; no effect if it was not paused."""
        if number in self._paused:
            self._paused.remove(number)
            self.nodes[number].signal(signal.SIGCONT)

    def stop(self, number: int) -> int:
        """SIGTERM, and wait until it has drained; returns its exit code."""
        self.resume(number)
        return self.nodes[number].stop()

    def logs(self) -> dict[int, str]:
        """The log of each node so far."""
        return {
            number: node.log_path.read_text(errors="replace") if node.log_path.exists() else ""
            for number, node in self.nodes.items()
        }

    def close(self) -> None:
        """Stop all of them, in whatever state."""
        for number in list(self._paused):
            self.resume(number)
        for node in self.nodes.values():
            node.signal(signal.SIGTERM)
        for node in self.nodes.values():
            try:
                node.wait()
            except subprocess.TimeoutExpired:
                node.kill()
        for held in (*self._held.values(), *self._held_nats.values()):
            held.close()

    def __enter__(self) -> Self:
        """Start all. If one does not become ready, the others are stopped."""
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
