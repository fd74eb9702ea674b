"""Producers of a cluster: with acks=all or 1, idempotent or not, sending again what nobody knows of."""

from itertools import count
from typing import Any, Final

from duramen.base.errors import (
    DuramenError,
    FencedLeaderEpoch,
    NodeStopping,
    NotController,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OutcomeUnknown,
    StorageFailed,
    StorageFull,
    StreamNotFound,
    UnknownLeaderEpoch,
)
from duramen.broker.broker import Broker
from duramen.codec.batch import NewRecord, encode, header
from duramen.controller.partitions import PartitionId
from duramen.sim.cluster.book import Sent
from duramen.sim.cluster.calls import Calls, Reply, partition_at
from duramen.sim.cluster.clients import Client
from duramen.sim.trace import BrokenPromise

__all__ = ["PASSING", "Producer"]

PASSING: Final = (
    FencedLeaderEpoch, NodeStopping, NotController, NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeader,
    OutcomeUnknown, StorageFailed, StorageFull, StreamNotFound, UnknownLeaderEpoch,
)  # fmt: skip
"""What clients may be told in a time of trouble, and try again."""

_NOT_IDEMPOTENT: Final = -1


class Producer(Client):
    """A producer. One that is idempotent asks for everything to be acknowledged by all, and never gives up."""

    def __init__(self, calls: Calls, seed: str, think_us: int, numbers: "count[int]", *, idempotent: bool) -> None:
        super().__init__(calls, seed, think_us)
        self._numbers = numbers
        self._idempotent = idempotent
        self._acks_all = idempotent or self.chance.random() < 0.7
        self._id = _NOT_IDEMPOTENT
        self._next_sequence: dict[PartitionId, int] = {}
        self._last: tuple[PartitionId, Sent] | None = None
        self._waiting: tuple[PartitionId, Sent] | None = None  # what is to be sent again

    def step(self) -> None:
        if self._idempotent and self._id == _NOT_IDEMPOTENT:
            self._ask_for_id()
        elif self._waiting is not None:
            self._send(*self._waiting)
        elif self._last is not None and self._idempotent and self.chance.random() < 0.05:
            self._send(*self._last)  # it was acknowledged, and the answer came late: it is sent once more
        else:
            place = self.some_place()
            if place is None:
                self.next(100_000)
            else:
                self._send(place, self._new(place))

    def _ask_for_id(self) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            broker.producer_ids.allocate(lambda id_, error: reply(id_ if error is None else error))

        def found(value: Any) -> None:
            if isinstance(value, int):
                self._id = value
                self.calls.handed_out(value)
            self.next()

        self.calls.ask(self.calls.any_node(), ask, found)

    def _new(self, place: PartitionId) -> Sent:
        number, records = next(self._numbers), self.chance.choice((1, 1, 1, 3))
        value = b"%d/" % number + bytes(self.chance.choice((0, 20, 200)))
        sequence, new = -1, [NewRecord(self.calls.true.wall_ms(), None, value)] * records
        if self._idempotent:
            sequence = self._next_sequence.get(place, 0)
            self._next_sequence[place] = sequence + records
            data = encode(new, producer_id=self._id, producer_epoch=0, base_sequence=sequence)
        else:
            data = encode(new)
        return Sent(
            number, bytes(data), header(data).crc, records,
            acks_all=self._acks_all, producer_id=self._id, sequence=sequence,
        )  # fmt: skip

    def _send(self, place: PartitionId, batch: Sent) -> None:
        self._waiting = place, batch
        self.leader(place, lambda node_id, _: self._send_to(node_id, place, batch))

    def _send_to(self, node_id: int, place: PartitionId, batch: Sent) -> None:
        self.calls.book.page(place).sent(batch)

        def append(broker: Broker, reply: Reply) -> None:
            partition = partition_at(broker, place)

            def done(base_offset: int, error: DuramenError | None) -> None:
                if error is None and batch.acks_all:
                    self.calls.witness.ledger(place).released(batch.crc, base_offset)
                reply(base_offset if error is None else self.judged(node_id, place, partition, error))

            partition.append(bytearray(batch.data), done, None, all_replicas=batch.acks_all)

        self.calls.ask(node_id, append, lambda value: self._answered(place, batch, value))

    def _answered(self, place: PartitionId, batch: Sent, value: Any) -> None:
        if not isinstance(value, DuramenError):
            self.calls.trace("batch %d is acknowledged at %d of %s", batch.number, value, place)
            self.calls.book.page(place).acknowledged_at(batch, value)
            self._last, self._waiting = (place, batch), None
            self.next()
            return
        self.calls.trace("batch %d for %s: %s: %s", batch.number, place, type(value).__name__, value)
        if not isinstance(value, PASSING):
            raise BrokenPromise(f"batch {batch.number} is refused with {type(value).__name__}: {value}")
        self.forget(place, value)
        if not self._idempotent and self.chance.random() < 0.5:
            self._waiting = None
        self.next(100_000)

    def lost(self, place: PartitionId) -> None:
        """An idempotent producer goes on where the partition is only not known yet."""
        if place not in self.calls.places():
            self._waiting = None
            if self._last is not None and self._last[0] == place:
                self._last = None
