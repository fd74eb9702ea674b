"""A shard of a queue space: its state is rows; requests that wait for entries are in memory."""

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Final, NamedTuple

from duramen.base.catalogue.queues import QUEUES, SHARD_MAX_BYTES, SHARD_MAX_ENTRIES
from duramen.base.errors import DuramenError, QueueSpaceFull
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.broker.batch_checks import StreamRules
from duramen.broker.partition import Partition
from duramen.codec.batch import BatchInput, DecodedRecord
from duramen.coordinators.runtime.shard import BatchRowKind, CoordinatorShard, Decision, ShardKind
from duramen.metadata.state import StreamState
from duramen.queues.answers import entry_size
from duramen.queues.changes import changes
from duramen.queues.leases import ShardLeases
from duramen.queues.leftovers import LeftoverSweep
from duramen.queues.machine import (
    Ack,
    Due,
    Enqueue,
    Expire,
    Nack,
    Own,
    QueueCommand,
    Trim,
    identified,
    own_records,
    records_for,
    repeated,
)
from duramen.queues.names import HashName, Queue, hash_by
from duramen.queues.operations import due_record, trim_record
from duramen.queues.owned_sweep import OwnedSweep
from duramen.queues.retention import RetentionCounts, RetentionSweep
from duramen.queues.rows import due_entries, due_of, is_due_key, name_key, state_key
from duramen.queues.totals import NOTHING, ShardTotals, totals_of
from duramen.queues.usage import OwnerChanges

__all__ = ["QueueOutcome", "QueueShard", "hash_of", "queue_kind"]

_SPACES: Final = 1000
_MOST_DUE: Final = 1000
_AGAIN_MS: Final = 1000
_LATE_MS: Final = 60_000
"""The largest delay of a row of the time index at its write: scans of the index go back by this period."""
_FOREVER_MS: Final = (1 << 62) - 1
_DUE: Final = "due"


_hash_by = lru_cache(_SPACES)(hash_by)


def hash_of(space: StreamRules | StreamState) -> HashName:
    """The hash of the names of a space's queues."""
    return _hash_by(space.hash_key)


class QueueOutcome(NamedTuple):
    """The outcome of a command: the place of its first record if it is a duplicate, and its refused parts."""

    made_before: Position | None = None
    refused: Mapping[int, DuramenError] = {}


