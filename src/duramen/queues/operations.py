"""What the records of a shard's log say. Pure.

The key of each is the queue's name. A record without the header `duramen-queue-op` is an entry:

    duramen-queue-key     the key of an entry that has one

Producers may not write these headers:

    duramen-queue-op      edit, delete or replace
    duramen-queue-at      EPOCH.OFFSET: of the entry that is edited or deleted, or from which on entries are taken back
    duramen-queue-by      who replaced, where that was said
    duramen-queue-reason  why, where that was said

The value of an edit is the entry's new value. The entries that a replace puts in the place of others are the entries
behind it in its batch.
"""

from typing import Final, Literal, NamedTuple

from duramen.base.errors import RequestInvalid
from duramen.base.ids import Position
from duramen.codec.batch import BatchInput, DecodedRecord
from duramen.codec.queue_entries import KEY_HEADER, RESERVED_PREFIX
from duramen.queues.positions import parse_position, position_text

__all__ = [
    "Headers",
    "NewEntry",
    "Operation",
    "delete_record",
    "edit_record",
    "entry_parts",
    "entry_record",
    "operation_of",
    "replace_record",
]

_OP: Final = RESERVED_PREFIX + b"op"
_AT: Final = RESERVED_PREFIX + b"at"
_BY: Final = RESERVED_PREFIX + b"by"
_REASON: Final = RESERVED_PREFIX + b"reason"

Headers = tuple[tuple[bytes, bytes | None], ...]
Kind = Literal["edit", "delete", "replace"]
_KINDS: Final[dict[bytes, Kind]] = {b"edit": "edit", b"delete": "delete", b"replace": "replace"}


class NewEntry(NamedTuple):
    """An entry that is to be put into a queue; without a timestamp it gets the time at which it comes."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None


class Operation(NamedTuple):
    """An operation on entries that are there already."""

    kind: Kind
    at: Position
    by: str = ""
    reason: str = ""


def operation_of(record: DecodedRecord) -> Operation | None:
    """What a record does to entries before it; None where it is an entry. Raises ValueError where it says neither."""
    said = {name: value or b"" for name, value in record.headers if name.startswith(RESERVED_PREFIX)}
    if _OP not in said:
        return None
    kind = _KINDS.get(said[_OP])
    if kind is None:
        raise ValueError(f"an operation {said[_OP]!r} is not known")
    try:
        at = parse_position(said.get(_AT, b"").decode())
    except RequestInvalid as error:
        raise ValueError(str(error)) from None
    return Operation(kind, at, said.get(_BY, b"").decode(), said.get(_REASON, b"").decode())


def entry_parts(record: DecodedRecord) -> tuple[bytes | None, Headers]:
    """The key of an entry, and its headers."""
    key = next((value for name, value in record.headers if name == KEY_HEADER), None)
    return key, tuple(one for one in record.headers if not one[0].startswith(RESERVED_PREFIX))


def entry_record(queue: bytes, entry: NewEntry, now_ms: int) -> BatchInput:
    """An entry."""
    headers = entry.headers if entry.key is None else ((KEY_HEADER, entry.key), *entry.headers)
    return BatchInput(now_ms if entry.timestamp is None else entry.timestamp, queue, entry.value, headers)


def _headers(kind: bytes, at: Position, *more: tuple[bytes, bytes]) -> Headers:
    return ((_OP, kind), (_AT, position_text(at).encode()), *more)


def edit_record(queue: bytes, at: Position, value: bytes | None, now_ms: int) -> BatchInput:
    """An entry has another value from here on."""
    return BatchInput(now_ms, queue, value, _headers(b"edit", at))


def delete_record(queue: bytes, at: Position, now_ms: int) -> BatchInput:
    """An entry is gone from here on."""
    return BatchInput(now_ms, queue, None, _headers(b"delete", at))


def replace_record(queue: bytes, at: Position, by: str, reason: str, now_ms: int) -> BatchInput:
    """The entries from a position on are taken back."""
    said = [(name, text.encode()) for name, text in ((_BY, by), (_REASON, reason)) if text]
    return BatchInput(now_ms, queue, None, _headers(b"replace", at, *said))
