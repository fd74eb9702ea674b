"""A keyed stream of a simulated cluster: producers, snapshot readers on all replicas, and leases.

The truth is the committed batches, as the invariants observed them. Each snapshot is the state of the truth at its
offset, each key once, on every replica; so is an older one plus the changes since. A granted lease is open at every
later leader until it ends.
"""

import random
from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple, Protocol

from duramen.base.errors import (
    DuramenError,
    NodeBusy,
    OffsetNotAvailable,
    OffsetOutOfRange,
    SnapshotCut,
    SnapshotLeaseExpired,
    SnapshotLeaseNotFound,
    SnapshotNotReached,
    SnapshotStartOver,
    SnapshotTooOld,
    StreamNotKeyed,
)
from duramen.broker.control.requests import Reassign
from duramen.broker.partition import Partition
from duramen.broker.views.batch_reader import ReadResult, read_batches
from duramen.broker.views.history import epoch_before
from duramen.broker.views.running_view import RunningView
from duramen.codec.batch import BatchInput, DecodedRecord, batches, encode, header, records
from duramen.keyed.leases import SnapshotLease
from duramen.keyed.view import VisibleRecords
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.replication.effects import Effect
from duramen.service.broker import Broker
from duramen.sim.cluster.clients.calls import ClientCalls, Reply, partition_at
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.clients.coordinators import AGAIN
from duramen.sim.cluster.live import LIVE_CONFIG, LiveReading
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.victim import Victim
from duramen.sim.machine.trace import BrokenPromise
from duramen.storage.log.log import Log

__all__ = [
    "CONFIG", "KEYED", "KeyedBook", "KeyedClient", "KeyedProducer", "Mover", "SeenSnapshot", "SnapshotReader", "State",
    "StreamTruth", "apply_seen", "read_snapshot",
]  # fmt: skip

KEYED: Final = "keyed"

_LEASE_MS: Final = 15_000
_SKEW_MS: Final = 2_000  # between the clocks of nodes, and until a lease that has ended is over
_KEYS: Final = 12
_LIVE: Final = 0.5  # of the runs have readers of a live topic
CONFIG: Final = {
    "keyed": "true", "cleanup.policy": "compact", "segment.bytes": "4096", "min.cleanable.dirty.ratio": "0",
    "snapshot.retention.ms": "1000", "snapshot.lease.ms": str(_LEASE_MS),
}  # fmt: skip
PASSING: Final = (
    *AGAIN, NodeBusy, SnapshotNotReached, SnapshotTooOld, SnapshotStartOver, SnapshotCut, StreamNotKeyed,
    SnapshotLeaseExpired, SnapshotLeaseNotFound, OffsetNotAvailable, OffsetOutOfRange,
)  # fmt: skip

State = dict[bytes, bytes]


class SeenSnapshot(NamedTuple):
    """A snapshot shown by a replica, or the changes since one."""

    at: int
    since: int | None
    records: list[DecodedRecord]


class StreamTruth(Protocol):
    """What clients of a keyed stream know, and the checkers of their writes and reads."""

    definition: Definition
    numbers: "count[int]"

    @property
    def place(self) -> PartitionId | None:
        """The partition that they use; None before it is made."""

    def sends(self, data: bytes) -> None:
        """A batch may come to be committed."""

    def judge(self, who: str, seen: SeenSnapshot, before: State) -> State:
        """The state of a reader that had `before`. Raises BrokenPromise."""


class _Grant(NamedTuple):
    lease: SnapshotLease
    granted_ms: int


