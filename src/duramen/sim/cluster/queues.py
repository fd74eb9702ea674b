"""Checks queues of a cluster: clients that add, edit, delete, replace, purge and read entries.

No acknowledged operation is lost, and entries keep their order and positions. An edit is read from its acknowledgement
on. A deleted, purged, replaced or trimmed entry never returns. A delayed entry is not shown before its time. All
replicas have the same queues in the end. An operation with a request id is repeated until its outcome is known, and
has its effect once. Clocks of nodes differ, so when an entry expires is not checked.
"""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from duramen.base.errors import DuramenError, StreamNotFound
from duramen.base.ids import Position
from duramen.coordinators.queue.shard import hash_of, queue_kind
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.queues.machine import Delete, Edit, Empty, Enqueue, QueueCommand, Replace
from duramen.queues.operations import NewEntry
from duramen.queues.reading import Retrieved, retrieve
from duramen.queues.runs import QueueEntry
from duramen.service.broker import Broker
from duramen.service.queues import LocalShards, Read, ReadLimits, queue_of, request_of
from duramen.sim.cluster.clients.calls import ClientCalls, Reply
from duramen.sim.cluster.clients.client import ClusterClient
from duramen.sim.cluster.clients.coordinators import CoordinatedClient
from duramen.sim.cluster.node import SimulatedNode
from duramen.sim.cluster.queue_workers import DEAD_LETTERS, DELIVERIES, NOT_DONE, QueueWorker, WorkBook
from duramen.sim.cluster.shards import ShardBook
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["BoundedQueueBook", "QueueBook"]

_SPACE: Final = "__queues"
_CONFIG: Final = {
    "kind": "queues", "durability": "sync", "segment.bytes": "4096", "queue.log.retention.ms": "0",
    "queue.dead.letter.queue": DEAD_LETTERS.decode(), "queue.delivery.count.limit": str(DELIVERIES),
}  # fmt: skip
_CHECKPOINT_RECORDS: Final = 12
_CLIENTS: Final = 4
_LOOKS: Final = 5
"""So often a queue is read of which an operation may have been done, before it is left alone."""
_AT_ONCE: Final = 0.4
"""Of the operations, how many are followed by a read without a pause."""
_WORKERS: Final = 3
_DELAYED: Final = 0.15  # of the entries that are put in
_FLEETING: Final = 0.1
_DELAY_MS: Final = 12 * 3_600_000  # longer than a run, with all jumps of its clocks
_TTL_MS: Final = 300
_BOUNDED: Final = "bounded"
_KEPT_RECORDS: Final = 6
_SOME_WRITES: Final = 60
"""After so many, something was trimmed."""
_BOUNDS: Final = {"retention.records": str(_KEPT_RECORDS), "retention.ms": str(_DELAY_MS)}
_MOST: Final = 1 << 20
_WITH_ID: Final = 0.6  # of the operations
_REPEATS: Final = 10


class _Entry(NamedTuple):
    """An entry as it has to be."""

    at: Position
    version: int
    value: bytes


_Entries = tuple[_Entry, ...]


