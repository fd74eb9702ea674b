"""Queues of a cluster: any node accepts a request and asks the leaders of shards that it does not lead."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import msgspec

from duramen.base.errors import DuramenError, OutcomeUnknown, RequestInvalid, StorageFailed
from duramen.base.ids import Position
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.partitioner import partition_of
from duramen.codec.queue_entries import entry_fields
from duramen.queues.answers import too_large
from duramen.queues.machine import Ack, Delete, Edit, Empty, Enqueue, Nack, Own, QueueCommand, Replace
from duramen.queues.positions import FIRST, parse_position
from duramen.queues.reading import Retrieved, RetrievedBatches, Where
from duramen.queues.runs import QueueEntry
from duramen.rpc.errors import Refused
from duramen.rpc.methods import UNREADABLE, Method
from duramen.rpc.retry import may_repeat
from duramen.rpc.server import Done
from duramen.service.forwarded_requests import CHANGE_QUEUES, READ_QUEUES, AskQueues, Managed
from duramen.service.forwarding.client import PartitionRequest
from duramen.service.forwarding.queue_queries import (
    Rewritten,
    answer_bytes,
    answer_of,
    named,
    named_of,
    query_of,
    refused_bytes,
    refused_of,
    rewritten_error,
    rewritten_of,
    settled_of,
    wait_of,
)
from duramen.service.queues import (
    Found,
    FoundDone,
    LocalShards,
    PositionDone,
    Read,
    ReadLimits,
    SettleDone,
)
from duramen.service.shard_queries import QueryDone, ShardQuery, Waiter, WaitQuery

__all__ = ["RoutedShards", "answer_queues"]

_COMMANDS: Mapping[str, type[Any]] = {kind.__name__: kind for kind in (Enqueue, Edit, Delete, Replace, Empty, Own)}
_WITHIN_MS = 10_000
_QUERY_MS = 5_000
"""How long the leader of one of several shards is looked for."""

_REPEATABLE = ("read", "query", "wait")
"""A lease whose answer is lost expires by itself."""

_ReadRequest = tuple[list[tuple[bytes, Where]], ReadLimits]
_Answer = tuple[bytes, Position, Refused | None, Rewritten | None]
_Changed = tuple[Position, Rewritten | None]
_Outcome = Managed | DuramenError | OSError


class Ask(Protocol):
    """Sends a request; returns a function that cancels it."""

    def __call__(
        self, request: PartitionRequest[Managed], within_ms: int, done: Callable[[_Outcome], None], /
    ) -> Callable[[], None]: ...


class _ShardRequest(NamedTuple):
    """A request to a shard. `do` executes it here and returns a function that cancels it."""

    partition: Partition
    wanted: AskQueues
    do: Callable[[Callable[[_Outcome], None]], Callable[[], None]]

    @property
    def method(self) -> Method[AskQueues, Managed]:
        return READ_QUEUES if self.wanted.what in _REPEATABLE else CHANGE_QUEUES

    def begin(self, done: Callable[[_Outcome], None]) -> Callable[[], None] | None:
        return self.do(done) if self.partition.leads else None

    def message(self, spent_ms: int) -> AskQueues:
        del spent_ms
        return self.wanted


class RoutedShards:
    """The shards of all nodes: those that are led here without going round."""

    def __init__(self, local: LocalShards, ask: Ask) -> None:
        self._local = local
        self._ask = ask

    def submit(self, partition: Partition, command: QueueCommand, done: PositionDone) -> None:
        """As `Shards`."""
        self._change("change", partition, named(command), partial(self._local.submit, partition, command), done)

    def append(self, partition: Partition, batch: bytearray, done: PositionDone) -> None:
        """As `Shards`."""
        self._change("put", partition, bytes(batch), partial(self._local.append, partition, batch), done)

    def _change(
        self, what: Any, partition: Partition, body: bytes, do: Callable[[PositionDone], None], done: PositionDone
    ) -> None:
        def here(answered: Callable[[_Outcome], None]) -> Callable[[], None]:
            do(partial(_managed, answered))
            return _nothing

        def told(outcome: _Outcome) -> None:
            found = _read(outcome, _Changed)
            done(found if isinstance(found, DuramenError) else rewritten_error(found[1]) or found[0])

        self._ask(_ShardRequest(partition, _wanted(what, partition, body), here), _WITHIN_MS, told)

    def retrieve(
        self, space: Stream, reads: Sequence[Read], limits: ReadLimits, done: FoundDone, *, batches: bool
    ) -> Callable[[], None]:
        """As `Shards`."""
        poll = _RoutedPoll(self, space, reads, limits, done, batches=batches)
        if not all(space.partition(partition_of(read.queue, space.shards)).leads for read in reads):
            poll.begin()
            return poll.end

        def answered(found: Mapping[bytes, Found]) -> None:
            if _unread(found) is None:
                done(found)
            else:
                poll.begin()  # another node leads one of the shards now

        end_local = self._local.retrieve(space, reads, limits, answered, batches=batches)

        def end() -> None:
            end_local()
            poll.end()

        return end

    def read(
        self, partition: Partition, space: Stream, reads: Sequence[Read], limits: ReadLimits, done: FoundDone
    ) -> Callable[[], None]:
        """Read queues of one shard; the result is record batches."""

        def here(answered: Callable[[_Outcome], None]) -> Callable[[], None]:
            return self._local.retrieve(space, reads, limits, partial(_found_managed, answered), batches=True)

        def told(outcome: _Outcome) -> None:
            found = _read(outcome, list[_Answer])
            if isinstance(found, DuramenError):
                done({read.queue: found for read in reads})
            else:
                done({read.queue: _found_of(one) for read, one in zip(reads, found, strict=True)})

        request = [(read.queue, read.where) for read in reads], limits[:-1]  # see `ReadLimits`
        wanted = _wanted("read", partition, msgspec.msgpack.encode(request))
        return self._ask(_ShardRequest(partition, wanted, here), limits.wait_ms + _WITHIN_MS, told)

    # -- state of leaders only ------------------------------------------------------------------------

    def settle(self, partition: Partition, command: Ack | Nack, done: SettleDone) -> None:
        """As `Shards`."""

        def here(answered: Callable[[_Outcome], None]) -> Callable[[], None]:
            self._local.settle(partition, command, partial(_answer, answered, refused_bytes))
            return _nothing

        request = _ShardRequest(partition, _wanted("settle", partition, named(command)), here)
        self._ask(request, _WITHIN_MS, partial(_heard, done, refused_of))

    def ask(self, space: Stream, shard: int, query: ShardQuery, done: QueryDone, waiter: Waiter | None = None) -> None:
        """As `Shards`."""
        partition = space.partition(shard)

        def here(answered: Callable[[_Outcome], None]) -> Callable[[], None]:
            self._local.ask(space, shard, query, partial(_answer, answered, partial(answer_bytes, query)), waiter)
            return _nothing

        request = _ShardRequest(partition, _wanted("query", partition, named(query)), here)
        self._ask(request, _QUERY_MS, partial(_heard, done, partial(answer_of, query)))

    def wait(self, space: Stream, shard: int, query: WaitQuery, done: QueryDone) -> Callable[[], None]:
        """As `Shards`."""
        partition = space.partition(shard)

        def here(answered: Callable[[_Outcome], None]) -> Callable[[], None]:
            return self._local.wait(space, shard, query, partial(_answer, answered, msgspec.msgpack.encode))

        request = _ShardRequest(partition, _wanted("wait", partition, msgspec.msgpack.encode(query)), here)
        return self._ask(request, query.wait_ms + _QUERY_MS, done)


class _RoutedPoll:
    """Queues of several shards: all are read, then the first new entry in any is awaited."""

    def __init__(
        self, shards: RoutedShards, space: Stream, reads: Sequence[Read], limits: ReadLimits, done: FoundDone,
        *, batches: bool,
    ) -> None:  # fmt: skip
        self._shards = shards
        self._space = space
        self._reads = {read.queue: read.where for read in reads}
        self._limits = limits
        self._done = done
        self._batches = batches
        self._found: dict[bytes, Found] = {}
        self._left = 0
        self._waits = False
        self._over = False
        self._cancels: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Read all of them."""
        self._ask(0)

    def end(self) -> None:
        """The client no longer waits."""
        self._over = True
        for cancel in self._cancels:
            cancel()

    def _ask(self, wait_ms: int) -> None:
        by_shard: dict[int, list[Read]] = {}
        for queue, where in self._reads.items():
            by_shard.setdefault(partition_of(queue, self._space.shards), []).append(Read(queue, where))
        share = max(1, self._limits.max_bytes // len(by_shard))
        self._left, limits = len(by_shard), self._limits._replace(wait_ms=wait_ms, max_bytes=share)
        self._cancels = []
        for shard, reads in by_shard.items():
            if not self._over:
                got = partial(self._got, waited=bool(wait_ms))
                self._cancels.append(
                    self._shards.read(self._space.partition(shard), self._space, reads, limits, got)
                )  # fmt: skip

    def _got(self, found: Mapping[bytes, Found], *, waited: bool) -> None:
        if self._over:
            return
        self._found.update(found)
        self._left -= 1
        something = any(isinstance(one, DuramenError) or not one.is_empty for one in found.values())
        if waited and (something or not self._left):
            self._answer()
        elif not waited and not self._left:
            there = any(isinstance(one, DuramenError) or not one.is_empty for one in self._found.values())
            if there or not self._limits.wait_ms:
                self._answer()
                return
            for queue, one in self._found.items():
                if not isinstance(one, DuramenError):
                    self._reads[queue] = one.next
            self._ask(self._limits.wait_ms)

    def _answer(self) -> None:
        self.end()
        if self._batches:
            self._done(self._found)
            return
        decoded = {queue: _entries_of(self._found[queue]) for queue in self._reads}
        self._done(_cut_to(decoded, self._reads, self._limits))


def _cut_to(found: Mapping[bytes, Found], reads: Mapping[bytes, Where], limits: ReadLimits) -> Mapping[bytes, Found]:
    """At most as many entries and bytes in all, the first at any size: the rest of a queue is read later."""
    left, room, cut = limits.entries, limits.max_bytes, dict[bytes, Found]()
    for queue, one in found.items():
        if not isinstance(one, Retrieved):
            cut[queue] = one
            continue
        fits, is_first = 0, left == limits.entries
        for entry in one.entries[:left]:
            size = limits.size_of(entry)
            if size > room and left < limits.entries:
                break
            if 0 < limits.json_bytes < size:
                break
            fits, left, room = fits + 1, left - 1, room - size
        if fits == len(one.entries):
            cut[queue] = one
            continue
        if is_first and not fits:
            cut[queue] = too_large(one.entries[0], limits.size_of(one.entries[0]), limits.json_bytes)
            continue
        entries = one.entries[:fits]
        last = entries[-1].position if entries else None
        following = _start(reads[queue]) if last is None else Position(last.leader_epoch, last.offset + 1)
        cut[queue], left = Retrieved(entries, following), 0
    return cut


def _start(where: Where) -> Position:
    return FIRST if isinstance(where, str) else where


# -- at the leader ----------------------------------------------------------------------------------


def answer_queues(local: LocalShards, space: Stream, request: AskQueues, done: Done[Managed]) -> None:
    """Serve a request of another node to a shard led here. Raises RequestInvalid."""
    partition = space.partition(request.partition)
    if request.what == "put":
        local.append(partition, bytearray(request.body), partial(_managed, done))
    elif request.what == "change":
        command: QueueCommand = named_of(_COMMANDS, request.body)
        local.submit(partition, command, partial(_managed, done))
    elif request.what == "settle":
        local.settle(partition, settled_of(request.body), partial(_answer, done, refused_bytes))
    elif request.what == "query":
        query = query_of(request.body)
        local.ask(space, partition.index, query, partial(_answer, done, partial(answer_bytes, query)))
    elif request.what == "wait":
        local.wait(space, partition.index, wait_of(request.body), partial(_answer, done, msgspec.msgpack.encode))
    else:
        wanted, limits = _decoded(request.body, _ReadRequest)
        local.retrieve(
            space, [Read(*one) for one in wanted], limits, partial(_found_managed, done), batches=True
        )  # fmt: skip


# -- messages between nodes ---------------------------------------------------------------------------


def _wanted(what: Any, partition: Partition, body: bytes) -> AskQueues:
    return AskQueues(what, partition.log.key.stream_id.bytes, partition.index, body)


def _decoded(content: Any, type_: Any) -> Any:
    try:
        return msgspec.msgpack.decode(content, type=type_)
    except UNREADABLE as error:
        raise RequestInvalid(f"a request about queues cannot be read: {error}") from None


def _managed(done: Callable[[Any], None], answer: Position | DuramenError) -> None:
    rewritten = rewritten_of(answer)
    if isinstance(answer, DuramenError) and rewritten is None:
        done(answer)
    else:
        position = Position(0, 0) if isinstance(answer, DuramenError) else answer
        done(Managed(msgspec.msgpack.encode((position, rewritten))))


def _answer(done: Callable[[Any], None], encode: Callable[[Any], bytes], answer: Any) -> None:
    done(answer if isinstance(answer, DuramenError) else Managed(encode(answer)))


def _heard(done: QueryDone, decode: Callable[[bytes], Any], outcome: _Outcome) -> None:
    if isinstance(outcome, OSError):
        outcome = StorageFailed(f"reading failed: {outcome}")
    done(outcome if isinstance(outcome, DuramenError) else decode(outcome.content))


def _unread(found: Mapping[bytes, Found]) -> DuramenError | None:
    """The error of queues that were not read because the leader of their shard changed: the read is repeated."""
    errors = (one for one in found.values() if isinstance(one, DuramenError))
    return next((error for error in errors if may_repeat(error, idempotent=True)), None)


def _found_managed(done: Callable[[Any], None], found: Mapping[bytes, Found]) -> None:
    done(_unread(found) or Managed(msgspec.msgpack.encode([_answer_of(one) for one in found.values()])))


def _answer_of(found: Found) -> _Answer:
    if isinstance(found, DuramenError):
        return b"", Position(0, 0), Refused.of(found), rewritten_of(found)
    if isinstance(found, RetrievedBatches):
        return b"".join(found.batches), found.next, None, None
    raise TypeError("queues are read as record batches")


def _found_of(answer: _Answer) -> Found:
    content, following, refused, rewritten = answer
    if refused is not None:
        return rewritten_error(rewritten) or refused.error()
    return RetrievedBatches([content] if content else [], following)


def _read(outcome: _Outcome, type_: Any) -> Any:
    if isinstance(outcome, OSError):
        return StorageFailed(f"reading failed: {outcome}")
    if isinstance(outcome, DuramenError):
        return outcome
    try:
        return msgspec.msgpack.decode(outcome.content, type=type_)
    except UNREADABLE as error:
        return OutcomeUnknown(f"the shard's leader has answered what cannot be read: {error}")


def _entries_of(found: Found) -> Found:
    if not isinstance(found, RetrievedBatches):
        return found
    fields = entry_fields(b"".join(found.batches))
    entries = [
        QueueEntry(parse_position(position), *more) for position, *more in zip(*fields, strict=True)
    ]  # fmt: skip
    return Retrieved(entries, found.next)


def _nothing() -> None:
    """Nothing to cancel."""
