"""What doors ask of queues, each request brought to the shards that its queues are in."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from duramen.base.catalogue_queues import KIND, QUEUES
from duramen.base.errors import (
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    NotEnoughReplicasAfterAppend,
    QueueSpaceNotFound,
    StorageFailed,
)
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.broker.streams import Stream
from duramen.codec.partitioner import partition_of
from duramen.coordinators.queue.shard import QueueShard, hash_of
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.queues.machine import Enqueue, Queue, QueueCommand, check_size
from duramen.queues.operations import NewEntry
from duramen.queues.positions import FIRST
from duramen.queues.reading import Retrieved, Where, retrieve
from duramen.service.broker import Broker

__all__ = ["UNKNOWN", "Enqueued", "Found", "QueueRequests", "Read", "queue_of", "space_of"]

_T = TypeVar("_T")

_PATIENCE_MS: Final = 5_000
_AGAIN_MS: Final = 20

UNKNOWN: Final = (NotCoordinator, NotEnoughReplicasAfterAppend, StorageFailed)
"""An operation may be in the log, and count or not."""


class Enqueued(NamedTuple):
    """What became of entries: the position of each, or why it has none; `unknown` are those that may be there."""

    positions: list[Position | None]
    error: DuramenError | None
    unknown: list[int]


class Read(NamedTuple):
    """A queue that is read, and from where on."""

    queue: bytes
    where: Where


Found = Retrieved | DuramenError
"""What is in a queue, or why it cannot be read from there on."""


class _Done(Protocol):
    def __call__(self, answer: Position | DuramenError, /) -> None: ...


def space_of(stream: Stream | None, name: str) -> Stream:
    """A stream that is a queue space. Raises QueueSpaceNotFound."""
    if stream is None:
        raise QueueSpaceNotFound(f"there is no queue space {name}")
    if stream.kind != QUEUES:
        raise QueueSpaceNotFound(f"{name} is a stream, and no queue space: it was made without {KIND}={QUEUES}")
    return stream


def queue_of(space: Stream, name: bytes) -> Queue:
    """A queue of a space."""
    return Queue(name, hash_of(space.id)(name))


def _patiently(broker: Broker, ask: Callable[[Callable[[_T], None]], None], done: Callable[[_T], None]) -> None:
    """Ask again while the shard is being loaded: what it refuses with that was not done."""
    until_ms = broker.monotonic_ms() + _PATIENCE_MS

    def answered(answer: _T) -> None:
        if isinstance(answer, CoordinatorLoading) and broker.monotonic_ms() < until_ms:
            broker.later(_AGAIN_MS, lambda: ask(answered))
        else:
            done(answer)

    ask(answered)


class QueueRequests:
    """The queues of a node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def enqueue(
        self, space: Stream, entries: Sequence[tuple[bytes, NewEntry]], done: Callable[[Enqueued], None]
    ) -> None:
        """Put entries into queues: those of a shard together, all of them or none.

        Raises QueueBatchTooLarge, and nothing is put anywhere then.
        """
        by_shard: dict[int, list[int]] = {}
        for number, (queue, _) in enumerate(entries):
            by_shard.setdefault(partition_of(queue, space.shards), []).append(number)
        commands = {shard: Enqueue([entries[number] for number in numbers]) for shard, numbers in by_shard.items()}
        for command in commands.values():
            check_size(command, space.max_message_bytes)
        found = _Gathered(len(entries), by_shard, done)
        for shard, command in commands.items():
            self._submit(space, shard, command, partial(found.answered, shard))

    def shard_of(self, space: Stream, queue: bytes) -> int:
        """The shard that a queue is in."""
        return partition_of(queue, space.shards)

    def submit(self, space: Stream, queue: Queue, command: QueueCommand, done: _Done) -> None:
        """Edit, delete or replace: `done` gets the position of the operation's record. Raises QueueBatchTooLarge."""
        check_size(command, space.max_message_bytes)
        self._submit(space, partition_of(queue.name, space.shards), command, done)

    def _submit(self, space: Stream, shard: int, command: QueueCommand, done: _Done) -> None:
        partition = space.partition(shard)

        def answered(answer: ShardAnswer | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            else:
                offset = answer.first_offset
                done(Position(partition.log.takeovers.epoch_at(offset), offset))

        _patiently(self._broker, partial(self._broker.coordinators.submit, space.name, shard, command), answered)

    def retrieve(
        self, space: Stream, reads: Sequence[Read], limit: int, max_bytes: int, wait_ms: int,
        done: Callable[[Mapping[bytes, Found]], None],
    ) -> Callable[[], None]:  # fmt: skip
        """What is in queues from positions on, `limit` entries in all; where nothing is, wait for the first of them.

        Returns what ends it: nobody waits any more.
        """
        poll = _Poll(self._broker, space, reads, limit, max_bytes, done)
        poll.begin(wait_ms)
        return poll.end


class _Gathered:
    """The answers of several shards."""

    def __init__(self, count: int, by_shard: Mapping[int, Sequence[int]], done: Callable[[Enqueued], None]) -> None:
        self._positions: list[Position | None] = [None] * count
        self._by_shard = by_shard
        self._left = len(by_shard)
        self._errors: list[DuramenError] = []
        self._unknown: list[int] = []
        self._done = done

    def answered(self, shard: int, answer: Position | DuramenError) -> None:
        if isinstance(answer, Position):
            for place, number in enumerate(self._by_shard[shard]):
                self._positions[number] = Position(answer.leader_epoch, answer.offset + place)
        else:
            # One that says that its outcome is not known comes first.
            unknown = isinstance(answer, UNKNOWN)
            self._errors.insert(0 if unknown else len(self._errors), answer)
            self._unknown += self._by_shard[shard] if unknown else ()
        self._left -= 1
        if not self._left:
            self._done(Enqueued(self._positions, next(iter(self._errors), None), sorted(self._unknown)))


class _Poll:
    """Queues that are read together, once, or once more when something happens to one of them."""

    def __init__(
        self, broker: Broker, space: Stream, reads: Sequence[Read], limit: int, max_bytes: int,
        done: Callable[[Mapping[bytes, Found]], None],
    ) -> None:  # fmt: skip
        self._broker = broker
        self._space = space
        self._reads = {read.queue: read.where for read in reads}
        self._limit = limit
        self._max_bytes = max_bytes
        self._done = done
        self._hash = hash_of(space.id)
        self._found: dict[bytes, Found] = {}
        self._left = 0
        self._round = 0
        self._waits = False
        self._woken = False
        self._over = False
        self._leave: list[Callable[[], None]] = []
        self._cancel: Callable[[], None] = lambda: None

    def begin(self, wait_ms: int) -> None:
        if wait_ms:
            self._waits = True
            self._cancel = self._broker.later(wait_ms, self._late).cancel
        self._read_all()

    def end(self) -> None:
        """Wait for nothing any more."""
        self._over = True
        self._cancel()
        self._forget()

    def _forget(self) -> None:
        leave, self._leave = self._leave, []
        for one in leave:
            one()

    def _late(self) -> None:
        self._waits = False
        if not self._left:
            self._answer()

    def _read_all(self) -> None:
        self._forget()
        self._round += 1
        self._woken, self._found, self._left = False, {}, len(self._reads)
        for queue, where in list(self._reads.items()):
            shard = partition_of(queue, self._space.shards)
            log = self._space.partition(shard).log
            read = partial(
                self._broker.coordinators.read, self._space.name, shard, partial(self._query, queue, where),
                at_least=log.high_watermark,
            )  # fmt: skip
            _patiently(self._broker, read, partial(self._got, self._round, queue))

    def _query(self, queue: bytes, where: Where, shard: QueueShard, rows: StateRows) -> Retrieved:
        hashed = self._hash(queue)
        found = retrieve(rows, hashed, where, self._limit, self._max_bytes)
        if not found.entries and not self._over:
            self._leave.append(shard.wait(hashed, self._wake))  # in the turn of the read: nothing comes between
        return found

    def _got(self, number: int, queue: bytes, found: object) -> None:
        if self._over or number != self._round:
            return
        here = self._found[queue] = cast("Found", found)
        if isinstance(here, Retrieved) and self._reads[queue] == "end":
            self._reads[queue] = here.next  # what is put in from now on is read
        self._left -= 1
        if self._left:
            return
        if not self._waits or any(isinstance(one, DuramenError) or one.entries for one in self._found.values()):
            self._answer()
        elif self._woken:
            self._read_all()

    def _wake(self) -> None:
        if self._left:
            self._woken = True
        elif not self._over:
            self._read_all()

    def _answer(self) -> None:
        if not self._over:
            self.end()
            self._done(self._cut())

    def _cut(self) -> Mapping[bytes, Found]:
        """So many entries in all: a queue of which too many were found is read on."""
        left, cut = self._limit, dict[bytes, Found]()
        for queue, one in self._found.items():
            if isinstance(one, DuramenError) or len(one.entries) <= left:
                cut[queue] = one
                left -= 0 if isinstance(one, DuramenError) else len(one.entries)
                continue
            entries = one.entries[:left]
            last = entries[-1].position if entries else None
            following = _start(self._reads[queue]) if last is None else Position(last.leader_epoch, last.offset + 1)
            cut[queue] = Retrieved(entries, following)
            left = 0
        return cut


def _start(where: Where) -> Position:
    return FIRST if isinstance(where, str) else where
