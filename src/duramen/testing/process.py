"""A real node for the tests of users, in a process of its own."""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from duramen.base.errors import ServerUnreachable
from duramen.node.process import NodeProcess

__all__ = ["Node"]


class Node:
    """A node that runs while its `with` block does; its data goes with it. Made by `duramen.testing.node`."""

    def __init__(self, settings: Mapping[str, object] | None = None, *, nats: bool = False) -> None:
        """It starts with the `with` block."""
        self._settings: dict[str, object] = {
            "group.initial.rebalance.delay.ms": 0,
            "nats.server": "embedded" if nats else "off",
            **(settings or {}),
        }
        self._process: NodeProcess | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="duramen-"))
            self._process = stack.enter_context(NodeProcess(Path(directory) / "data", self._settings))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._process = None
        self._stack.close()

    def _running(self) -> NodeProcess:
        if self._process is None:
            raise ServerUnreachable("the node does not run: use it within `with duramen.testing.node() as node:`")
        return self._process

    @property
    def server(self) -> str:
        """The HTTP address: what `duramen.connect` takes."""
        return self._running().http

    @property
    def kafka(self) -> str:
        """The address for Kafka clients: their bootstrap.servers."""
        return self._running().kafka

    @property
    def nats(self) -> str:
        """The address for NATS clients, where the node was made with `nats`."""
        return self._running().nats

    def kill(self) -> None:
        """Kill -9, to see what your code makes of it."""
        self._running().kill()

    def restart(self) -> None:
        """Start it again with the same data, at the same addresses."""
        process = self._running()
        if process.running:
            process.stop()
        process.restart()
