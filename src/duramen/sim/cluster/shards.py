"""Checks the coordinator runtime: clients of two kinds of shards.

No acknowledged command is lost, and each counts once; a client sees its own writes, whichever node leads; the rows of
all replicas are equal in the end; no replica deletes a record that its older checkpoint lacks; a replica whose log
starts after its state reports it.
"""

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.broker.replicas.batches import NO_EPOCH
from duramen.coordinators.runtime.rows import RowStates
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.replication.effects import Effect, SendReplicaMessage
from duramen.replication.messages import ReplicaFetch
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.clients.coordinators import CoordinatedClient
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.toys import COUNTERS, TABLE, Add, Counters, Fill, counters, row_key, table
from duramen.sim.cluster.victim import Victim
from duramen.sim.machine.trace import BrokenPromise
from duramen.storage.log.log import Log, LogKey

__all__ = ["ShardBook"]

_CONFIG: Final = {"retention.ms": "-1", "cleanup.policy": "delete", "durability": "sync", "segment.bytes": "4096"}
_CHECKPOINT_RECORDS: Final = 12
_ROWS: Final = 40
_SPANS: Final = 6
_TWO_AT_ONCE: Final = 0.3
_DAMAGED: Final = 0.3
"""Of the losses of power, how many damage rows, too."""
_ALL_LOST: Final = 0.3
"""Of those, how many damage both checkpoints, where another replica has all."""


def _first(partition: int) -> Callable[[str, int], int]:
    return lambda _key, _partitions: partition


class _ShardClient(CoordinatedClient):
    """Finds the leader of partition 0 of a stream."""

    def of_stream(self, name: str, then: Callable[[PartitionId, int], None]) -> None:
        def ensure(broker: Broker, reply: Reply) -> None:
            broker.create_stream(Definition(name, 1, _CONFIG, internal=True), reply, idempotent=True)

        self._coordinator(name, "", _first(0), ensure, then)

    def went_well(self, place: PartitionId, what: str, value: Any) -> bool:
        if not isinstance(value, DuramenError):
            return True
        self.calls.trace("%s: %s: %s", what, type(value).__name__, value)
        if not self.refused(place, value):
            raise BrokenPromise(f"{what} is refused with {type(value).__name__}: {value}")
        return False


class _Adder(_ShardClient):
    """Adds to a counter, again with the same number until it is answered, and reads it."""

    def __init__(self, book: "ShardBook", calls: ClientCalls, seed: str, think_us: int, number: int) -> None:
        super().__init__(calls, seed, think_us)
        self._book = book
        self._name = b"c%d" % number
        self._number = 0
        self._end_offset = 0
        self._value = 0

    def step(self) -> None:
        self.of_stream(COUNTERS, self._add if self.chance.random() < 0.7 else self._read)

    def _add(self, place: PartitionId, node_id: int) -> None:
        add = Add(b"one", self._name, self._number)
        self._book.sent[self._name] = self._number + 1

        def ask(broker: Broker, reply: Reply) -> None:
            self._book.runtime_of(broker).submit(COUNTERS, 0, add, reply)

        def answered(value: Any) -> None:
            if self.went_well(place, f"number {add.number} of {self._name!r}", value):
                answer: ShardAnswer = value
                self._saw(int(str(answer.response)))
                self._end_offset = max(self._end_offset, answer.end_offset)
                self._number += 1
                self._book.acknowledged[self._name] = self._number
                self._book.got(int(str(answer.response)), (self._name, add.number))
            self.next()

        self.calls.ask(node_id, ask, answered)

    def _saw(self, value: int) -> None:
        if value > self._book.most():
            raise BrokenPromise(f"the counter is {value}, and at most {self._book.most()} were added")
        self._value = max(value, self._value)  # who says a number again gets what it got first

    def _read(self, place: PartitionId, node_id: int) -> None:
        least, seen, at_least = self._book.acknowledged[self._name], self._value, self._end_offset

        def query(shard: Counters, _: StateRows) -> int:
            return shard.values.get(b"one", 0)

        def ask(broker: Broker, reply: Reply) -> None:
            self._book.runtime_of(broker).read(COUNTERS, 0, query, reply, at_least=at_least)

        def answered(value: Any) -> None:
            if self.went_well(place, f"a read of {self._name!r}", value):
                if value < max(seen, least):
                    raise BrokenPromise(f"{self._name!r} reads {value} after it was told {max(seen, least)}")
                self._saw(value)
            self.next()

        self.calls.ask(node_id, ask, answered)


