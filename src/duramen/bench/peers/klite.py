"""klite, a broker of Kafka's protocol in Go that syncs before it acknowledges, from a binary that the user has built.

https://github.com/klaudworks/klite, `go build ./cmd/klite`.
"""

import subprocess
from pathlib import Path
from typing import Final, Self

from duramen.base.errors import ServerUnreachable
from duramen.bench.contenders import Contender
from duramen.bench.peers import servers
from duramen.bench.peers.servers import free_ports
from duramen.client import BrokerCluster, StreamAdmin

__all__ = ["Klite"]

_START_S: Final = 15.0


class Klite:
    """A node with its data in `directory`, with klite's defaults."""

    def __init__(self, directory: Path, binary: Path) -> None:
        self._directory = directory
        self._binary = binary
        self._process: subprocess.Popen[bytes] | None = None
        self._address = ""

    def __enter__(self) -> Self:
        """Start it. Raises ServerUnreachable."""
        self._directory.mkdir(parents=True)
        (port,) = free_ports(1)
        self._address = f"127.0.0.1:{port}"
        log = self._directory / "klite.log"
        self._process = servers.start(
            [
                str(self._binary.absolute()), "--listen", self._address, "--advertised-addr", self._address,
                "--data-dir", str(self._directory / "data"),
            ],
            log,
        )  # fmt: skip
        servers.wait_until_up("klite", self._process, log, _START_S, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            servers.stop(self._process)

    def _ask(self) -> None:
        with BrokerCluster(self._address, timeout_s=2.0) as cluster:
            cluster.topics([])

    @property
    def process_id(self) -> int:
        """Of the node, which runs. Raises ServerUnreachable."""
        if self._process is None:
            raise ServerUnreachable("klite was not started")
        return self._process.pid

    def topic(self, name: str) -> Contender:
        """A new topic of one partition."""
        with BrokerCluster(self._address) as cluster:
            StreamAdmin(cluster).create_stream(name, 1)
        return Contender("klite", "sync", "kafka", self._address, name, name, self._address)
