"""The queue interface of the doors: sends each request to the shards of its queues."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from duramen.base.catalogue.queues import KIND, QUEUES
from duramen.base.errors import (
    BatchInvalid,
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
    NotLeader,
    OutcomeUnknown,
    QueueBatchTooLarge,
    QueueEntryTooLarge,
    QueueNameInvalid,
    QueueSpaceNotFound,
)
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import check, header, records
from duramen.codec.partitioner import partition_of
from duramen.coordinators.queue.shard import QueueOutcome, QueueShard, hash_of
from duramen.coordinators.runtime.shard import ShardAnswer
from duramen.queues.answers import entry_json_size, entry_size
from duramen.queues.machine import MOST_ENTRIES, Ack, Enqueue, Nack, QueueCommand, check_size
from duramen.queues.names import Queue, name_problem
from duramen.queues.operations import NewEntry
from duramen.queues.reading import Retrieved, RetrievedBatches, Where, retrieve, retrieve_batches
from duramen.queues.requests import RequestId
from duramen.queues.runs import QueueEntry
from duramen.queues.splitting import split_shards
from duramen.rpc.retry import may_be_done
from duramen.service.appending import append
from duramen.service.broker import Broker
from duramen.service.forwarded_requests import AppendResult
from duramen.service.queue_wait import QueueWait
from duramen.service.shard_queries import (
    QueryDone,
    Refused,
    ShardQuery,
    Waiter,
    WaitQuery,
    queues_in,
    queues_of,
    run_query,
    wait_for_lease,
)

__all__ = [
    "Enqueued",
    "Found",
    "FoundDone",
    "LocalShards",
    "PositionDone",
    "QueueRequests",
    "Read",
    "ReadLimits",
    "SettleDone",
    "Shards",
    "patiently",
    "queue_of",
    "request_of",
    "space_of",
]

_T = TypeVar("_T")

_PATIENCE_MS: Final = 5_000
_AGAIN_MS: Final = 20


class Enqueued(NamedTuple):
    """The outcome of a number of entries: for each shard their numbers, and the first position or the error."""

    entries: int
    numbers: Mapping[int, Sequence[int]]
    answers: Mapping[int, Position | DuramenError]

    def each(self, make: Callable[[int, int], _T]) -> list[_T | None]:
        """A value from the leader epoch and offset of each entry; None if it is not known to be stored."""
        found: list[_T | None] = [None] * self.entries
        for shard, numbers in self.numbers.items():
            answer = self.answers[shard]
            if isinstance(answer, Position):
                epoch, offset = answer
                for place, number in enumerate(numbers, offset):
                    found[number] = make(epoch, place)
        return found

    @property
    def positions(self) -> list[Position | None]:
        """The position of each."""
        return self.each(Position)

    @property
    def shards(self) -> Mapping[int, int]:
        """The shard of each."""
        return {number: shard for shard, numbers in self.numbers.items() for number in numbers}

    @property
    def error(self) -> DuramenError | None:
        """The errors of missing entries; the first one with an unknown outcome comes first."""
        found = [answer for answer in self.answers.values() if isinstance(answer, DuramenError)]
        return min(found, key=lambda one: not may_be_done(one), default=None)

    @property
    def unknown(self) -> list[int]:
        """Those that may be there."""
        shards = [
            shard for shard, answer in self.answers.items() if isinstance(answer, DuramenError) and may_be_done(answer)
        ]
        return sorted(number for shard in shards for number in self.numbers[shard])


class Read(NamedTuple):
    """A queue that is read, and from where on."""

    queue: bytes
    where: Where


class ReadLimits(NamedTuple):
    """The most entries and bytes in all, and how long the first entry is waited for. The first may be larger.

    `delayed`: entries too whose delay is not over. With `json_bytes` sizes are those in a JSON response, and that is
    the largest size of the first entry; it is not sent to other nodes, whose responses are record batches.
    """

    entries: int
    max_bytes: int
    wait_ms: int
    delayed: bool = False
    json_bytes: int = 0

    def size_of(self, entry: QueueEntry) -> int:
        """The size of an entry in the response."""
        return entry_json_size(b"", entry) if self.json_bytes else entry_size(entry)


Found = Retrieved | RetrievedBatches | DuramenError
"""The entries of a queue, or the reason why they cannot be read from there."""
FoundDone = Callable[[Mapping[bytes, Found]], None]
PositionDone = Callable[[Position | DuramenError], None]
SettleDone = Callable[[Refused | DuramenError], None]


def space_of(stream: Stream | None, name: str) -> Stream:
    """A stream that is a queue space. Raises QueueSpaceNotFound."""
    if stream is None:
        raise QueueSpaceNotFound(f"there is no queue space {name}")
    if stream.kind != QUEUES:
        raise QueueSpaceNotFound(f"{name} is a stream, and no queue space: it was made without {KIND}={QUEUES}")
    return stream


def queue_of(space: Stream, name: bytes) -> Queue:
    """A queue of a space."""
    return Queue(name, hash_of(space)(name))


def request_of(space: Stream, text: str) -> RequestId | None:
    """The id of a request; None without one."""
    return RequestId(text.encode(), hash_of(space)(text.encode())) if text else None


def patiently(broker: Broker, ask: Callable[[Callable[[_T], None]], None], done: Callable[[_T], None]) -> None:
    """Retry while the shard is being loaded: a refusal then means that nothing was done."""
    until_ms = broker.monotonic_ms() + _PATIENCE_MS

    def answered(answer: _T) -> None:
        if isinstance(answer, CoordinatorLoading) and broker.monotonic_ms() < until_ms:
            broker.later(_AGAIN_MS, lambda: ask(answered))
        else:
            done(answer)

    ask(answered)


def _read_trimmed(
    broker: Broker, space: Stream, shard: int, queues: Sequence[Queue],
    query: Callable[[QueueShard, StateRows], object], done: Callable[[object], None],
) -> None:  # fmt: skip
    """The result of a query in a shard that has all acknowledged operations, and the trims of these queues.

    A shard that is being loaded can neither be trimmed nor read: both are retried.
    """

    def read() -> None:
        at_least = space.partition(shard).log.high_watermark
        broker.coordinators.read(space.name, shard, query, done, at_least=at_least)

    broker.retention.settle(space, shard, queues, read)


def _unknown(error: DuramenError) -> DuramenError:
    """The error of an operation that may have been executed, after which it is not retried."""
    return error if may_be_done(error) else OutcomeUnknown(f"whether it was done is not known: {error}")


class Shards(Protocol):
    """The shards of spaces, wherever they are led. Each `done` gets an outcome once."""

    def submit(self, partition: Partition, command: QueueCommand, done: PositionDone) -> None:
        """Execute an operation on the rows of a shard, or add entries: `done` gets the first record's position."""

    def append(self, partition: Partition, batch: bytearray, done: PositionDone) -> None:
        """Append a batch of entries, which is the log's from here on: `done` gets the position of its first."""

    def retrieve(
        self, space: Stream, reads: Sequence[Read], limits: ReadLimits, done: FoundDone, *, batches: bool
    ) -> Callable[[], None]:
        """Read queues; returns a function that ends the read. With `batches` the result may be record batches."""

    def settle(self, partition: Partition, command: Ack | Nack, done: SettleDone) -> None:
        """Acknowledge leased entries of a shard, or give them back: `done` gets those that were refused."""

    def ask(self, space: Stream, shard: int, query: ShardQuery, done: QueryDone, waiter: Waiter | None = None) -> None:
        """`done` gets the response of the shard's leader; see `run_query`.

        If this node is the leader, `waiter` watches a shard without entries to lease.
        """

    def wait(self, space: Stream, shard: int, query: WaitQuery, done: QueryDone) -> Callable[[], None]:
        """`done` gets whether entries may be leased, once that is so; the result cancels it."""


