"""Producers of a cluster: acks=all or 1, idempotent or not, with retries of unanswered batches."""

import random
from collections.abc import Sequence
from functools import partial
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
    OutOfOrderSequence,
    StorageFailed,
    StorageFull,
    StreamNotFound,
    UnknownLeaderEpoch,
)
from duramen.codec.batch import BatchInput, encode, header, records
from duramen.metadata.partitions import PartitionId
from duramen.service.broker import Broker
from duramen.sim.cluster.checkers.history import SentBatch
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.draws import below
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["PASSING", "ClusterProducer"]

PASSING: Final = (
    FencedLeaderEpoch, NodeStopping, NotController, NotEnoughReplicas, NotEnoughReplicasAfterAppend, NotLeader,
    OutcomeUnknown, StorageFailed, StorageFull, StreamNotFound, UnknownLeaderEpoch,
)  # fmt: skip
"""Errors of transient failures, after which clients retry."""

_NOT_IDEMPOTENT: Final = -1
_REFUSED: Final = 0.1
_APART_US: Final = 20_000


class _Window:
    """Batches of one producer for one partition, in order on one connection. `told` are the responses.

    `life` is that of the process at the other end of the connection.
    """

    def __init__(self, batches: list[SentBatch], life: int) -> None:
        self.batches = batches
        self.life = life
        self.told: list[Any] = [None] * len(batches)
        self.sent = 0
        self.open = 0  # how many are sent or about to be, and not answered
        self.over = False  # all sent batches have responses: late messages of the network begin nothing new

    def acknowledged(self, at: int) -> bool:
        """Whether a batch of it is."""
        return isinstance(self.told[at], int)

    @property
    def left(self) -> list[SentBatch]:
        """Those that are to be sent again."""
        return [batch for at, batch in enumerate(self.batches) if not self.acknowledged(at)]


