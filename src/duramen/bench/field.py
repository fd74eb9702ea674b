"""All systems of one measurement: a Duramen node and the requested peers."""

import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self

from duramen.bench.contenders import Contender, Door
from duramen.bench.ours import Ours
from duramen.bench.peers.jetstream import JetStream
from duramen.bench.peers.kafka import ApacheKafka
from duramen.client import BrokerCluster, StreamAdmin

__all__ = ["BenchServers", "Peer"]

Peer = Literal["kafka", "jetstream"]


class BenchServers:
    """Servers that run while it is entered; all of them idle but the one that is being measured."""

    def __init__(self, directory: Path, peers: Sequence[Peer], *, nats: bool) -> None:
        """`directory` is for their data; `nats` gives our node a NATS door."""
        self.directory = directory
        self._stack = ExitStack()
        self._numbers = itertools.count(1)
        self._ours = Ours(directory / "duramen", nats=nats)
        self._kafka = ApacheKafka(directory / "kafka") if "kafka" in peers else None
        self._jetstreams = (
            [JetStream(directory / f"jetstream-{sync}", sync) for sync in ("default", "always")]
            if "jetstream" in peers
            else []
        )

    def __enter__(self) -> Self:
        """Start all of them. Raises DependencyMissing or ServerUnreachable."""
        with ExitStack() as stack:
            if self._kafka is not None:
                stack.enter_context(self._kafka)
            for jetstream in self._jetstreams:
                stack.enter_context(jetstream)
            stack.enter_context(self._ours)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def process_id(self) -> int:
        """Of our broker."""
        return self._ours.process.pid

    @property
    def kafka_process_id(self) -> int | None:
        """Of Apache Kafka; None where it does not take part."""
        return None if self._kafka is None else self._kafka.process_id

    def _name(self) -> str:
        return f"bench-{next(self._numbers)}"

    def ours(self, durability: str, door: Door = "kafka", partitions: int = 1) -> Contender:
        """A new stream of ours."""
        return self._ours.stream(self._name(), durability, door, partitions)

    def kafka(self, *, synced: bool, partitions: int = 1) -> Contender | None:
        """A new topic of Apache Kafka; None where it does not take part."""
        if self._kafka is None:
            return None
        return self._kafka.topic(self._name(), "flush.messages=1" if synced else "lazy", partitions)

    def jetstream(self, *, synced: bool) -> Contender | None:
        """A new stream of JetStream; None where it does not take part."""
        return self._jetstreams[int(synced)].stream(self._name()) if self._jetstreams else None

    def all(self, durabilities: Sequence[str], door: Door) -> list[Contender]:
        """A new stream of everybody: ours of each durability, then every peer unsynced and synced."""
        found: list[Contender | None] = [self.ours(durability, door) for durability in durabilities]
        found += [self.kafka(synced=False), self.kafka(synced=True)]
        found += [self.jetstream(synced=False), self.jetstream(synced=True)]
        return [one for one in found if one is not None]

    def remove(self, contender: Contender) -> None:
        """Delete a stream, so that its bytes do not fill the disk."""
        for jetstream in self._jetstreams:
            if contender.address == jetstream.address:
                jetstream.remove(contender)
                return
        with BrokerCluster(contender.records) as cluster:
            StreamAdmin(cluster).delete_stream(contender.stream)
