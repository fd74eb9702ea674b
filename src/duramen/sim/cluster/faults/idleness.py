"""The first record after a long idle period: a healthy cluster stores it, and no follower leaves the in-sync set."""

from collections.abc import Iterator
from typing import Any, Final

from duramen.base.errors import DuramenError
from duramen.codec.batch import BatchInput, encode, header
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.checkers.history import SentBatch
from duramen.sim.cluster.checkers.quorum import is_coordinated
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["IDLE_US", "FirstRecords"]

IDLE_US: Final = 60_000_000
"""Longer than `replica.lag.time.max.ms` after the last fetch that idle followers send at once."""


class FirstRecords:
    """A record to each partition of a cluster that has been idle."""

    def __init__(self, calls: ClientCalls, numbers: Iterator[int]) -> None:
        """`numbers` are those of batches, each used once."""
        self._calls = calls
        self._numbers = numbers
        self._waiting: set[PartitionId] = set()
        self._in_sync: dict[PartitionId, frozenset[int]] = {}

    def send(self) -> None:
        """Produce the records, each with acks=all to its leader."""
        council = self._calls.witness.council
        for place, partition in council.state.partitions:
            stream = council.state.stream_by_id(place.stream_id)
            if partition.leader is None or stream is None or is_coordinated(stream) or place in council.lost:
                continue
            self._in_sync[place] = frozenset(partition.isr)
            self._waiting.add(place)
            self._send(partition.leader, place)

    def _send(self, node_id: int, place: PartitionId) -> None:
        number, calls = next(self._numbers), self._calls
        value = b"%d/" % number
        data = bytes(encode([BatchInput(calls.true.wall_ms(), None, value)]))
        batch = SentBatch(number, data, header(data).crc, 1, acks_all=True, producer_id=-1, sequence=-1)
        calls.book.page(place).sent(batch)

        def append(broker: Broker, reply: Reply) -> None:
            def done(base_offset: int, error: DuramenError | None) -> None:
                if error is None:
                    calls.witness.ledger(place).released(batch.crc, base_offset)
                reply(base_offset if error is None else error)

            partition_at(broker, place).append(bytearray(data), done, None, all_replicas=True)

        def answered(value: Any) -> None:
            if isinstance(value, DuramenError):
                raise BrokenPromise(f"{place} refuses a record after an idle period: {value}")
            calls.book.page(place).acknowledged_at(batch, value)
            self._waiting.discard(place)

        calls.ask(node_id, append, answered)

    @property
    def done(self) -> bool:
        """Whether every record is acknowledged."""
        return not self._waiting

    def check(self) -> None:
        """Raise BrokenPromise where a follower left the in-sync set."""
        for place, partition in self._calls.witness.council.state.partitions:
            left = self._in_sync.get(place, frozenset()) - set(partition.isr)
            if left:
                raise BrokenPromise(
                    f"the first record after an idle period threw {sorted(left)} out of sync in {place}"
                )
