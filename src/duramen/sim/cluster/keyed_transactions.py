"""Two keyed streams of a simulated cluster with transactions, and snapshots over all of their partitions.

The truth is the committed records, as the invariants observed them; a record of a transaction counts at its commit
marker. Each snapshot of a partition is the state of the truth at its offset, on every replica. A snapshot over all
partitions has each transaction entirely or not at all, and everything acknowledged before its request.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

from duramen.base.errors import SnapshotNotReached
from duramen.codec.batch import TRANSACTIONAL, DecodedRecord, header, records
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.replication.effects import Effect
from duramen.service.broker import Broker
from duramen.sim.checkers.transaction import SimulatedTransaction
from duramen.sim.cluster.checkers.history import SentBatch
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.clients.transactors import Transactor
from duramen.sim.cluster.keyed import (
    CONFIG,
    KeyedClient,
    KeyedProducer,
    Mover,
    SeenSnapshot,
    SnapshotReader,
    State,
    apply_seen,
    read_snapshot,
)
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.victim import Victim
from duramen.sim.machine.trace import BrokenPromise
from duramen.storage.log.log import Log

__all__ = ["JointBook"]

_STREAMS: Final = {"keyed-pair": 2, "keyed-single": 1}
_KEYS: Final = 12
_LATE_MS: Final = 1_000
_CHECKED: Final = 30  # snapshots and acknowledged transactions that are checked again and again

Vector = Mapping[PartitionId, int]


class _Asked(NamedTuple):
    """A snapshot over all partitions, and the transactions that were acknowledged before it was asked for."""

    vector: Vector
    before: Sequence[SimulatedTransaction]


class _Truth:
    """A StreamTruth: one partition, with the committed records by the offsets at which they count."""

    def __init__(self, book: "JointBook", name: str, index: int) -> None:
        self.numbers = book.numbers
        self.definition = Definition(name, _STREAMS[name], CONFIG, internal=True)
        self._book = book
        self._index = index
        self._batches = 0
        self._open: dict[int, list[tuple[int, int, DecodedRecord]]] = {}  # by producer id: CRC, offset, record
        self._known: list[tuple[int, int, DecodedRecord]] = []  # offset, at which it counts, record
        self.counting: dict[int, int] = {}  # by the CRC of a batch of a transaction where it counts
        self.commits: dict[int, int] = {}  # by commit sequence the offset of the marker

    @property
    def place(self) -> PartitionId | None:
        stream = self._book.cluster.witness.council.state.streams.get(self.definition.name)
        return None if stream is None else PartitionId(stream.id, self._index)

    def sends(self, data: bytes) -> None:
        self._book.sent[header(data).crc] = data

    def learn(self) -> int:
        """Apply committed records; returns their end."""
        place = self.place
        if place is None:
            return 0
        witness = self._book.cluster.witness
        ledger = witness.ledger(place)
        for batch in ledger.committed[self._batches :]:
            if batch.crc in witness.markers:
                producer_id, marker = witness.markers[batch.crc]
                ended = self._open.pop(producer_id, [])
                for crc, offset, record in ended if marker.commit else ():
                    self._known.append((offset, batch.first_offset, record))
                    self.counting[crc] = batch.first_offset
                if ended and marker.commit:
                    self.commits[marker.sequence] = batch.first_offset
            else:
                self._take(batch.crc, batch.first_offset)
        self._batches = len(ledger.committed)
        return ledger.end_offset

    def _take(self, crc: int, first_offset: int) -> None:
        data = self._book.sent[crc]
        head = header(data)
        for offset, record in enumerate(records(data), first_offset):
            if head.attributes & TRANSACTIONAL:
                self._open.setdefault(head.producer_id, []).append((crc, offset, record))
            else:
                self._known.append((offset, offset, record))

    def state(self, at: int) -> State:
        """By definition."""
        found: State = {}
        for _, counts, record in sorted(self._known, key=lambda one: one[0]):
            if counts < at and record.key is not None:
                found.pop(record.key, None)
                if record.value is not None:
                    found[record.key] = record.value
        return found

    def judge(self, who: str, seen: SeenSnapshot, before: State) -> State:
        end, state = self.learn(), apply_seen(who, seen, before)
        if seen.at > end:
            raise BrokenPromise(f"{who}: the snapshot at {seen.at} is shown, and committed is {end}")
        if state != self.state(seen.at):
            raise BrokenPromise(f"{who}: the snapshot at {seen.at} since {seen.since} is no state that existed")
        return state


class JointBook:
    """The content of the streams, and the promises about them."""

    def __init__(self, cluster: Victim) -> None:
        self.cluster = cluster
        self.sent: dict[int, bytes] = {}  # by the CRC of the batch
        self.numbers = count(1)
        self.truths = [
            _Truth(self, name, index) for name, partitions in _STREAMS.items() for index in range(partitions)
        ]
        self.acknowledged: list[SimulatedTransaction] = []
        self.wrote: dict[int, list[tuple[PartitionId, int]]] = {}  # by the transaction's number: CRCs of batches
        self._asked: list[_Asked] = []
        self.taken = 0

    def equip(self, node: SimulatedNode) -> None:
        """Give a node compaction."""
        node.compacts = True
        node.onlooker = self

    def cuts(self, node_id: int, log: Log, offset: int) -> None:
        """No records of the streams are deleted."""

    def carried_out(self, node_id: int, place: PartitionId, effect: Effect) -> None:
        """Readers check the views."""

    @property
    def places(self) -> list[PartitionId]:
        """The partitions; none before all of them are made."""
        found = [truth.place for truth in self.truths]
        return [place for place in found if place is not None] if None not in found else []

    def clients(self, calls: ClientCalls, seed: Callable[[str], str], think_us: int) -> list[ClusterClient]:
        """The clients of the streams."""
        return [
            *(KeyedProducer(truth, calls, seed("keyed producer"), 3 * think_us) for truth in self.truths),
            *(SnapshotReader(truth, calls, seed("snapshot reader"), think_us) for truth in self.truths),
            *(_KeyedTransactor(self, calls, seed("transactor"), think_us // 4, f"k{number}") for number in range(4)),
            *(_JointReader(self, calls, seed("joint reader"), think_us // 2) for _ in range(2)),
            *(Mover(truth, calls, seed("mover"), 20 * think_us) for truth in self.truths),
        ]

    def take(self, vector: Vector, before: Sequence[SimulatedTransaction]) -> None:
        """A client got a snapshot. Raises BrokenPromise."""
        self._asked = [*self._asked[-_CHECKED:], _Asked(vector, before)]
        self.taken += 1
        commits: dict[int, dict[PartitionId, int]] = {}
        counting: dict[PartitionId, dict[int, int]] = {}
        for place, truth in zip(self.places, self.truths, strict=True):
            truth.learn()
            counting[place] = truth.counting
            for sequence, offset in truth.commits.items():
                commits.setdefault(sequence, {})[place] = offset
        for asked in self._asked:
            for sequence, at in commits.items():
                if len({offset < asked.vector[place] for place, offset in at.items()}) > 1:
                    raise BrokenPromise(f"the snapshot {asked.vector} has a part of the transaction {sequence}: {at}")
            for transaction in asked.before:
                for place, crc in self.wrote.get(transaction.number, ()):
                    if not counting[place].get(crc, 1 << 62) < asked.vector[place]:
                        raise BrokenPromise(
                            f"transaction {transaction.number} was committed before the snapshot {asked.vector} was"
                            f" asked for, which lacks what it has in {place}"
                        )


class _KeyedTransactor(Transactor):
    """A transactional id that writes to the streams."""

    def __init__(self, book: JointBook, calls: ClientCalls, seed: str, think_us: int, id_: str) -> None:
        self._book = book
        self._keys = random.Random(f"{seed}/keys")
        super().__init__(calls, seed, think_us, book.numbers, id_)

    def there(self) -> Sequence[PartitionId]:
        return self._book.places

    def key(self) -> bytes | None:
        return b"k%d" % self._keys.randrange(_KEYS)

    def sends(self, place: PartitionId, batch: SentBatch) -> None:
        super().sends(place, batch)
        self._book.sent[batch.crc] = batch.data
        if batch.transaction is not None:
            wrote = self._book.wrote.setdefault(batch.transaction.number, [])
            if (place, batch.crc) not in wrote:
                wrote.append((place, batch.crc))

    def acknowledged(self, transaction: SimulatedTransaction) -> None:
        self._book.acknowledged.append(transaction)


class _JointReader(KeyedClient):
    """Takes snapshots over all partitions from any node, and reads them from any replica."""

    def __init__(self, book: JointBook, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(book.truths[0], calls, seed, think_us)
        self._joint = book

    def work(self, place: PartitionId) -> None:
        del place
        places = self._joint.places
        if not places:
            self.next(100_000)
            return
        before = self._joint.acknowledged[-_CHECKED:]

        def take(broker: Broker, reply: Reply) -> None:
            vectors = broker.transactions.vectors
            if vectors is None:
                raise SnapshotNotReached("the node does not know the feature level yet")
            vectors.take([partition_at(broker, one) for one in places], _LATE_MS, reply)

        self.calls.ask(self.calls.any_node(), take, partial(self._taken, before))

    def _taken(self, before: Sequence[SimulatedTransaction], value: Any) -> None:
        if not self.passes(self._joint.places[0], "a snapshot over partitions", value):
            self.next()
            return
        self._joint.take(value, before)
        self.calls.ended["snapshots over partitions"] += 1
        truth = self.chance.choice(self._joint.truths)
        place, node_id = truth.place, self.calls.any_node()
        if place is None:
            return
        at = value[place]

        def answered(seen: Any) -> None:
            if self.passes(place, "a part of a snapshot", seen):
                truth.judge(f"node {node_id}", seen, {})
                self.calls.ended["parts of them read"] += 1
            self.next()

        self.calls.ask(node_id, lambda broker, reply: read_snapshot(broker, place, at, None, reply), answered)
