"""Clients that share queues of a cluster: they add, lease, acknowledge and return entries, and check the promises.

An acknowledged entry is never leased again, and every other one is leased in the end. In one leader epoch an entry has
one lease at a time. An acknowledgement with a lease of an older epoch is accepted while the entry exists. Entries that
were leased too often go to the dead-letter queue, and no other entries do.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from duramen.base.errors import CoordinatorLoading, DuramenError, NotEnoughReplicas, NotLeader, StreamNotFound
from duramen.base.ids import Position
from duramen.broker.streams import Stream
from duramen.metadata.partitions import PartitionId
from duramen.queues.leases import Lease, Leased, LeasedEntry
from duramen.queues.machine import Ack, Enqueue, Nack
from duramen.queues.operations import NewEntry
from duramen.queues.positions import parse_position
from duramen.queues.runs import QueueEntry
from duramen.service.broker import Broker
from duramen.service.queue_leases import LeasePoll, LeaseRequest
from duramen.service.queues import LocalShards, QueueRequests, queue_of
from duramen.sim.cluster.clients.calls import ClientCalls, Reply
from duramen.sim.cluster.clients.coordinators import CoordinatedClient
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["DEAD_LETTERS", "DELIVERIES", "NOT_DONE", "Ensure", "QueueWorker", "WorkBook"]

DEAD_LETTERS: Final = b"dead-letters"
DELIVERIES: Final = 3
"""After so many an entry is dead."""

NOT_DONE: Final = (NotLeader, CoordinatorLoading, NotEnoughReplicas, StreamNotFound)
"""Errors after which nothing was done."""
_QUEUES: Final = (b"work-1", b"work-2")
_LEASE_MS: Final = 12 * 3_600_000  # longer than a run, with all jumps of its clocks
_SHORT_MS: Final = 300
_GONE: Final = "queue-entry-gone"
_EXPIRED: Final = "queue-lease-expired"
_MOST_HELD: Final = 4
_NEVER: Final = 1 << 40  # no leader epoch is as high

Ensure = Callable[[Broker, Reply], None]


class _Holding(NamedTuple):
    """An entry that a worker has leased; `short`: the lease may expire at any time."""

    queue: bytes
    position: Position
    lease: Lease
    short: bool


class WorkBook:
    """The entries of queues that workers share, and their leases."""

    def __init__(self) -> None:
        self.put: dict[tuple[bytes, Position], bytes] = {}
        """The acknowledged entries."""
        self.acknowledged: dict[tuple[bytes, Position], int] = {}
        """The leader epoch in which each entry was acknowledged."""
        self.maybe: set[tuple[bytes, Position]] = set()
        """Entries of which it is unknown whether they were acknowledged."""
        self._said: Counter[tuple[bytes, Position]] = Counter()  # acknowledgements on their way
        self._delivered: Counter[tuple[bytes, Position]] = Counter()
        self._unknown = 0  # leases that may have been given, for unknown entries
        self._holders: dict[tuple[bytes, Position], dict[Lease, bool]] = {}  # whether they are short
        self.leases = 0
        self.acks = 0

    def lease(self, one: Leased, *, short: bool, gone: Mapping[tuple[bytes, Position], int]) -> None:
        """An entry was leased; those of `gone` were acknowledged before anybody asked. Raises BrokenPromise.

        A leader of an older epoch may lease such an entry until it learns that it is deposed.
        """
        place = one.queue, one.entry.position
        self.leases += 1
        self._delivered[place] += 1
        if one.deliveries > DELIVERIES:
            raise BrokenPromise(f"{place} is leased {one.deliveries} times, and is dead after {DELIVERIES}")
        if one.lease.leader_epoch >= gone.get(place, _NEVER):
            raise BrokenPromise(f"{one.entry.value!r} at {place} is leased, and was acknowledged")
        if self.put.setdefault(place, one.entry.value or b"") != one.entry.value:
            raise BrokenPromise(f"{place} has {one.entry.value!r}, and {self.put[place]!r} was put there")
        holders = self._holders.setdefault(place, {})
        for other, is_short in holders.items():
            if other.leader_epoch == one.lease.leader_epoch and not is_short:
                raise BrokenPromise(f"{place} is leased as {one.lease} while somebody has it as {other}")
        holders[one.lease] = short

    def ask(self) -> None:
        """A worker requests leases: until the response it is unknown which entries are leased."""
        self._unknown += 1

    def told(self) -> None:
        """A worker has got leases."""
        self._unknown -= 1

    def _may_be_dead(self, place: tuple[bytes, Position]) -> bool:
        return self._delivered[place] + self._unknown >= DELIVERIES

    def settles(self, holding: _Holding, *, accepts: bool) -> None:
        """A worker ends a lease: it may end from here on."""
        place = holding.queue, holding.position
        self._said[place] += accepts
        self._holders.get(place, {}).pop(holding.lease, None)

    def answered(self, holding: _Holding, *, accepts: bool, unknown: bool) -> None:
        """The response arrived; the outcome of an acknowledgement may be `unknown`."""
        place = holding.queue, holding.position
        self._said[place] -= accepts
        if accepts and unknown:
            self.maybe.add(place)

    def settled(self, holding: _Holding, refusal: DuramenError | None, leader_epoch: int, *, accepts: bool) -> None:
        """A leader has accepted the request, or refused it. Raises BrokenPromise if it must not be refused."""
        place = holding.queue, holding.position
        if refusal is None:
            if accepts:
                self.acknowledged[place] = leader_epoch
                self.acks += 1
        elif refusal.id == _GONE:
            known = place in self.acknowledged or place in self.maybe or self._said[place]
            if not known and not self._may_be_dead(place):
                raise BrokenPromise(f"{place} is gone, and nobody has acknowledged it: {refusal}")
        elif refusal.id != _EXPIRED:
            raise BrokenPromise(f"{place} is refused with {refusal.id}: {refusal}")
        elif accepts and not holding.short:
            raise BrokenPromise(f"the acknowledgement of {place} with {holding.lease} is lost: {refusal}")

    def check(self, queue: bytes, found: Sequence[Position], letters: Sequence[QueueEntry]) -> None:
        """Raise BrokenPromise unless these positions may be all that is left in a queue, and these letters are dead."""
        dead = {_origin(one): one.value for one in letters}
        for place, value in dead.items():
            if not self._may_be_dead(place):
                raise BrokenPromise(f"{place} is dead after {self._delivered[place]} deliveries")
            if self.put.get(place, value) != value:
                raise BrokenPromise(f"{place} is dead with {value!r}, and {self.put[place]!r} was put there")
        there = {(queue, position) for position in found}
        wrong = there & self.acknowledged.keys()
        if wrong:
            raise BrokenPromise(f"{sorted(wrong)} were acknowledged, and are there")
        lost = (
            {place for place in self.put if place[0] == queue}
            - there
            - self.acknowledged.keys()
            - self.maybe
            - set(dead)
        )
        if lost:
            raise BrokenPromise(f"{sorted(lost)} were put in, and nobody has acknowledged them: they are not there")

    @property
    def queues(self) -> Sequence[bytes]:
        """The queues that workers share."""
        return _QUEUES


class QueueWorker(CoordinatedClient):
    """Works on entries of queues with other workers."""

    def __init__(
        self, book: WorkBook, space: str, ensure: Ensure, calls: ClientCalls, seed: str, think_us: int, number: int
    ) -> None:
        super().__init__(calls, seed, think_us)
        self._book = book
        self._space = space
        self._ensure = ensure
        self._number = number
        self._values = 0
        self._held: list[_Holding] = []

    def step(self) -> None:
        """Add an entry, request a lease, or end one."""
        do = self.chance.random()
        act = self._put if do < 0.3 else self._settle if self._held and do < 0.7 else self._lease
        if len(self._held) >= _MOST_HELD:
            act = self._settle
        self._coordinator(self._space, "", lambda _key, _partitions: 0, self._ensure, act)

    def _ask(
        self, place: PartitionId, node_id: int, what: str, do: Callable[[Broker, Stream, Reply], None],
        answered: Callable[[Any], None],
    ) -> None:  # fmt: skip
        """`answered` gets the leader's response; an unexpected error breaks a promise."""

        def ask(broker: Broker, reply: Reply) -> None:
            space = broker.streams.find(self._space)
            if space is None:
                reply(StreamNotFound("not known here yet"))
            else:
                do(broker, space, reply)

        def told(value: Any) -> None:
            if isinstance(value, DuramenError):
                self.calls.trace("%s: %s: %s", what, type(value).__name__, value)
                if not self.refused(place, value) and value.id != "storage-failed":
                    raise BrokenPromise(f"{what} is refused with {type(value).__name__}: {value}")
            answered(value)
            self.next()

        self.calls.ask(node_id, ask, told)

    def _put(self, place: PartitionId, node_id: int) -> None:
        queue = self.chance.choice(_QUEUES)
        new = list[bytes]()
        for _ in range(self.chance.randrange(1, 4)):
            self._values += 1
            new.append(b"%d/%d" % (self._number, self._values))

        def do(broker: Broker, space: Stream, reply: Reply) -> None:
            command = Enqueue([(queue, NewEntry(value)) for value in new])
            LocalShards(broker).submit(space.partition(0), command, reply)

        def answered(value: Any) -> None:
            if isinstance(value, Position):
                for number, content in enumerate(new):
                    at = Position(value.leader_epoch, value.offset + number)
                    self._book.put[queue, at] = content

        self._ask(place, node_id, "a worker's enqueue", do, answered)

    def _lease(self, place: PartitionId, node_id: int) -> None:
        short, gone = self.chance.random() < 0.3, dict(self._book.acknowledged)
        request = LeaseRequest(
            _QUEUES, self.chance.randrange(1, 4), _SHORT_MS if short else _LEASE_MS, 0, self.chance.random() < 0.2
        )  # fmt: skip
        self._book.ask()

        def do(broker: Broker, space: Stream, reply: Reply) -> None:
            LeasePoll(broker, QueueRequests(LocalShards(broker)), space, request, 0, reply).begin()

        def answered(value: Any) -> None:
            if isinstance(value, DuramenError):
                if isinstance(value, NOT_DONE):
                    self._book.told()
                return
            self._book.told()
            for one in value:
                self._book.lease(one, short=short, gone=gone)
                self._held.append(_Holding(one.queue, one.entry.position, one.lease, short))

        self._ask(place, node_id, "a lease", do, answered)

    def _settle(self, place: PartitionId, node_id: int) -> None:
        holding = self.chance.choice(self._held)
        accepts, delay_ms = self.chance.random() < 0.7, self.chance.choice((0, 0, 200))
        self._book.settles(holding, accepts=accepts)
        epochs = list[int]()

        def do(broker: Broker, space: Stream, reply: Reply) -> None:
            epochs.append(space.partition(0).leader_epoch)
            entries = [(queue_of(space, holding.queue), LeasedEntry(holding.position, holding.lease))]
            LocalShards(broker).settle(space.partition(0), Ack(entries) if accepts else Nack(entries, delay_ms), reply)

        self._ask(place, node_id, "a worker's word", do, partial(self._settled, holding, epochs, accepts=accepts))

    def _settled(
        self, holding: _Holding, epochs: Sequence[int], value: Mapping[int, DuramenError] | DuramenError, *,
        accepts: bool,
    ) -> None:  # fmt: skip
        unknown = isinstance(value, DuramenError) and not isinstance(value, NOT_DONE)
        self._book.answered(holding, accepts=accepts, unknown=unknown)
        if isinstance(value, NOT_DONE):
            if not accepts:
                self._held.remove(holding)  # the lease is over for this worker
            return  # it says so again
        self._held.remove(holding)
        if isinstance(value, DuramenError):
            return
        self._book.settled(holding, value.get(0), epochs[-1], accepts=accepts)


def _origin(letter: QueueEntry) -> tuple[bytes, Position]:
    """The queue and the position that a dead letter is of."""
    said = dict(letter.headers)
    queue, position = (said[b"duramen-dead-letter-" + name] or b"" for name in (b"queue", b"position"))
    return queue, parse_position(position.decode())