class ClusterProducer(ClusterClient):
    """A producer. An idempotent one uses acks=all, and retries for ever.

    As librdkafka it raises its epoch on OutOfOrderSequence for a batch that is not the next to be acknowledged:
    unacknowledged batches are sent again, numbered from 0. On another error it would end.
    """

    def __init__(
        self, calls: ClientCalls, seed: str, think_us: int, numbers: "count[int]", *, idempotent: bool,
        windows: bool = False,
    ) -> None:  # fmt: skip
        """With `windows` an idempotent one sends several batches at once, and some are refused before all else."""
        super().__init__(calls, seed, think_us)
        self._numbers = numbers
        self._idempotent = idempotent
        self._acks_all = idempotent or self.chance.random() < 0.7
        self._id = _NOT_IDEMPOTENT
        self._epoch = 0
        self._next_sequence: dict[PartitionId, int] = {}
        self._last: tuple[PartitionId, SentBatch] | None = None
        self._waiting: tuple[PartitionId, list[SentBatch]] | None = None  # batches to send again
        self._windows = random.Random(f"{seed}/windows") if windows and idempotent else None

    def step(self) -> None:
        if self._idempotent and self._id == _NOT_IDEMPOTENT:
            self._ask_for_id()
        elif self._waiting is not None:
            self._send(*self._waiting)
        elif self._last is not None and self._idempotent and self.chance.random() < 0.05:
            last, batch = self._last
            self._send(last, [batch])  # it was acknowledged, and the answer came late: it is sent once more
        else:
            place = self.some_place()
            if place is None:
                self.next(100_000)
            else:
                self._send(place, [self._new(place) for _ in range(self._at_once())])

    def _ask_for_id(self) -> None:
        def ask(broker: Broker, reply: Reply) -> None:
            broker.producer_ids.allocate(lambda id_, error: reply(id_ if error is None else error))

        def found(value: Any) -> None:
            if isinstance(value, int):
                self._id = value
                self.calls.handed_out(value)
            self.next()

        self.calls.ask(self.calls.any_node(), ask, found)

    def _new(self, place: PartitionId) -> SentBatch:
        number, count = next(self._numbers), self.chance.choice((1, 1, 1, 3))
        value = b"%d/" % number + bytes(self.chance.choice((0, 20, 200)))
        return self._numbered(place, number, [BatchInput(self.calls.true.wall_ms(), None, value)] * count)

    def _numbered(self, place: PartitionId, number: int, new: Sequence[BatchInput]) -> SentBatch:
        """A batch with the next sequence, where the producer is idempotent."""
        sequence = -1
        if self._idempotent:
            sequence = self._next_sequence.get(place, 0)
            self._next_sequence[place] = sequence + len(new)
            data = encode(new, producer_id=self._id, producer_epoch=self._epoch, base_sequence=sequence)
        else:
            data = encode(new)
        return SentBatch(
            number, bytes(data), header(data).crc, len(new), acks_all=self._acks_all,
            producer_id=self._id, producer_epoch=self._epoch, sequence=sequence,
        )  # fmt: skip

    def _at_once(self) -> int:
        return 1 if self._windows is None else self._windows.choice((1, 2, 3))

    def _refuses(self) -> bool:
        """Whether a batch is refused as a door does that: not leader, throttled, out of time."""
        return self._windows is not None and self._windows.random() < _REFUSED

    def _send(self, place: PartitionId, batches: list[SentBatch]) -> None:
        self._waiting = place, batches

        def found(node_id: int, _: int) -> None:
            self._send_next(node_id, place, _Window(batches, self.calls.nodes[node_id].life))

        self.leader(place, found)

    def _send_next(self, node_id: int, place: PartitionId, window: _Window) -> None:
        """Send the next batch of a window; the one behind it follows when it has arrived."""
        at = window.sent
        if at and self.calls.nodes[node_id].life != window.life:
            window.open -= 1  # the connection has ended
            if not window.open:
                self._settled(place, window)
            return
        batch = window.batches[at]
        window.sent += 1
        window.open += not at
        self.calls.book.page(place).sent(batch)

        def append(broker: Broker, reply: Reply) -> None:
            if self._windows is not None and window.sent < len(window.batches) and not window.over:
                window.open += 1
                self.calls.at(1 + below(self._windows, _APART_US), partial(self._send_next, node_id, place, window))
            partition = partition_at(broker, place)

            def done(base_offset: int, error: DuramenError | None) -> None:
                if error is None and batch.acks_all:
                    self.calls.witness.ledger(place).released(batch.crc, base_offset)
                reply(base_offset if error is None else self.judged(node_id, place, partition, error))

            if self._refuses():
                partition.note_refused(bytearray(batch.data))
                reply(NotLeader("it is refused at the door"))
            else:
                partition.append(bytearray(batch.data), done, None, all_replicas=batch.acks_all)

        self.calls.ask(node_id, append, lambda value: self._answered(place, window, at, value))

    def _answered(self, place: PartitionId, window: _Window, at: int, value: Any) -> None:
        batch = window.batches[at]
        window.told[at] = value
        window.open -= 1
        if not isinstance(value, DuramenError):
            self.calls.trace("batch %d is acknowledged at %d of %s", batch.number, value, place)
            self.calls.book.page(place).acknowledged_at(batch, value)
        else:
            self.calls.trace("batch %d for %s: %s: %s", batch.number, place, type(value).__name__, value)
        if not window.open:
            self._settled(place, window)

    def _settled(self, place: PartitionId, window: _Window) -> None:
        """All batches of a window have responses: the unacknowledged ones are sent again, in their order."""
        window.over = True
        if not window.left:
            self._last, self._waiting = (place, window.batches[-1]), None
            self.next()
            return
        self._waiting = place, window.left
        raises = any(isinstance(value, OutOfOrderSequence) for value in window.told)
        for at, value in enumerate(window.told):
            if isinstance(value, DuramenError):
                self._check_passing(window, at, value)
                self.forget(place, value)
        if raises:
            self._raise_epoch(place, window.left)
        if not self._idempotent and self.chance.random() < 0.5:
            self._waiting = None
        self.next(100_000)

    def _raise_epoch(self, place: PartitionId, left: list[SentBatch]) -> None:
        self._epoch += 1
        self.calls.ended["epochs raised"] += 1
        self.calls.trace("producer %d raises its epoch to %d", self._id, self._epoch)
        self._next_sequence.clear()
        self._last = None
        again = [[BatchInput(one.timestamp, one.key, one.value) for one in records(batch.data)] for batch in left]
        self._waiting = place, [self._numbered(place, one.number, new) for one, new in zip(left, again, strict=True)]

    def _check_passing(self, window: _Window, at: int, error: DuramenError) -> None:
        follows = isinstance(error, OutOfOrderSequence) and not all(map(window.acknowledged, range(at)))
        if not follows and not isinstance(error, PASSING):
            number = window.batches[at].number
            raise BrokenPromise(f"batch {number} is refused with {type(error).__name__}: {error}")

    def lost(self, place: PartitionId) -> None:
        """An idempotent producer goes on where the partition is only not known yet."""
        if place not in self.calls.places():
            self._waiting = None
            if self._last is not None and self._last[0] == place:
                self._last = None
