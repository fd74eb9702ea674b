"""klite, a broker of Kafka's protocol in Go that syncs before it acknowledges, from a binary that the user has built.

https://github.com/klaudworks/klite, `go build ./cmd/klite`.
"""

from pathlib import Path
from typing import Final, Self

from duramen.bench.contenders import Contender
from duramen.bench.peers import servers
from duramen.bench.peers.servers import PeerServer, free_ports
from duramen.client import BrokerCluster, StreamAdmin

__all__ = ["Klite"]

_START_S: Final = 15.0


class Klite(PeerServer):
    """A node with its data in `directory`, with klite's defaults."""

    title = "klite"

    def __init__(self, directory: Path, binary: Path) -> None:
        super().__init__(directory)
        self._binary = binary

    def __enter__(self) -> Self:
        """Start it. Raises ServerUnreachable."""
        self._directory.mkdir(parents=True)
        (self._port,) = free_ports(1)
        log = self._directory / "klite.log"
        self._process = servers.start(
            [
                str(self._binary.absolute()), "--listen", self.address, "--advertised-addr", self.address,
                "--data-dir", str(self._directory / "data"),
            ],
            log,
        )  # fmt: skip
        servers.wait_until_up(self.title, self._process, log, _START_S, self._ask)
        return self

    def _ask(self) -> None:
        with BrokerCluster(self.address, timeout_s=2.0) as cluster:
            cluster.topics([])

    def topic(self, name: str) -> Contender:
        """A new topic of one partition."""
        with BrokerCluster(self.address) as cluster:
            StreamAdmin(cluster).create_stream(name, 1)
        return Contender("klite", "sync", "kafka", self.address, name, name, self.address)
