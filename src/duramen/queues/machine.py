"""Commands on the queues of a shard, and the records that they come to. Pure.

Entries are put in blindly. What edits, deletes or replaces is decided on the rows of its queue, one command after the
other, all of it or nothing.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from duramen.base.errors import QueueBatchTooLarge, QueueVersionStale
from duramen.base.ids import Position
from duramen.base.ports import StateRows
from duramen.codec.batch import BatchInput
from duramen.queues.operations import NewEntry, delete_record, edit_record, entry_record, replace_record
from duramen.queues.positions import position_text
from duramen.queues.reading import EntryFinder, Where, resolve_start
from duramen.queues.rows import Queue, state_of

__all__ = ["MOST_ENTRIES", "Delete", "Edit", "Enqueue", "Queue", "QueueCommand", "Replace", "check_size", "records_for"]

MOST_ENTRIES: Final = 10_000
"""What a command may have."""

_RECORD_BYTES: Final = 32
_BATCH_BYTES: Final = 61
_OPERATION_BYTES: Final = 96


class Enqueue(NamedTuple):
    """Entries, each for a queue of the shard."""

    entries: Sequence[tuple[bytes, NewEntry]]


class Edit(NamedTuple):
    """New values of entries; with a version, only where the entry has it."""

    queue: Queue
    edits: Sequence[tuple[Position, int | None, bytes | None]]


class Delete(NamedTuple):
    """Entries that are to go; with a version, only where the entry has it."""

    queue: Queue
    entries: Sequence[tuple[Position, int | None]]


class Replace(NamedTuple):
    """Everything from a position on is taken back, and these entries come in its place."""

    queue: Queue
    start: Where
    entries: Sequence[NewEntry]
    by: str = ""
    reason: str = ""


QueueCommand = Enqueue | Edit | Delete | Replace


def records_for(command: QueueCommand, rows: StateRows, now_ms: int) -> list[BatchInput]:
    """The records of a command. Raises as `EntryFinder.find`, or QueueVersionStale."""
    if isinstance(command, Enqueue):
        return [entry_record(queue, entry, now_ms) for queue, entry in command.entries]
    queue, hashed = command.queue
    if isinstance(command, Replace):
        start = resolve_start(rows, state_of(rows, hashed), command.start)
        first = replace_record(queue, start, command.by, command.reason, now_ms)
        return [first, *(entry_record(queue, entry, now_ms) for entry in command.entries)]
    entries = EntryFinder(rows, hashed)
    if isinstance(command, Edit):
        for at, version, _ in command.edits:
            _check(entries, at, version)
        return [edit_record(queue, at, value, now_ms) for at, _, value in command.edits]
    for at, version in command.entries:
        _check(entries, at, version)
    return [delete_record(queue, at, now_ms) for at, _ in command.entries]


def _check(entries: EntryFinder, at: Position, version: int | None) -> None:
    """Raise unless there is an entry, and it has that version where one is given."""
    entry = entries.find(at)
    if version not in (None, entry.version):
        raise QueueVersionStale(f"the entry at {position_text(at)} has the version {entry.version}, not {version}")


def check_size(command: QueueCommand, max_message_bytes: int) -> None:
    """Raise QueueBatchTooLarge where the batch of a command would have too many records or bytes."""
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
        case _:
            queue, said = command.queue.name, len(command.by.encode()) + len(command.reason.encode())
            sizes = [len(queue) + _OPERATION_BYTES + said]
            sizes += [len(queue) + _entry_bytes(entry) for entry in command.entries]
    return len(sizes), _BATCH_BYTES + sum(sizes)


def _entry_bytes(entry: NewEntry) -> int:
    headers = sum(10 + len(name) + len(value or b"") for name, value in entry.headers)
    return _RECORD_BYTES + len(entry.value or b"") + len(entry.key or b"") + headers
