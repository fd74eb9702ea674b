"""Commands on the queues of a shard, and the records that they produce. Pure.

Entries are added without reads. Edits, deletes and replaces are decided on the rows of their queue, one command after
the other, each entirely or not at all.
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

from duramen.base.errors import QueueBatchTooLarge
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.codec.batch import BatchInput
from duramen.queues.leases import LeasedEntry
from duramen.queues.names import HashName, Queue
from duramen.queues.operations import (
    NewEntry,
    Request,
    check_headers,
    delete_record,
    edit_record,
    entry_record,
    own_record,
    queue_record,
    replace_record,
    with_request,
)
from duramen.queues.owners import OwnRetention, owned_queue
from duramen.queues.reading import EntryFinder, Where, resolve_replaced
from duramen.queues.requests import RequestId, digest_of, made_before
from duramen.queues.retention import Retention

__all__ = [
    "MOST_ENTRIES",
    "Ack",
    "Delete",
    "Due",
    "Edit",
    "Empty",
    "Enqueue",
    "Expire",
    "Nack",
    "Own",
    "Queue",
    "QueueCommand",
    "Replace",
    "Trim",
    "check_size",
    "identified",
    "own_records",
    "records_for",
    "repeated",
    "split_leased",
]

MOST_ENTRIES: Final = 10_000
"""The largest number of entries of a command."""

_RECORD_BYTES: Final = 32
_BATCH_BYTES: Final = 61
_OPERATION_BYTES: Final = 96
_REQUEST_BYTES: Final = 64


class Enqueue(NamedTuple):
    """Entries, each for a queue of the shard. Limits of shards do not apply to `moved` ones, of another queue."""

    entries: Sequence[tuple[bytes, NewEntry]]
    request: RequestId | None = None
    moved: bool = False


class Edit(NamedTuple):
    """New values of entries; with a version, only if the entry has it."""

    queue: Queue
    edits: Sequence[tuple[Position, int | None, bytes | None]]
    request: RequestId | None = None


class Delete(NamedTuple):
    """Entries to delete; with a version, only if the entry has it."""

    queue: Queue
    entries: Sequence[tuple[Position, int | None]]
    request: RequestId | None = None


class Replace(NamedTuple):
    """Replace everything from a position on by these entries."""

    queue: Queue
    start: Where
    entries: Sequence[NewEntry]
    by: str = ""
    reason: str = ""
    request: RequestId | None = None


class Empty(NamedTuple):
    """Remove every entry of a queue; with `drop` the queue too."""

    queue: Queue
    kind: Literal["purge", "drop"]
    request: RequestId | None = None


class Ack(NamedTuple):
    """Leased entries that were processed, each of a queue of the shard. See `split_leased` for `whole`."""

    entries: Sequence[tuple[Queue, LeasedEntry]]
    request: RequestId | None = None
    whole: bytes = b""


class Nack(NamedTuple):
    """Leased entries that were not processed: they may be leased again after `delay_ms`. `whole` as of `Ack`."""

    entries: Sequence[tuple[Queue, LeasedEntry]]
    delay_ms: int = 0
    request: RequestId | None = None
    whole: bytes = b""


class Expire(NamedTuple):
    """Expired leases on a queue."""

    queue: Queue


class Due(NamedTuple):
    """End the times in the time index up to now."""


class Trim(NamedTuple):
    """Trim entries of a queue that exceed its retention."""

    queue: Queue
    kept: Retention


class Own(NamedTuple):
    """Set the owner of a queue, and its own retention; None: unchanged."""

    queue: Queue
    owner: int
    own: OwnRetention | None = None


QueueCommand = Enqueue | Edit | Delete | Replace | Empty | Ack | Nack | Expire | Due | Trim | Own
_Decided = Enqueue | Edit | Delete | Replace | Empty
_Identified = _Decided | Ack | Nack


def repeated(command: _Identified, rows: StateRows) -> Position | None:
    """The position of the first record of a repeated command. Raises QueueRequestReused."""
    if command.request is None:
        return None
    return made_before(rows, command.request.hash, digest_of(_content(command)))


def identified(command: _Identified, found: list[BatchInput], now_ms: int) -> list[BatchInput]:
    """The records of a command; with an id, the first has the request id and the digest."""
    if found and command.request is not None:
        digest = digest_of(_content(command))
        found[0] = with_request(found[0], Request(now_ms, len(found), digest, command.request.id))
    return found


def _content(command: _Identified) -> tuple[object, ...]:
    """The content that identifies a command: everything but its id and the timestamps of entries."""
    match command:
        case Enqueue(entries):
            return "enqueue", [(queue, _entry_content(entry)) for queue, entry in entries]
        case Edit(queue, edits):
            return "edit", queue.name, edits
        case Delete(queue, deleted):
            return "delete", queue.name, deleted
        case Replace(queue, start, entries, by, reason):
            return "replace", queue.name, start, by, reason, [_entry_content(entry) for entry in entries]
        case Empty(queue, kind):
            return kind, queue.name
        case Ack(leased, _, whole):
            return "ack", [(queue.name, one) for queue, one in leased], *([whole] if whole else [])
        case Nack(leased, delay_ms, _, whole):
            return "nack", delay_ms, [(queue.name, one) for queue, one in leased], *([whole] if whole else [])


def _entry_content(entry: NewEntry) -> tuple[object, ...]:
    return entry.value, entry.key, entry.headers, entry.delay_ms, entry.ttl_ms


def records_for(command: _Decided, rows: StateRows, now_ms: int) -> list[BatchInput]:
    """The records of a command. Raises like `EntryFinder.check`, or BatchInvalid."""
    return identified(command, _records(command, rows, now_ms), now_ms)


def _records(command: _Decided, rows: StateRows, now_ms: int) -> list[BatchInput]:
    if isinstance(command, Enqueue):
        check_headers(entry for _, entry in command.entries)
        return [entry_record(queue, entry, now_ms) for queue, entry in command.entries]
    queue, hashed = command.queue
    if isinstance(command, Empty):
        return [queue_record(queue, command.kind, now_ms)]
    if isinstance(command, Replace):
        check_headers(command.entries)
        start = resolve_replaced(rows, hashed, command.start)
        first = replace_record(queue, start, command.by, command.reason, now_ms)
        return [first, *(entry_record(queue, entry, now_ms) for entry in command.entries)]
    entries = EntryFinder(rows, hashed, now_ms)
    if isinstance(command, Edit):
        entries.check([(at, version) for at, version, _ in command.edits])
        return [edit_record(queue, at, value, now_ms) for at, _, value in command.edits]
    entries.check(command.entries)
    return [delete_record(queue, at, now_ms) for at, _ in command.entries]


def own_records(command: Own, rows: StateRows, now_ms: int) -> list[BatchInput]:
    """The record of an owner, unless the queue has it: its first entry may not be in the rows yet."""
    name, hashed = command.queue
    found = owned_queue(rows, hashed)
    if found is not None and found.owner == command.owner and command.own in (None, found.own):
        return []
    return [own_record(name, command.owner, command.own, now_ms)]


def split_leased(command: Ack | Nack, max_message_bytes: int, hash_name: HashName) -> list[Ack | Nack]:
    """Commands on the same entries in order, each as large as a batch can be, at least of one entry.

    With a request id they have different ids. The first is of the whole request: it is refused if another request has
    used the id. So the others are executed after it.
    """
    parts, room = list[list[tuple[Queue, LeasedEntry]]](), 0
    for entry in command.entries:
        size = _leased_bytes(entry)
        if size > room or len(parts[-1]) >= MOST_ENTRIES:
            parts.append([])
            room = max_message_bytes - _BATCH_BYTES - _REQUEST_BYTES
        parts[-1].append(entry)
        room -= size
    if len(parts) < 2:
        return [command]
    if command.request is None:
        return [command._replace(entries=part) for part in parts]
    found = [command._replace(entries=parts[0], whole=digest_of(_content(command)))]
    for number, part in enumerate(parts[1:], 1):
        said = command.request.id + b" %d" % number
        found.append(command._replace(entries=part, request=RequestId(said, hash_name(said))))
    return found


def check_size(command: QueueCommand, max_message_bytes: int) -> None:
    """Raise QueueBatchTooLarge if the batch of a command would have too many records or bytes."""
    count, size = _measured(command)
    if count > MOST_ENTRIES:
        raise QueueBatchTooLarge(f"it has {count} entries; a request has {MOST_ENTRIES} at most for a shard")
    if size > max_message_bytes:
        raise QueueBatchTooLarge(
            f"it takes about {size} bytes for a shard; max.message.bytes of the space is {max_message_bytes}"
        )


def _measured(command: QueueCommand) -> tuple[int, int]:
    match command:
        case Enqueue(entries):
            sizes = [len(queue) + _entry_bytes(entry) for queue, entry in entries]
        case Edit((queue, _), edits):
            sizes = [len(queue) + _OPERATION_BYTES + len(value or b"") for _, _, value in edits]
        case Delete((queue, _), deleted):
            sizes = [len(queue) + _OPERATION_BYTES] * len(deleted)
        case Ack(leased) | Nack(leased):
            sizes = list(map(_leased_bytes, leased))
        case Replace((queue, _), _, entries):
            said = len(command.by.encode()) + len(command.reason.encode())
            sizes = [len(queue) + _OPERATION_BYTES + said]
            sizes += [len(queue) + _entry_bytes(entry) for entry in entries]
        case _:
            sizes = [_OPERATION_BYTES]
    return len(sizes), _BATCH_BYTES + _REQUEST_BYTES + sum(sizes)


def _leased_bytes(entry: tuple[Queue, LeasedEntry]) -> int:
    return len(entry[0].name) + _OPERATION_BYTES


def _entry_bytes(entry: NewEntry) -> int:
    headers = sum(10 + len(name) + len(value or b"") for name, value in entry.headers)
    times = _REQUEST_BYTES * (bool(entry.delay_ms) + bool(entry.ttl_ms))
    return _RECORD_BYTES + len(entry.value or b"") + len(entry.key or b"") + headers + times