class KeyedBook:
    """The content of the stream, and the promises about it."""

    def __init__(self, cluster: Victim, seed: int) -> None:
        self._cluster = cluster
        topology = random.Random(f"{seed}/keyed").choice(("fanout", "fanout", "chain", "tree"))
        self.is_live = random.Random(f"{seed}/live").random() < _LIVE
        config = CONFIG | {"replication.topology": topology} | (LIVE_CONFIG if self.is_live else {})
        self.definition = Definition(KEYED, 1, config, internal=True)
        self._nodes: dict[int, SimulatedNode] = {}
        self._sent: dict[int, list[DecodedRecord]] = {}  # by the CRC of the batch
        self._known: list[tuple[int, DecodedRecord]] = []
        self._batches = 0
        self.numbers = count(1)

    def equip(self, node: SimulatedNode) -> None:
        """Give a node compaction, and look on."""
        node.compacts = True
        node.onlooker = self
        self._nodes[node.node_id] = node

    def cuts(self, node_id: int, log: Log, offset: int) -> None:
        """No records of the stream are deleted."""

    def carried_out(self, node_id: int, place: PartitionId, effect: Effect) -> None:
        """A replica has done something: its view is not ahead of its log. Raises BrokenPromise."""
        del effect
        broker = self._nodes[node_id].broker
        stream = None if broker is None or place != self.place else broker.streams.find_id(place.stream_id)
        if broker is None or stream is None:
            return
        partition = stream.partition(place.partition)
        view = broker.views.find(partition, stream)
        end = partition.log.end_offset
        if view is not None and view.log is partition.log and view.bounds.position >= 0 and view.facts.position > end:
            raise BrokenPromise(f"node {node_id}: its log ends at {end}, and the view is at {view.facts.position}")

    def clients(self, calls: ClientCalls, seed: Callable[[str], str], think_us: int) -> list[ClusterClient]:
        """The clients of the stream."""
        return [
            *(KeyedProducer(self, calls, seed("keyed producer"), think_us) for _ in range(2)),
            *(SnapshotReader(self, calls, seed("snapshot reader"), think_us) for _ in range(3)),
            *(_LeaseHolder(self, calls, seed("lease holder"), think_us) for _ in range(2)),
            Mover(self, calls, seed("mover"), 10 * think_us),
            *(_LiveReader(self, calls, seed("live reader"), think_us) for _ in range(2 if self.is_live else 0)),
        ]

    @property
    def place(self) -> PartitionId | None:
        """The partition; None before it is made."""
        stream = self._cluster.witness.council.state.streams.get(KEYED)
        return None if stream is None else PartitionId(stream.id, 0)

    def sends(self, data: bytes) -> None:
        """A batch may come to be committed."""
        self._sent[header(data).crc] = list(records(data))

    def committed(self) -> int:
        """Apply committed records; returns their end."""
        place = self.place
        if place is None:
            return 0
        ledger = self._cluster.witness.ledger(place)
        for batch in ledger.committed[self._batches :]:
            for at, record in enumerate(self._sent[batch.crc]):
                self._known.append((batch.first_offset + at, record))
        self._batches = len(ledger.committed)
        return ledger.end_offset

    def state(self, at: int) -> State:
        """By definition."""
        found: State = {}
        for offset, record in self._known:
            if offset < at and record.key is not None:
                found.pop(record.key, None)
                if record.value is not None:
                    found[record.key] = record.value
        return found

    def judge(self, who: str, seen: SeenSnapshot, before: State) -> State:
        """The state of a reader that had `before`. Raises BrokenPromise."""
        end, state = self.committed(), apply_seen(who, seen, before)
        if seen.at > end:
            raise BrokenPromise(f"{who}: the snapshot at {seen.at} is shown, and committed is {end}")
        if state != self.state(seen.at):
            raise BrokenPromise(f"{who}: the snapshot at {seen.at} since {seen.since} is no state that existed")
        return state


def apply_seen(who: str, seen: SeenSnapshot, before: State) -> State:
    """The state of a reader that had `before`. Raises BrokenPromise if a key comes twice."""
    state, keys = dict(before), set[bytes | None]()
    for record in seen.records:
        if record.key in keys:
            raise BrokenPromise(f"{who}: the snapshot at {seen.at} since {seen.since} has {record.key!r} twice")
        keys.add(record.key)
        state.pop(record.key or b"", None)
        if record.value is not None:
            state[record.key or b""] = record.value
    return state