class QueueShard(CoordinatorShard[QueueCommand]):
    """Puts do not take turns; commands that change other entries of a queue run one after the other.

    Requests with the same id take turns too. Memory has leases, waiting requests, and the sizes of bounded queues.
    """

    def __init__(self) -> None:
        self.leases = ShardLeases()
        self.counts = RetentionCounts()
        self.sweep = RetentionSweep()
        self.owned = OwnedSweep()
        self.leftovers = LeftoverSweep()
        self.usage = OwnerChanges()
        self._totals: ShardTotals | None = None
        self._partition: Partition | None = None
        self._waiting: dict[bytes, dict[int, Callable[[], None]]] = {}  # by row: the name's, the state's
        self._numbers = 0
        self._due_ms: int | None = None  # the next time in the time index
        self._due_since_ms = 0  # the index has no older times, but for late ones
        self._due_until_ms = 0  # the newest time that a decision has ended
        self._due_first: bytes | None = None  # the first row that it removes once it is stored
        self._due_again_ms = 0  # not before, if the shard is loaded again because a decision was not stored

    def keys_of(self, command: QueueCommand) -> Collection[Hashable]:
        request = (
            () if isinstance(command, Expire | Due | Trim | Own) or command.request is None else (command.request,)
        )
        match command:
            case Enqueue():
                return request
            case Due():
                return (_DUE,)
            case Ack(entries) | Nack(entries):
                return {*(queue.hash for queue, _ in entries), *request}
            case _:
                return (command.queue.hash, *request)

    def decide(self, command: QueueCommand, rows: StateRows, now_ms: int) -> Decision:
        if now_ms < self._due_until_ms:  # the clock was set back
            self._due_since_ms, self._due_until_ms, self._due_again_ms = min(self._due_since_ms, now_ms), now_ms, 0
        if isinstance(command, Due):
            return Decision((), QueueOutcome(), self._decide_due(rows, now_ms))
        for queue in _queues(command):
            self.leases.turn(queue.hash)
            self.counts.turn(queue.hash)
        if isinstance(command, Trim):
            at = self.counts.trim(rows, command.queue.hash, command.kept, now_ms)
            return Decision((), QueueOutcome(), [] if at is None else [trim_record(command.queue.name, at, now_ms)])
        if isinstance(command, Own):
            return Decision((), QueueOutcome(), own_records(command, rows, now_ms))
        if isinstance(command, Expire):
            return Decision((), QueueOutcome(), self.leases.expire(rows, command.queue, now_ms))
        if isinstance(command, Ack | Nack):
            return self._decide_leased(command, rows, now_ms)
        before = repeated(command, rows)
        if before is not None:
            return Decision((), QueueOutcome(before))
        if isinstance(command, Enqueue) and not command.moved:
            refusal = self.refusal(rows, len(command.entries))
            if refusal is not None:
                raise refusal
        inputs = records_for(command, rows, now_ms)
        return Decision((), QueueOutcome(), inputs, over=self._accept(command))

    def _accept(self, command: QueueCommand) -> Callable[[], None] | None:
        """Count entries towards the limits of the shard until the rows have them."""
        state = None if self._partition is None else self._partition.state
        if not isinstance(command, Enqueue) or state is None:
            return None
        return state.accept(len(command.entries), sum(entry_size(entry) for _, entry in command.entries))

    def _decide_leased(self, command: Ack | Nack, rows: StateRows, now_ms: int) -> Decision:
        again = repeated(command, rows) is not None
        if isinstance(command, Ack):
            records, refused = self.leases.ack(rows, command.entries, now_ms, again=again)
        else:
            records, refused = self.leases.nack(rows, command.entries, command.delay_ms, now_ms, again=again)
        return Decision((), QueueOutcome(refused=refused), identified(command, records, now_ms))

    def apply(self, record: DecodedRecord) -> None:
        raise AssertionError(record)

    def loaded(self, rows: StateRows) -> Iterator[None]:
        self.leases.loaded()
        self.counts, self.owned, self.leftovers = RetentionCounts(), OwnedSweep(), LeftoverSweep()
        self.usage.load(rows)
        self._totals = totals_of(rows)
        first = next(due_entries(rows, 0, _FOREVER_MS), None)
        self._due_since_ms, self._due_until_ms, self._due_first = 0, 0, None
        self._due_ms = None if first is None else max(first[1].time_ms, self._due_again_ms)
        return iter(())

    # -- limits -------------------------------------------------------------------------------------

    def led(self, partition: Partition, rows: StateRows) -> None:
        """Become the shard of a partition with these rows."""
        self._partition = partition
        if partition.state is not None:
            partition.state.refusal = partial(self.refusal, rows)

    def totals(self, rows: StateRows) -> ShardTotals | None:
        """The number of all entries and their bytes; None before the first step since an older version."""
        if self._totals is None:
            self._totals = totals_of(rows)
        return self._totals

    def known_totals(self, rows: StateRows) -> ShardTotals | None:
        """As `totals`; None while the rows cannot be read."""
        try:
            return self.totals(rows)
        except DuramenError:
            return None

    def refusal(self, rows: StateRows, entries: int) -> QueueSpaceFull | None:
        """The error for this many new entries, if a limit of the shard forbids them."""
        partition = self._partition
        most, most_bytes = (-1, -1) if partition is None else partition.stream.shard_limits
        if partition is None or (most < 0 and most_bytes < 0):
            return None
        totals, state = self.known_totals(rows) or NOTHING, partition.state
        count, size = totals.entries, totals.bytes
        if state is not None:  # many batches and commands come before the first of them is applied
            count, size = count + state.accepted_records, size + state.accepted_bytes
        if 0 <= most < count + entries:
            said = f"{count} entries; {entries} more would exceed its limit of {most} ({SHARD_MAX_ENTRIES})"
        elif 0 <= most_bytes <= size:
            said = f"{size} bytes, and its limit is {most_bytes} ({SHARD_MAX_BYTES})"
        else:
            return None
        return QueueSpaceFull(f"shard {partition.index} of the queue space {partition.stream.name} has {said}")

    # -- time ---------------------------------------------------------------------------------------

    def next_ms(self) -> int | None:
        return min((at_ms for at_ms in (self.leases.next_ms, self._due_ms) if at_ms is not None), default=None)

    def due(self, now_ms: int) -> Iterable[QueueCommand]:
        found: list[QueueCommand] = [Expire(queue) for queue in self.leases.overdue(now_ms)]
        if self._due_ms is not None and self._due_ms <= now_ms:
            self._due_ms = self._due_again_ms = now_ms + _AGAIN_MS  # for a failed write
            found.append(Due())
        return found

    def _decide_due(self, rows: StateRows, now_ms: int) -> list[BatchInput]:
        """The command that ends all times up to a moment; up to some of them if there are many."""
        first, self._due_first = self._due_first, None
        if first is not None and rows.get(first) is None:
            self._due_since_ms = self._due_until_ms  # the decision before was stored
        since_ms, until_ms, count = max(0, self._due_since_ms - _LATE_MS), -1, 0
        for key, entry in due_entries(rows, since_ms, _FOREVER_MS):
            if entry.time_ms > now_ms or (count >= _MOST_DUE and entry.time_ms > until_ms):
                self._due_ms = max(entry.time_ms, now_ms + 1)
                break
            self._due_first = self._due_first or key
            until_ms, count = entry.time_ms, count + 1
        else:
            self._due_ms = None
        if not count:
            return []
        self._due_until_ms = until_ms
        self._due_ms = min(self._due_ms or _FOREVER_MS, now_ms + _AGAIN_MS)
        return [due_record(since_ms, until_ms, now_ms)]

    # -- waiting ------------------------------------------------------------------------------------

    def wait(self, queue: bytes, action: Callable[[], None]) -> Callable[[], None]:
        """Call `action` once, when an entry is put into a queue or returned to it; the result cancels this."""
        self._numbers += 1
        number, keys = self._numbers, (name_key(queue), state_key(queue))
        for key in keys:
            self._waiting.setdefault(key, {})[number] = action

        def leave() -> None:
            for key in keys:
                others = self._waiting.get(key)
                if others is not None and others.pop(number, None) is not None and not others:
                    del self._waiting[key]

        return leave

    def changed(self, keys: Collection[bytes]) -> None:
        """Rows were written: apply the decisions that made them, and call the requests that wait for one of them."""
        self.counts.written(keys)
        self.sweep.put()
        self.owned.written(keys)
        self.leftovers.written(keys)
        self.usage.written(keys)
        self._totals = None
        released = self.leases.written(keys)
        for time_ms, queue, offset, _ in [due_of(key) for key in keys if is_due_key(key)]:
            self.leases.due(queue, offset)
            released.append(queue)
            if time_ms > self._due_until_ms:
                self._due_ms = time_ms if self._due_ms is None else min(self._due_ms, time_ms)
        self._wake(keys)
        self._wake([name_key(queue) for queue in released])

    def _wake(self, keys: Collection[bytes]) -> None:
        fewer, more = (keys, self._waiting) if len(keys) < len(self._waiting) else (self._waiting, keys)
        for key in [key for key in fewer if key in more]:
            for action in list(self._waiting.get(key, {}).values()):
                action()


def _queues(command: QueueCommand) -> Iterable[Queue]:
    match command:
        case Enqueue() | Due():
            return ()
        case Ack(entries) | Nack(entries):
            return {queue for queue, _ in entries}
        case _:
            return (command.queue,)


def _changes(
    partition: Partition, found: Sequence[bytes], offset: int, rows: StateRows
) -> Mapping[bytes, bytes | None]:
    return changes(found, offset, rows, hash_of(partition.stream))


def _keep_ms(partition: Partition) -> int:
    return partition.stream.log_retention_ms


def _make(_: int) -> CoordinatorShard[QueueCommand]:
    return QueueShard()


def queue_kind(checkpoint_records: int = 100_000) -> ShardKind[QueueCommand]:
    """The shard kind of all queue spaces."""
    rows = BatchRowKind(_changes, QueueShard.changed, _keep_ms, checkpoint_records, led=QueueShard.led)
    return ShardKind("", _make, rows, stream_kind=QUEUES)