class _Filler(_ShardClient):
    """Writes rows that nobody else writes, with rising values, and reads them."""

    def __init__(self, book: "ShardBook", calls: ClientCalls, seed: str, think_us: int, number: int) -> None:
        super().__init__(calls, seed, think_us)
        self._book = book
        self._first = number * _SPANS * _ROWS
        self._sent: Counter[int] = Counter()
        self._end_offset = 0

    def step(self) -> None:
        self.of_stream(TABLE, self._fill if self.chance.random() < 0.7 else self._read)

    def _fill(self, place: PartitionId, node_id: int) -> None:
        first = self._first + self.chance.randrange(_SPANS) * _ROWS
        newest = self._sent[first] = self._sent[first] + 2
        # Of two at once the second finds that the first has more.
        values = [newest, newest - 1] if self.chance.random() < _TWO_AT_ONCE else [newest]
        answers = list[Any]()

        def answered(fill: Fill, value: Any) -> None:
            answers.append(value)
            if self.went_well(place, f"rows from {first} on", value):
                answer: ShardAnswer = value
                self._end_offset = max(self._end_offset, answer.end_offset)
                self._book.filled[first] = max(self._book.filled[first], fill.value)
            if len(answers) == len(values):
                self.next()

        for number in values:
            fill = Fill(first, _ROWS, number)
            self._book.fills += 1
            self.calls.ask(node_id, partial(self._ask, fill), partial(answered, fill))

    def _ask(self, fill: Fill, broker: Broker, reply: Reply) -> None:
        self._book.runtime_of(broker).submit(TABLE, 0, fill, reply)

    def _read(self, place: PartitionId, node_id: int) -> None:
        first = self._first + self.chance.randrange(_SPANS) * _ROWS
        least, at_least = self._book.filled[first], self._end_offset

        def query(_: object, rows: StateRows) -> list[int]:
            return [int(value) for _, value in rows.scan(row_key(first), row_key(first + _ROWS))]

        def ask(broker: Broker, reply: Reply) -> None:
            self._book.runtime_of(broker).read(TABLE, 0, query, reply, at_least=at_least)

        def answered(value: Any) -> None:
            if self.went_well(place, f"a read of rows from {first} on", value):
                if len(value) not in (0, _ROWS) or len(set(value)) > 1:
                    raise BrokenPromise(f"rows from {first} on are torn: {value}")
                if least and (not value or not least <= value[0] <= self._sent[first]):
                    raise BrokenPromise(f"rows from {first} on are {value[:1]}, and {least} was acknowledged")
            self.next()

        self.calls.ask(node_id, ask, answered)

    def refused(self, place: PartitionId, value: Any) -> bool:
        # A read may come while the rows are restored.
        return super().refused(place, value) or (isinstance(value, DuramenError) and value.id == "storage-failed")