class _Model:
    """A queue with one writer: its entries, and, after an operation without a response, the alternatives."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.entries: _Entries = ()
        self.unsure: _Entries | None = None  # possible other entries; the positions of new ones are unknown
        self.looks = 0
        self._delayed = set[bytes]()  # values of entries that are not shown
        self._fleeting = set[bytes]()  # values of those that expire soon

    def put(self, entry: NewEntry) -> None:
        """An entry is asked for."""
        if entry.delay_ms:
            self._delayed.add(entry.value or b"")
        if entry.ttl_ms:
            self._fleeting.add(entry.value or b"")

    def edit(self, old: bytes, new: bytes) -> None:
        """An entry is to have another value."""
        if old in self._delayed:
            self._delayed.add(new)

    @property
    def lasting(self) -> _Entries:
        """Entries that stay until they are deleted."""
        return tuple(one for one in self.entries if one.value not in self._fleeting)

    def become(self, entries: _Entries) -> None:
        """An operation was acknowledged, after which these are in it."""
        self.entries = entries

    def doubt(self, entries: _Entries) -> None:
        """An operation has no answer; these are in it if it was done."""
        self.unsure, self.looks = entries, 0

    def check(self, found: Sequence[QueueEntry], *, delayed: bool) -> None:
        """Raise BrokenPromise unless this may be in it; with `delayed` entries that are not shown are in it."""
        there = tuple(_Entry(one.position, one.version, one.value or b"") for one in found)
        missing = self._missing(self.entries, there, delayed=delayed)
        if missing is not None and all(one in self.entries for one in there):
            return
        missing = None if self.unsure is None else self._missing(self.unsure, there, delayed=delayed)
        if missing is None:
            raise BrokenPromise(f"the queue {self.name!r} has {there}, and {self.entries} was acknowledged")
        if not missing:
            self.entries, self.unsure = there, None

    def _missing(self, wanted: _Entries, there: _Entries, *, delayed: bool) -> list[_Entry] | None:
        """The wanted entries that are missing; None if the given ones cannot be the remaining ones."""
        missing, at = list[_Entry](), 0
        for one in wanted:
            hidden = not delayed and one.value in self._delayed
            if not hidden and at < len(there) and there[at].value == one.value:
                at += 1
            elif hidden or one.value in self._fleeting:
                missing.append(one)
            else:
                return None
        return missing if at == len(there) else None


class _BoundedModel(_Model):
    """A queue of which the newest entries are kept, so many as the space says; others may be trimmed at any time."""

    def __init__(self, name: bytes) -> None:
        super().__init__(name)
        self.trimmed = 0
        self._least = 0  # how many of the newest have to be there
        self._unsure_least = 0

    @property
    def lasting(self) -> _Entries:
        kept = self.entries[len(self.entries) - self._least :]
        return tuple(one for one in super().lasting if one in kept)

    def become(self, entries: _Entries) -> None:
        self._least = self._least_of(entries)
        super().become(entries)

    def doubt(self, entries: _Entries) -> None:
        self._unsure_least = self._least_of(entries)
        super().doubt(entries)

    def _least_of(self, entries: _Entries) -> int:
        """Of these entries, how many of the newest were never among those that may be trimmed."""
        may_go = len(self.entries) - self._least
        return min(_KEPT_RECORDS, max(0, len(entries) - may_go))

    def check(self, found: Sequence[QueueEntry], *, delayed: bool) -> None:
        there = tuple(_Entry(one.position, one.version, one.value or b"") for one in found)
        gone = self._trimmed(self.entries, self._least, there, delayed=delayed)
        if gone >= 0 and all(one in self.entries for one in there):
            if self.unsure is not None and self.unsure[:gone] == self.entries[:gone]:
                self.unsure = self.unsure[gone:]
            self.entries, self.trimmed = self.entries[gone:], self.trimmed + gone
            return
        unsure = self.unsure or ()
        gone = -1 if self.unsure is None else self._trimmed(unsure, self._unsure_least, there, delayed=delayed)
        if gone < 0:
            raise BrokenPromise(f"the queue {self.name!r} has {there}, and {self.entries} was acknowledged")
        if not self._missing(unsure[gone:], there, delayed=delayed):
            self.entries, self.unsure, self._least = there, None, min(self._unsure_least, len(there))

    def _trimmed(self, wanted: _Entries, least: int, there: _Entries, *, delayed: bool) -> int:
        """How many of the oldest were trimmed, if the rest is what is left of it; -1 if not."""
        cuts = range(len(wanted) - least + 1)
        return next((at for at in cuts if self._missing(wanted[at:], there, delayed=delayed) is not None), -1)


class _Submission(NamedTuple):
    """An operation, the entries after it, and its request id; empty: it has none."""

    command: Callable[[Broker], QueueCommand]
    after: Callable[[Position], _Entries]
    request: str


class _QueueClient(CoordinatedClient):
    """Writes to a queue of its own, and reads it from the leader of its shard."""

    def __init__(self, book: "QueueBook", calls: ClientCalls, seed: str, think_us: int, number: int) -> None:
        super().__init__(calls, seed, think_us)
        self._book = book
        self._number = number
        self._queues = 0
        self._values = 0
        self._model = self._new()
        self._ids = random.Random(f"{seed} ids")
        self._requests = 0
        self._repeats = 0
        self._unknown: _Submission | None = None

    def _new(self) -> _Model:
        self._queues += 1
        model = self._book.model(b"q%d-%d" % (self._number, self._queues))
        self._book.models.append(model)
        return model

    def step(self) -> None:
        """Execute an operation, repeat one with a request id whose outcome is unknown, or check the outcome."""
        if self._unknown is not None:
            self._coordinator(self._book.stream, "", lambda _key, _partitions: 0, self._book.ensure, self._repeat)
            return
        reads = self._model.unsure is not None or self.chance.random() < 0.3
        self._coordinator(
            self._book.stream, "", lambda _key, _partitions: 0, self._book.ensure, self._read if reads else self._write
        )

    # -- reading --------------------------------------------------------------------------------------

    def _read(self, place: PartitionId, node_id: int) -> None:
        model = self._model
        delayed = model.unsure is not None or self.chance.random() < 0.5

        def ask(broker: Broker, reply: Reply) -> None:
            space, limits = broker.streams.find(self._book.stream), ReadLimits(_MOST, _MOST, 0, delayed)
            if space is None:
                reply(StreamNotFound("not known here yet"))
                return
            done = partial(_told, reply, model.name)
            LocalShards(broker).retrieve(space, [Read(model.name, "start")], limits, done, batches=False)

        def answered(value: Any) -> None:
            if isinstance(value, Retrieved):
                self._book.reads += 1
                model.check(value.entries, delayed=delayed)
                model.looks += 1
                if model.unsure is not None and model.looks >= _LOOKS:
                    self._model = self._new()
            else:
                self._refused_or_broken(place, "a read", value)
            self.next()

        self.calls.ask(node_id, ask, answered)

    # -- writing --------------------------------------------------------------------------------------

    def _write(self, place: PartitionId, node_id: int) -> None:
        model, do = self._model, self.chance.random()
        entries, lasting = model.entries, model.lasting
        if do < 0.5 or not lasting:
            new = [self._entry() for _ in range(self.chance.randrange(1, 6))]

            def enqueue(broker: Broker) -> QueueCommand:
                del broker
                return Enqueue([(model.name, entry) for entry in new])

            after = partial(_enqueued, entries, [entry.value or b"" for entry in new])
            self._submit(place, node_id, enqueue, after)
            return
        one = self.chance.choice(lasting)
        value = self._value()
        if do < 0.56:
            kind = self.chance.choice(("purge", "drop"))
            self._submit(place, node_id, self._on_queue(Empty, kind), _nothing)
        elif do < 0.77:
            model.edit(one.value, value)
            self._submit(
                place, node_id, self._on_queue(Edit, [(one.at, None, value)]), partial(_edited, entries, one, value)
            )
        elif do < 0.92:
            self._submit(place, node_id, self._on_queue(Delete, [(one.at, None)]), partial(_deleted, entries, one))
        else:
            command = self._on_queue(Replace, one.at, [NewEntry(value)], "a client", "")
            self._submit(place, node_id, command, partial(_replaced, entries, one, value))

    def _value(self) -> bytes:
        self._values += 1
        return b"%d/%d" % (self._number, self._values)

    def _entry(self) -> NewEntry:
        draw = self.chance.random()
        delay_ms = _DELAY_MS if draw < _DELAYED else 0
        entry = NewEntry(self._value(), delay_ms=delay_ms, ttl_ms=_TTL_MS if draw > 1 - _FLEETING else 0)
        self._model.put(entry)
        return entry

    def _on_queue(self, kind: Any, *more: object) -> Callable[[Broker], QueueCommand]:
        name = self._model.name

        def command(broker: Broker) -> QueueCommand:
            made: QueueCommand = kind(queue_of(broker.streams.get(self._book.stream), name), *more)
            return made

        return command

    def _submit(
        self, place: PartitionId, node_id: int, command: Callable[[Broker], QueueCommand],
        after: Callable[[Position], _Entries],
    ) -> None:  # fmt: skip
        self._requests += 1
        with_id = self._ids.random() < _WITH_ID
        self._ask(place, node_id, _Submission(command, after, f"{self._number}/{self._requests}" if with_id else ""))

    def _repeat(self, place: PartitionId, node_id: int) -> None:
        submission, self._unknown = self._unknown, None
        assert submission is not None
        self._repeats += 1
        self._ask(place, node_id, submission)

    def _ask(self, place: PartitionId, node_id: int, submission: "_Submission") -> None:
        model, (command, after, request) = self._model, submission

        def ask(broker: Broker, reply: Reply) -> None:
            space = broker.streams.find(self._book.stream)
            if space is None:
                reply(StreamNotFound("not known here yet"))
            else:
                wanted: Any = command(broker)
                wanted = wanted._replace(request=request_of(space, request))
                LocalShards(broker).submit(space.partition(0), wanted, reply)

        def answered(value: Any) -> None:
            if isinstance(value, Position):
                self._book.writes += 1
                self._book.repeated += self._repeats > 0
                self._repeats, model.unsure = 0, None
                model.become(after(value))
                if self.chance.random() < _AT_ONCE:
                    self._read(place, node_id)
                    return
            elif self._refused_or_broken(place, "an operation", value):
                self._refused(submission, done=not isinstance(value, NOT_DONE))
            self.next()

        self.calls.ask(node_id, ask, answered)

    def _refused(self, submission: "_Submission", *, done: bool) -> None:
        """An operation was refused, and is repeated if it has an id and it, or an earlier attempt, may be done."""
        if not (done or self._repeats):
            return
        self._model.doubt(submission.after(Position(0, 0)))
        if submission.request and self._repeats < _REPEATS:
            self._unknown = submission
        else:
            self._repeats = 0

    def _refused_or_broken(self, place: PartitionId, what: str, value: Any) -> bool:
        self.calls.trace("%s: %s: %s", what, type(value).__name__, value)
        if not self.refused(place, value) and not (isinstance(value, DuramenError) and value.id == "storage-failed"):
            raise BrokenPromise(f"{what} on {self._model.name!r} is refused with {type(value).__name__}: {value}")
        return True


def _told(reply: Reply, name: bytes, found: Any) -> None:
    reply(found[name])


def _enqueued(entries: _Entries, new: Sequence[bytes], at: Position) -> _Entries:
    offsets = range(at.offset, at.offset + len(new))
    return (
        *entries,
        *(_Entry(Position(at.leader_epoch, one), one, value) for one, value in zip(offsets, new, strict=True)),
    )


def _edited(entries: _Entries, edited: _Entry, value: bytes, at: Position) -> _Entries:
    return tuple(one._replace(version=at.offset, value=value) if one is edited else one for one in entries)


def _deleted(entries: _Entries, deleted: _Entry, _: Position) -> _Entries:
    return tuple(one for one in entries if one is not deleted)


def _nothing(_: Position) -> _Entries:
    return ()


def _replaced(entries: _Entries, first: _Entry, value: bytes, at: Position) -> _Entries:
    place = entries.index(first)
    new = Position(at.leader_epoch, at.offset + 1)
    return (*entries[:place], _Entry(new, new.offset, value))


class QueueBook(ShardBook):
    """The writes to queues, and the nodes that have to have them."""

    stream = _SPACE
    model: type[_Model] = _Model

    def __init__(self, cluster: Any) -> None:
        super().__init__(cluster)
        self.models: list[_Model] = []
        self.work = WorkBook()
        self.reads = 0
        self.writes = 0
        self.repeated = 0

    def equip(self, node: SimulatedNode) -> None:
        """The kind of queues runs on a node, with checkpoints often."""
        node.kinds = (queue_kind(_CHECKPOINT_RECORDS),)
        node.onlooker = self

    def ensure(self, broker: Broker, reply: Reply) -> None:
        """Create the space."""
        broker.create_stream(Definition(self.stream, 1, _CONFIG, internal=True), reply, idempotent=True)

    def clients(self, calls: ClientCalls, seed: Callable[[str], str], think_us: int) -> list[ClusterClient]:
        """The clients with queues of their own, and those that share some."""
        owners = [_QueueClient(self, calls, seed("queues"), think_us, number) for number in range(_CLIENTS)]
        workers = [
            QueueWorker(self.work, _SPACE, self.ensure, calls, seed("workers"), think_us, number)
            for number in range(_WORKERS)
        ]
        return [*owners, *workers]

    def inspect(self) -> None:
        """All replicas have the acknowledged entries."""
        for node_id, log, states in self.replicas():
            rows = states.rows(log, states.stored(log, leads=True))
            hashed = hash_of(self._cluster.witness.council.state.streams[self.stream])
            for model in self.models:
                found = retrieve(rows, hashed(model.name), "start", _MOST, _MOST, 0, delayed=True)
                try:
                    model.check(found.entries, delayed=True)
                except BrokenPromise as promise:
                    raise BrokenPromise(f"node {node_id}: {promise}") from None
            dead = retrieve(rows, hashed(DEAD_LETTERS), "start", _MOST, _MOST, 0, delayed=True)
            for queue in self.work.queues:
                left = retrieve(rows, hashed(queue), "start", _MOST, _MOST, 0, delayed=True)
                self.work.check(queue, [entry.position for entry in left.entries], dead.entries)

    @property
    def used(self) -> bool:
        return self.writes > 0 and self.work.leases > 0


class BoundedQueueBook(QueueBook):
    """The same of a space with retention, which is no internal stream: its queues are trimmed.

    The newest entries of a queue are there, so many as its limit says: none becomes too old within a run. A trimmed
    entry never returns. Nobody shares these queues.
    """

    stream = _BOUNDED
    model = _BoundedModel

    def ensure(self, broker: Broker, reply: Reply) -> None:
        broker.create_stream(Definition(self.stream, 1, {**_CONFIG, **_BOUNDS}), reply, idempotent=True)

    def clients(self, calls: ClientCalls, seed: Callable[[str], str], think_us: int) -> list[ClusterClient]:
        return [_QueueClient(self, calls, seed("queues"), think_us, number) for number in range(_CLIENTS)]

    @property
    def used(self) -> bool:
        trimmed = sum(model.trimmed for model in self.models if isinstance(model, _BoundedModel))
        return self.writes > 0 and (self.writes < _SOME_WRITES or trimmed > 0)
