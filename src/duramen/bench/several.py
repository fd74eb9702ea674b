"""Three nodes as a measured system: streams with replicas at given places, and the nodes' metrics."""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from duramen.base.errors import DuramenError, RequestInvalid, RequestTimedOut, StreamNotFound
from duramen.bench.contenders import Contender
from duramen.bench.system import leave_processor
from duramen.client.cluster import RetryPatience
from duramen.client.http import HttpNode
from duramen.node.process import NodeProcess, hold_port
from duramen.node.processes import NodeProcesses

__all__ = ["NODES", "Several"]

NODES: Final = (1, 2, 3)
_TIMEOUT_S: Final = 60.0


class Several:
    """Nodes 1 to 3 in processes of their own, and those that join them."""

    def __init__(self, directory: Path) -> None:
        """Their data goes to `directory`."""
        self._directory = directory
        self.processes = NodeProcesses(directory, len(NODES))
        self._joined: list[NodeProcess] = []
        self._held: list[socket.socket] = []

    def __enter__(self) -> Self:
        """Start them. Raises ServerUnreachable."""
        self.processes.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        # What they hold is thrown away: to stop in order would sync all of it.
        for node in self._joined:
            node.kill()
        self.processes.kill(*self.processes.running)
        self.processes.close()
        for held in self._held:
            held.close()

    def join(self, number: int, directory: Path | None = None) -> Path:
        """Start one more node; returns where its data lies. Raises ServerUnreachable.

        It brings no processor of its own, as it would elsewhere: it has what the others leave. Its data goes to
        `directory`, else beside theirs.
        """
        held = hold_port()
        self._held.append(held)
        settings = {
            "node.id": number,
            "cluster.listen": f"127.0.0.1:{held.getsockname()[1]}",
            "cluster.seeds": ",".join(self.processes.cluster.values()),
            "cluster.secret.file": str(self._directory / "secret"),
        }
        place = (directory or self._directory) / f"node{number}"
        node = NodeProcess(place, settings).start()
        self._joined.append(node)
        threads = Path(f"/proc/{node.pid}/task")
        for thread in os.listdir(threads) if threads.is_dir() else [node.pid]:
            leave_processor(int(thread))
        return place

    def server(self, number: int) -> HttpNode:
        """The HTTP door of one of the three."""
        return HttpNode(self.processes.nodes[number].http)

    def admin(self) -> AdminClient:
        """A Kafka client for those that run."""
        nodes = [self.processes.nodes[number].kafka for number in self.processes.running]
        return AdminClient({"bootstrap.servers": ",".join(nodes), "log_level": 0})

    def stream(self, name: str, replicas: Sequence[int], config: Mapping[str, str] | None = None) -> Contender:
        """A stream of one partition that the first of these nodes leads, and knows of. Raises RequestInvalid …"""
        topic = NewTopic(name, 1, replica_assignment=[list(replicas)], config=dict(config or {}))
        try:
            admin = self.admin()  # it is to live until it is answered
            admin.create_topics([topic], request_timeout=_TIMEOUT_S)[name].result()
        except KafkaException as error:
            raise RequestInvalid(f"creating {name}: {error}") from None
        self._wait_until_led(name, replicas[0])
        address = self.processes.nodes[replicas[0]].kafka
        return Contender("duramen", "three nodes", "kafka", address, name, name, address)

    def _wait_until_led(self, name: str, number: int) -> None:
        """Whoever answered had the controller's word only: the leader may hear of it later. Raises RequestTimedOut."""
        patience = RetryPatience(_TIMEOUT_S)
        while True:
            error: DuramenError = RequestTimedOut(f"node {number} does not lead {name} after {_TIMEOUT_S:g} s")
            try:
                (partition,) = self.server(number).get(f"/v1/streams/{name}")["partitions"]
                if partition["leads"] and partition["leader_epoch"] >= 0:
                    return
            except StreamNotFound as unknown:
                error = unknown
            patience.pause(error)

    def metric(self, number: int, name: str) -> float:
        """The sum of a metric of one node."""
        lines = self.server(number).text("/metrics").splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith((f"{name} ", f"{name}{{")))