class ShardBook:
    """What was sent and acknowledged, and the nodes that have to have it."""

    stream = TABLE
    """The one whose state is rows."""

    def __init__(self, cluster: Victim) -> None:
        self._cluster = cluster
        self._chance = random.Random(f"{cluster.seed}/shards")
        self._spoils = False  # whether no disk is lost in this run, so that rows may be, of one node at a time
        self._lost: set[int] = set()  # the nodes that have lost rows and checkpoints, and have got no others yet
        self._answers: dict[int, tuple[bytes, int]] = {}
        self.sent: Counter[bytes] = Counter()
        self.acknowledged: Counter[bytes] = Counter()
        self.filled: defaultdict[int, int] = defaultdict(int)
        self.fills = 0

    def equip(self, node: SimulatedNode) -> None:
        """The kinds run on a node."""
        node.kinds = (counters(), table(_CHECKPOINT_RECORDS))
        node.onlooker = self

    def crash(self, node: SimulatedNode) -> None:
        """A node has lost its power."""
        if self._chance.random() >= _DAMAGED or not node.rows.readable:
            return
        if self._chance.random() < _ALL_LOST and self._others_have_all(node):
            self._cluster.trace("node %d loses its rows and their checkpoints", node.node_id)
            self._cluster.counts["rows lost"] += 1
            self._lost.add(node.node_id)
            node.rows.damage(checkpoints=2)
            return
        self._cluster.counts["rows damaged"] += 1
        node.rows.damage(checkpoints=1 if node.rows.readable > 1 and self._chance.random() < 0.5 else 0)

    def _others_have_all(self, node: SimulatedNode) -> bool:
        """Whether another replica has a checkpoint, and keeps it: what every replica loses is lost."""
        place = self._place(self.stream)
        partition = None if place is None else self._cluster.witness.council.state.partitions.get(place)
        self._lost = {one for one in self._lost if self._lacks(self._cluster.nodes[one])}
        if partition is None or self._lost:
            return False
        others = {*partition.isr, *partition.elr} - {node.node_id}
        if not any(self._cluster.nodes[other].rows.readable for other in others):
            return False
        self._spoils = self._spoils or self._cluster.spoil()
        return self._spoils

    def _lacks(self, node: SimulatedNode) -> bool:
        place = self._place(self.stream)
        log = None if place is None or node.store is None else node.store.log(LogKey(*place))
        if log is None or node.states is None or not node.states.available or not node.rows.readable:
            return True
        return node.states.stored(log, leads=True).offset < log.start_offset

    def clients(self, calls: ClientCalls, seed: Callable[[str], str], think_us: int) -> list[ClusterClient]:
        """Those who use the shards."""
        adders = [_Adder(self, calls, seed("adder"), think_us, number) for number in range(3)]
        fillers = [_Filler(self, calls, seed("filler"), think_us // 2, number) for number in range(2)]
        return [*adders, *fillers]

    def runtime_of(self, broker: Broker) -> Any:
        """The runtime beside a broker."""
        return broker.coordinators

    def most(self) -> int:
        """How many were added at most."""
        return self.sent.total()

    def got(self, value: int, who: tuple[bytes, int]) -> None:
        """An addition was answered with that value: no other may be."""
        if self._answers.setdefault(value, who) != who:
            raise BrokenPromise(f"{who} and {self._answers[value]} both got {value}")

    def _place(self, name: str) -> PartitionId | None:
        stream = self._cluster.witness.council.state.streams.get(name)
        place = None if stream is None else PartitionId(stream.id, 0)
        return None if place in self._cluster.witness.council.lost else place

    def cuts(self, node_id: int, log: Log, offset: int) -> None:
        """No log is cut behind the older checkpoint of its own node, unless it begins anew: nothing of it is left.

        Before that it ends with batches of no epoch.
        """
        place, states = self._place(self.stream), self._cluster.nodes[node_id].states
        if place is None or log.key != LogKey(*place) or states is None:
            return
        if offset == log.end_offset or log.takeovers.epoch_at(log.end_offset - 1) == NO_EPOCH:
            return
        self._cluster.counts["shard logs cut"] += 1
        floor = states.checkpoints.floor(log, leads=False)
        if offset > floor:
            raise BrokenPromise(f"node {node_id} cuts the log at {offset}, and the older checkpoint is at {floor}")

    def carried_out(self, node_id: int, place: PartitionId, effect: Effect) -> None:
        """Who says that it has all below an offset has it in the log or in the state."""
        if not (
            isinstance(effect, SendReplicaMessage) and isinstance(effect.message, ReplicaFetch)
        ) or place != self._place(self.stream):
            return
        node = self._cluster.nodes[node_id]
        log = None if node.store is None else node.store.log(LogKey(*place))
        says = any(reach.node_id == node_id and reach.covered >= 0 for reach in effect.message.reaches)
        if log is None or node.states is None or not says:
            return
        applied = node.states.stored(log, leads=False).offset if node.states.available else 0
        if applied < log.start_offset:
            raise BrokenPromise(
                f"node {node_id} counts, and the log begins at {log.start_offset}, behind the state at {applied}"
            )

    @property
    def used(self) -> bool:
        """Whether clients have done enough: a run goes on until then."""
        return True

    def behind(self) -> list[str]:
        """Replicas whose rows are not what their log is."""
        place, found = self._place(self.stream), list[str]()
        partition = None if place is None else self._cluster.witness.council.state.partitions.get(place)
        if place is None or partition is None:
            return found
        for node_id in partition.replicas:
            node = self._cluster.nodes[node_id]
            log = None if node.store is None else node.store.log(LogKey(*place))
            if log is None or node.states is None or node.states.stored(log, leads=True).offset != log.end_offset:
                found.append(f"node {node_id} has not applied all of {place}")
        return found

    def replicas(self) -> Iterator[tuple[int, Log, RowStates]]:
        """The nodes that have a replica, with its log and their rows."""
        place = self._place(self.stream)
        partition = None if place is None else self._cluster.witness.council.state.partitions.get(place)
        for node_id in () if place is None or partition is None else partition.replicas:
            node = self._cluster.nodes[node_id]
            log = None if node.store is None or place is None else node.store.log(LogKey(*place))
            if log is not None and node.states is not None:
                yield node_id, log, node.states

    def inspect(self) -> None:
        """The rows of all replicas are the same, and what was acknowledged."""
        tables = [dict(states.rows(log, states.stored(log, leads=True)).all()) for _, log, states in self.replicas()]
        for found in tables:
            if found != tables[0]:
                raise BrokenPromise("the rows of replicas are not the same")
            if int(found.get(b"applied", b"0")) > self.fills:
                raise BrokenPromise(f"{found[b'applied']!r} records were applied, and {self.fills} were sent")
            for first, value in self.filled.items():
                if int(found.get(row_key(first), b"0")) < value:
                    raise BrokenPromise(f"row {first} is {found.get(row_key(first))!r}, and {value} was acknowledged")