class KeyedClient(ClusterClient):
    """Makes the stream where it is not there yet."""

    def __init__(self, book: StreamTruth, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(calls, seed, think_us)
        self.book = book

    def step(self) -> None:
        place = self.book.place
        if place is None:
            definition = self.book.definition

            def create(broker: Broker, reply: Reply) -> None:
                broker.create_stream(definition, reply, idempotent=True)

            self.calls.ask(self.calls.any_node(), create, lambda _: self.next(20_000))
        else:
            self.work(place)

    def work(self, place: PartitionId) -> None:
        """Ask for one thing."""
        raise NotImplementedError

    def passes(self, place: PartitionId, what: str, value: Any) -> bool:
        """Whether the answer is no error; one that does not pass is a broken promise."""
        if not isinstance(value, DuramenError):
            return True
        self.calls.trace("%s: %s: %s", what, type(value).__name__, value)
        self.forget(place, value)
        if not isinstance(value, PASSING):
            raise BrokenPromise(f"{what} is refused with {type(value).__name__}: {value}")
        return False


class KeyedProducer(KeyedClient):
    """Sends records with keys with acks=all, or with acks=1."""

    def work(self, place: PartitionId) -> None:
        new = [self._record() for _ in range(self.chance.choice((1, 2, 5)))]
        data = encode(new)
        self.book.sends(bytes(data))
        everywhere = self.chance.random() < 0.8

        def produce(broker: Broker, reply: Reply) -> None:
            def told(base_offset: int, error: DuramenError | None) -> None:
                reply(base_offset if error is None else error)

            partition_at(broker, place).append(bytearray(data), told, all_replicas=everywhere)

        def answered(value: Any) -> None:
            self.passes(place, "a keyed record", value)
            self.next()

        self.leader(place, lambda node_id, _: self.calls.ask(node_id, produce, answered))

    def _record(self) -> BatchInput:
        key, number = b"k%d" % self.chance.randrange(_KEYS), next(self.book.numbers)
        value = None if self.chance.random() < 0.15 else b"%d/" % number + bytes(self.chance.choice((0, 200)))
        return BatchInput(self.calls.true.wall_ms() + number % 2, key, value)


class Mover(KeyedClient):
    """Gives the partition to other nodes, and takes it away from some."""

    def work(self, place: PartitionId) -> None:
        nodes = list(self.calls.nodes)
        self.chance.shuffle(nodes)
        reassignment = Reassign(place, tuple(nodes[: self.chance.choice((2, 3))]))
        self.calls.trace("the keyed stream is to be at %s", reassignment.replicas)

        def ask(broker: Broker, reply: Reply) -> None:
            broker.membership.ask(reassignment, reply)

        self.calls.ask(self.calls.any_node(), ask, lambda _: self.next())


def _view(broker: Broker, place: PartitionId) -> tuple[RunningView, Partition]:
    stream = broker.streams.find_id(place.stream_id)
    if stream is None:
        raise SnapshotNotReached("the stream is not known yet")
    return broker.views.get(stream, place.partition), partition_at(broker, place)


def read_snapshot(broker: Broker, place: PartitionId, at: int, since: int | None, reply: Reply) -> None:
    """Read a snapshot of the replica here, or the changes since one."""
    view, partition = _view(broker, place)
    found = list[DecodedRecord]()

    def fetched(visible: VisibleRecords, shown: set[int], offset: int, data: ReadResult) -> None:
        if not isinstance(data, bytes):
            reply(SnapshotNotReached(f"reading failed: {data}"))
            return
        following = at
        for position, head in batches(data):
            following = head.next_offset
            for record in records(memoryview(data)[position : position + head.size]):
                if offset <= record.offset < at and record.offset in shown:
                    found.append(record)
        if data and following < at:
            read_batches(broker.store, partition.log, following, partial(fetched, visible, shown, following))
            return
        try:
            check = view.bounds.check_snapshot if since is None else partial(view.bounds.check_changes, since)
            check(at)
        except DuramenError as error:
            reply(error)
        else:
            reply(SeenSnapshot(at, since, found))

    def told(visible: VisibleRecords | BaseException) -> None:
        if isinstance(visible, BaseException):
            reply(visible if isinstance(visible, DuramenError) else SnapshotNotReached(str(visible)))
            return
        first = max(partition.log.start_offset, visible.base)
        read_batches(
            broker.store, partition.log, first, partial(fetched, visible, set(visible.offsets()), first)
        )  # fmt: skip

    view.shown(at, since, 0, at, told)


class SnapshotReader(KeyedClient):
    """A copy of the stream, kept by whole snapshots and by changes, each from another replica."""

    def __init__(self, book: StreamTruth, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(book, calls, seed, think_us)
        self._at = -1
        self._state: State = {}

    def work(self, place: PartitionId) -> None:
        node_id, draw = self.calls.any_node(), self.chance.random()
        known = self._at

        def read(broker: Broker, reply: Reply) -> None:
            bounds = _view(broker, place)[0].bounds
            bounds.check_snapshot(max(bounds.position, bounds.s0))
            at, since = bounds.position, None
            if 0 <= known <= at and draw < 0.6:
                since = known
            elif draw > 0.8:
                at = self.chance.randint(bounds.s0, bounds.position)
            read_snapshot(broker, place, at, since, reply)

        def answered(value: Any) -> None:
            if self.passes(place, "a snapshot", value):
                before = self._state if value.since is not None else {}
                self._state = self.book.judge(f"node {node_id}", value, before)
                self._at = value.at
            elif isinstance(value, SnapshotStartOver | SnapshotCut):
                self._at = -1
            self.next()

        self.calls.ask(node_id, read, answered)


class _LiveReader(KeyedClient):
    """A consumer of the live topic, which reads from the partition's leader."""

    def __init__(self, book: KeyedBook, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(book, calls, seed, think_us // 4)
        self._reading = LiveReading(self, book, seed)

    def work(self, place: PartitionId) -> None:
        def answered(error: DuramenError | None) -> None:
            self.passes(place, "a live topic", error)
            self.next()

        self.leader(place, lambda node_id, _: self._reading.fetch(node_id, place, answered))


class _LeaseHolder(KeyedClient):
    """Holds snapshots, and reads them where the partition is led."""

    def __init__(self, book: StreamTruth, calls: ClientCalls, seed: str, think_us: int) -> None:
        super().__init__(book, calls, seed, think_us)
        self._names = random.Random(f"{seed}/names")
        self._grant: _Grant | None = None

    def work(self, place: PartitionId) -> None:
        grant = self._grant
        if grant is None:
            self._open(place)
        elif self.calls.true.wall_ms() > grant.granted_ms + _LEASE_MS - _SKEW_MS:
            self._grant = None  # it may end any time now
            self.next()
        elif self.chance.random() < 0.1:
            self._close(place, grant)
        else:
            self.leader(place, lambda node_id, _: self._use(place, node_id, grant))

    def _open(self, place: PartitionId) -> None:
        now_ms, name = self.calls.true.wall_ms(), f"lease {self._names.randrange(1 << 60):x}"

        def hold(broker: Broker, reply: Reply) -> None:
            view, partition = _view(broker, place)
            bounds = view.bounds
            bounds.check_snapshot(max(bounds.position, bounds.s0))
            at = self.chance.randint(bounds.s0, bounds.position)
            stream = broker.streams.get(KEYED)
            broker.leases.open(stream, name, {0: at}, reply, {0: epoch_before(partition, at)})

        def answered(value: Any) -> None:
            if self.passes(place, "a lease", value):
                self.calls.trace("%s holds %s", name, value.positions)
                self._grant = _Grant(value, now_ms)
                self.calls.ended["leases granted"] += 1
            self.next()

        self.calls.ask(self.calls.any_node(), hold, answered)

    def _close(self, place: PartitionId, grant: _Grant) -> None:
        self._grant = None

        def close(broker: Broker, reply: Reply) -> None:
            broker.leases.close(broker.streams.get(KEYED), grant.lease.lease_id, reply)

        def answered(value: Any) -> None:
            self.passes(place, "closing a lease", value)
            self.next()

        self.calls.ask(self.calls.any_node(), close, answered)

    def _use(self, place: PartitionId, node_id: int, grant: _Grant) -> None:
        at = grant.lease.positions[0]

        def read(broker: Broker, reply: Reply) -> None:
            view, partition = _view(broker, place)
            bounds = view.bounds
            late = self.calls.true.wall_ms() > grant.granted_ms + _LEASE_MS - _SKEW_MS
            if bounds.position >= at > -1 and bounds.s0 > at and self.leads(node_id, place, partition) and not late:
                name = grant.lease.lease_id
                raise BrokenPromise(f"node {node_id} leads, and {name}, at {at}, is below its S0, {bounds.s0}")
            read_snapshot(broker, place, at, None, reply)

        def answered(value: Any) -> None:
            if self.passes(place, "a held snapshot", value):
                self.book.judge(f"node {node_id}", value, {})
                self.calls.ended["held snapshots read"] += 1
            self.next()

        self.calls.ask(node_id, read, answered)