class LocalShards:
    """The shards led by this node; all shards on a standalone node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def submit(self, partition: Partition, command: QueueCommand, done: PositionDone) -> None:
        """As `Shards`. Ends with NotLeader where another node is to be asked; NotCoordinator: it may have been done."""

        def answered(answer: ShardAnswer | DuramenError) -> None:
            if isinstance(answer, DuramenError):
                done(answer)
            elif (before := cast("QueueOutcome", answer.response).made_before) is not None:
                done(before)
            else:
                offset = answer.first_offset
                done(Position(partition.log.takeovers.epoch_at(offset), offset))

        self._submit(partition, command, answered)

    def settle(self, partition: Partition, command: Ack | Nack, done: SettleDone) -> None:
        """As `Shards`. Ends as `submit`."""

        def answered(answer: ShardAnswer | DuramenError) -> None:
            done(answer if isinstance(answer, DuramenError) else cast("QueueOutcome", answer.response).refused)

        self._submit(partition, command, answered)

    def _submit(
        self, partition: Partition, command: QueueCommand, done: Callable[[ShardAnswer | DuramenError], None]
    ) -> None:
        begun = False

        def answered(answer: ShardAnswer | DuramenError) -> None:
            if isinstance(answer, NotCoordinator) and not begun:
                answer = NotLeader(str(answer))
            done(answer)

        submit = partial(self._broker.coordinators.submit, partition.stream.name, partition.index, command)
        patiently(self._broker, submit, answered)
        begun = True

    def append(self, partition: Partition, batch: bytearray, done: PositionDone) -> None:
        """As `Shards`. Ends with NotLeader where another node is to be asked."""

        def appended(fate: AppendResult) -> None:
            error, offset = fate.error, fate.base_offset
            if error is None:
                done(Position(partition.log.takeovers.epoch_at(offset), offset))
            else:
                done(_unknown(error) if fate.unknown else error)

        append(partition, batch, appended)

    def retrieve(
        self, space: Stream, reads: Sequence[Read], limits: ReadLimits, done: FoundDone, *, batches: bool
    ) -> Callable[[], None]:
        """As `Shards`."""
        poll = _Poll(self._broker, space, reads, limits, done, batches=batches)
        poll.begin()
        return poll.end

    def ask(self, space: Stream, shard: int, query: ShardQuery, done: QueryDone, waiter: Waiter | None = None) -> None:
        """As `Shards`."""
        queues, run = queues_of(space, queues_in(query)), partial(run_query, self._broker, space, shard, query, waiter)
        self._read(space, shard, run, done, queues)

    def wait(self, space: Stream, shard: int, query: WaitQuery, done: QueryDone) -> Callable[[], None]:
        """As `Shards`."""
        return wait_for_lease(self._broker, space, query, partial(self._read, space, shard), done)

    def _read(
        self, space: Stream, shard: int, query: Callable[[QueueShard, StateRows], object],
        done: Callable[[object], None], queues: Sequence[Queue] = (),
    ) -> None:  # fmt: skip
        """The result of a query in a shard that has all acknowledged operations, once these queues are trimmed."""
        patiently(self._broker, partial(_read_trimmed, self._broker, space, shard, queues, query), done)


class QueueRequests:
    """The queues of a node, or of its cluster."""

    def __init__(self, shards: Shards) -> None:
        self._shards = shards

    @property
    def shards(self) -> Shards:
        """The shards, for queries that only their leaders answer."""
        return self._shards

    def enqueue(
        self, space: Stream, entries: Sequence[tuple[bytes, NewEntry]], done: Callable[[Enqueued], None],
        request: RequestId | None = None, *, moved: bool = False,
    ) -> None:  # fmt: skip
        """Put entries into queues: those of a shard together, all of them or none.

        Raises QueueBatchTooLarge, and nothing is put anywhere then. Entries that are `moved` from another queue may be
        larger than max.message.bytes, and limits of shards do not apply to them.
        """
        by_shard: dict[int, list[int]] = {}
        for number, (queue, _) in enumerate(entries):
            by_shard.setdefault(partition_of(queue, space.shards), []).append(number)
        commands = {
            shard: Enqueue([entries[number] for number in numbers], request, moved and space.shard_limits != (-1, -1))
            for shard, numbers in by_shard.items()
        }
        for command in commands.values():
            if not moved:
                check_size(command, space.max_message_bytes)
        found = _Gathered(len(entries), by_shard, done)
        for shard, command in commands.items():
            self._shards.submit(space.partition(shard), command, partial(found.answered, shard))

    def enqueue_batch(self, space: Stream, batch: bytearray, done: Callable[[Enqueued], None]) -> None:
        """Like `enqueue`, for entries in a producer's batch, which the log owns from then on.

        If all belong to one shard it is stored unchanged. Raises QueueBatchTooLarge, BatchCorrupt, BatchInvalid.
        """
        count, most = check(batch).records, space.max_message_bytes
        if count > MOST_ENTRIES or len(batch) > most:
            raise QueueBatchTooLarge(
                f"it has {count} entries and {len(batch)} bytes; a request has {MOST_ENTRIES} entries at most, and"
                f" max.message.bytes of the space is {most}"
            )
        key = next(records(batch, verify=False, limit_bytes=space.decoded_limit_bytes)).key
        partition = space.partition(0 if key is None else partition_of(key, space.shards))

        def stored(answer: Position | DuramenError) -> None:
            if isinstance(answer, BatchInvalid):
                self._enqueue_apart(space, batch, answer, done)
            else:
                _Gathered(count, {partition.index: range(count)}, done).answered(partition.index, answer)

        self._shards.append(partition, batch, stored)

    def _enqueue_apart(
        self, space: Stream, batch: bytearray, refused: BatchInvalid, done: Callable[[Enqueued], None]
    ) -> None:
        """Entries that no shard may have all of: each shard gets its own, or they are wrong."""
        parts = split_shards(batch, space.shards, space.decoded_limit_bytes)
        count = header(batch).records
        if parts is None or len(parts) < 2:
            done(Enqueued(count, {-1: range(count)}, {-1: _why_refused(batch, space, refused)}))
            return
        found = _Gathered(count, {shard: places for shard, _, places in parts}, done)
        for shard, part, _ in parts:
            self._shards.append(space.partition(shard), bytearray(part), partial(found.answered, shard))

    def submit(self, space: Stream, queue: Queue, command: QueueCommand, done: PositionDone) -> None:
        """Edit, delete, replace or empty: `done` gets the position of the first record. Raises QueueBatchTooLarge."""
        check_size(command, space.max_message_bytes)
        self._shards.submit(space.partition(partition_of(queue.name, space.shards)), command, done)

    def retrieve(
        self, space: Stream, reads: Sequence[Read], limits: ReadLimits, done: FoundDone, *, batches: bool = False
    ) -> Callable[[], None]:
        """Entries of queues from positions on; waits for the first entry if there are none.

        With `batches`, for a single queue, as record batches. Returns a function that ends the wait.
        """
        return self._shards.retrieve(space, reads, limits, done, batches=batches)


def _why_refused(batch: bytearray, space: Stream, refused: BatchInvalid) -> DuramenError:
    """The reason of refused entries: QueueNameInvalid if a name is invalid, otherwise the known one."""
    try:
        for place, record in enumerate(records(batch, verify=False, limit_bytes=space.decoded_limit_bytes)):
            problem = name_problem(record.key)
            if problem:
                return QueueNameInvalid(f"entry {place}: {problem}")
    except DuramenError as error:
        return error
    return refused


class _Gathered:
    """The answers of several shards."""

    def __init__(self, count: int, by_shard: Mapping[int, Sequence[int]], done: Callable[[Enqueued], None]) -> None:
        self._count = count
        self._by_shard = by_shard
        self._answers: dict[int, Position | DuramenError] = {}
        self._done = done

    def answered(self, shard: int, answer: Position | DuramenError) -> None:
        """The outcome of the entries of a shard."""
        self._answers[shard] = answer
        if len(self._answers) == len(self._by_shard):
            self._done(Enqueued(self._count, self._by_shard, self._answers))


class _Poll:
    """Queues that are read together, once, or once more when something happens to one of them."""

    def __init__(
        self, broker: Broker, space: Stream, reads: Sequence[Read], limits: ReadLimits, done: FoundDone,
        *, batches: bool,
    ) -> None:  # fmt: skip
        self._broker = broker
        self._batches = batches
        self._space = space
        self._reads = {read.queue: read.where for read in reads}
        self._limits = limits
        self._left_entries, self._left_bytes = limits.entries, limits.max_bytes
        self._taken_any = False
        self._done = done
        self._hash = hash_of(space)
        self._found: dict[bytes, Found] = {}
        self._left = 0
        self._round = 0
        self._wait = QueueWait(broker, limits.wait_ms, self._read_all, self._answer)

    def begin(self) -> None:
        self._wait.begin()

    def end(self) -> None:
        """Wait for nothing any more."""
        self._wait.end()

    def _read_all(self) -> None:
        self._round += 1
        self._found, self._left = {}, len(self._reads)
        self._left_entries, self._left_bytes = self._limits.entries, self._limits.max_bytes
        self._taken_any = False
        for queue, where in list(self._reads.items()):
            shard = partition_of(queue, self._space.shards)
            named, query = (Queue(queue, self._hash(queue)),), partial(self._query, self._round, queue, where)
            read = partial(_read_trimmed, self._broker, self._space, shard, named, query)
            patiently(self._broker, read, partial(self._got, self._round, queue))

    def _query(
        self, number: int, queue: bytes, where: Where, shard: QueueShard, rows: StateRows
    ) -> Retrieved | RetrievedBatches:
        """A queue's entries within what is left of the limits; without any left, only the position to read from."""
        hashed, full = self._hash(queue), self._left_bytes <= 0 or self._left_entries <= 0
        now_ms, delayed, limit = self._broker.now_ms(), self._limits.delayed, 0 if full else self._left_entries
        if self._batches:
            found: Retrieved | RetrievedBatches = retrieve_batches(
                rows, Queue(queue, hashed), where, limit, self._left_bytes, now_ms, delayed=delayed
            )
        else:
            found = self._retrieve(rows, hashed, where, limit, now_ms)
        if number == self._round:
            entries, size = self._taken(found)
            self._left_entries, self._left_bytes = self._left_entries - entries, self._left_bytes - size
        if found.is_empty and not full and not self._wait.over:
            self._wait.watch([shard.wait(hashed, self._wait.wake)])  # in the turn of the read: nothing comes between
        return found

    def _retrieve(self, rows: StateRows, queue: bytes, where: Where, limit: int, now_ms: int) -> Retrieved:
        """A queue's entries; none if the first does not fit any more. Raises QueueEntryTooLarge if it never does."""
        delayed, first_bytes, is_first = self._limits.delayed, self._limits.json_bytes, not self._taken_any
        if first_bytes and not is_first:
            first_bytes = max(1, self._left_bytes)
        ask = partial(retrieve, rows, queue, where, delayed=delayed, json_bytes=first_bytes)
        try:
            return ask(limit, self._left_bytes, now_ms)
        except QueueEntryTooLarge:
            if is_first:
                raise
            return ask(0, 0, now_ms)

    def _taken(self, found: Retrieved | RetrievedBatches) -> tuple[int, int]:
        """How many entries a result has, and how many bytes."""
        if isinstance(found, Retrieved):
            self._taken_any = self._taken_any or bool(found.entries)
            return len(found.entries), sum(map(self._limits.size_of, found.entries))
        return sum(header(batch).records for batch in found.batches), sum(map(len, found.batches))

    def _got(self, number: int, queue: bytes, found: object) -> None:
        if self._wait.over or number != self._round:
            return
        here = self._found[queue] = cast("Found", found)
        if not isinstance(here, DuramenError) and self._reads[queue] == "end":
            self._reads[queue] = here.next  # entries from now on are read
        self._left -= 1
        if not self._left:
            found_any = any(isinstance(one, DuramenError) or not one.is_empty for one in self._found.values())
            self._wait.ended(found=found_any)

    def _answer(self) -> None:
        if self._wait.end():
            self._done(self._found)
