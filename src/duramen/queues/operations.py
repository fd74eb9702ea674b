"""The records of a shard's log. Pure.

The key of each is the queue's name. A record without the header `duramen-queue-op` is an entry:

    duramen-queue-key         the key of an entry that has one

Producers may not write these headers:

    duramen-queue-visible     of an entry: when it is shown; of a nack: when the entry may be leased again
    duramen-queue-expires     when an entry expires

    duramen-queue-owner       of the first entry of a queue with an owner, and of `own`: the number of the owner
    duramen-queue-keep        of `own`: MS BYTES ENTRIES, the queue's own retention; -2: the owner's applies

    duramen-queue-op          edit, delete, replace, ack, nack, purge, drop, trim, own or due
    duramen-queue-at          EPOCH.OFFSET: of the entry that is operated on, from which on entries are taken back, or
                              before which a trim removes all
    duramen-queue-by          the client of a replace, if it was given
    duramen-queue-reason      the reason, if it was given
    duramen-queue-deliveries  of a nack: the number of deliveries of the entry
    duramen-queue-since       of `due`, which has no key: the start of its time range
    duramen-queue-until       the end of the time range: entries have expired, delays have ended

    duramen-queue-request     TIME COUNT DIGEST ID on the first record of a request with an id: the time of the leader's
                              decision, the number of its records, and the digest of its content in hexadecimal

The value of an edit is the entry's new value. The new entries of a replace are the entries after it in its batch.
Times are milliseconds since 1970. `purge` removes every entry of a queue, `drop` the queue. `own` changes the owner of
a queue.
"""

from collections.abc import Iterable, Mapping
from typing import Final, Literal, NamedTuple

from duramen.base.errors import BatchInvalid, RequestInvalid
from duramen.base.ids import Position
from duramen.codec.batch import BatchInput, DecodedRecord
from duramen.codec.queue_entries import KEY_HEADER, OWNER_HEADER, RESERVED_PREFIX, reserved_header
from duramen.queues.owners import OwnRetention
from duramen.queues.positions import parse_position

__all__ = [
    "ChangeKind",
    "Headers",
    "Kind",
    "NewEntry",
    "Operation",
    "Request",
    "ack_record",
    "change_of",
    "check_headers",
    "delete_record",
    "due_record",
    "edit_record",
    "entry_owner",
    "entry_parts",
    "entry_record",
    "entry_times",
    "nack_record",
    "operation_of",
    "own_record",
    "queue_record",
    "replace_record",
    "request_of",
    "trim_record",
    "with_request",
]

_OP: Final = RESERVED_PREFIX + b"op"
_AT: Final = RESERVED_PREFIX + b"at"
_KEEP: Final = RESERVED_PREFIX + b"keep"
_BY: Final = RESERVED_PREFIX + b"by"
_REASON: Final = RESERVED_PREFIX + b"reason"
_VISIBLE: Final = RESERVED_PREFIX + b"visible"
_EXPIRES: Final = RESERVED_PREFIX + b"expires"
_DELIVERIES: Final = RESERVED_PREFIX + b"deliveries"
_SINCE: Final = RESERVED_PREFIX + b"since"
_UNTIL: Final = RESERVED_PREFIX + b"until"
_REQUEST: Final = RESERVED_PREFIX + b"request"
_LATEST_MS: Final = (1 << 63) - 1
_LARGEST_OWNER: Final = (1 << 32) - 1

Headers = tuple[tuple[bytes, bytes | None], ...]
Kind = Literal["edit", "delete", "replace", "ack", "nack", "purge", "drop", "trim", "own", "due"]
_KINDS: Final[dict[bytes, Kind]] = {
    b"edit": "edit", b"delete": "delete", b"replace": "replace", b"ack": "ack", b"nack": "nack", b"purge": "purge",
    b"drop": "drop", b"trim": "trim", b"own": "own", b"due": "due",
}  # fmt: skip
ChangeKind = Literal["edit", "delete", "ack"]
_CHANGES: Final[dict[bytes, ChangeKind]] = {b"edit": "edit", b"delete": "delete", b"ack": "ack"}
_PLACELESS: Final[frozenset[Kind]] = frozenset(("purge", "drop", "own", "due"))
_NOWHERE: Final = Position(0, 0)


class NewEntry(NamedTuple):
    """A new entry; without a timestamp it gets its time of arrival.

    It is shown after `delay_ms`, and expires after `ttl_ms`; 0: never.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None
    delay_ms: int = 0
    ttl_ms: int = 0


class Operation(NamedTuple):
    """An operation on existing entries."""

    kind: Kind
    at: Position = _NOWHERE
    by: str = ""
    reason: str = ""
    deliveries: int = 0
    until_ms: int = 0
    """For a nack: when the entry may be leased again; for `due`: up to when."""
    since_ms: int = 0
    owner: int = 0
    own: OwnRetention | None = None


class Request(NamedTuple):
    """A request with an id: the time of its decision, the number of its records, its digest, and the id."""

    time_ms: int
    records: int
    digest: bytes
    id: bytes


def _said(record: DecodedRecord) -> Mapping[bytes, bytes]:
    return {name: value or b"" for name, value in record.headers if name.startswith(RESERVED_PREFIX)}


def operation_of(record: DecodedRecord) -> Operation | None:
    """The operation of a record; None for an entry. Raises ValueError if it is invalid."""
    said = _said(record)
    if _OP not in said:
        return None
    kind = _KINDS.get(said[_OP])
    if kind is None:
        raise ValueError(f"an operation {said[_OP]!r} is not known")
    try:
        at = _NOWHERE if kind in _PLACELESS else parse_position(said.get(_AT, b"").decode())
    except RequestInvalid as error:
        raise ValueError(str(error)) from None
    until_ms = _time(said, _UNTIL if kind == "due" else _VISIBLE)
    deliveries = min(_time(said, _DELIVERIES), (1 << 32) - 1)
    by, reason = said.get(_BY, b"").decode(), said.get(_REASON, b"").decode()
    if kind == "own":
        return Operation(kind, owner=_owner(said.get(OWNER_HEADER)) or 0, own=_own_retention(said.get(_KEEP)))
    return Operation(kind, at, by, reason, deliveries, until_ms, _time(said, _SINCE))


def change_of(record: DecodedRecord) -> tuple[ChangeKind, int] | None:
    """The operation on an entry, and the entry's offset, of a record that says nothing else; None for others."""
    if len(record.headers) != 2:
        return None
    (op, kind), (at, text) = record.headers
    change = _CHANGES.get(kind or b"")
    if change is None or op != _OP or at != _AT:
        return None
    try:
        return change, parse_position((text or b"").decode()).offset
    except (RequestInvalid, UnicodeDecodeError):
        return None


def _owner(value: bytes | None) -> int | None:
    if value is None:
        return None
    owner = int(value)
    if not 0 < owner <= _LARGEST_OWNER:
        raise ValueError(f"{owner} is out of range")
    return owner


def _own_retention(value: bytes | None) -> OwnRetention | None:
    if value is None:
        return None
    kept = OwnRetention(*map(int, value.split()))
    if any(not -2 <= one <= _LATEST_MS for one in kept):
        raise ValueError(f"{value[:80]!r} is out of range")
    return kept


def _time(said: Mapping[bytes, bytes], name: bytes) -> int:
    found = int(said.get(name, b"0"))
    if not 0 <= found <= _LATEST_MS:
        raise ValueError(f"{found} is out of range")
    return found


def request_of(record: DecodedRecord) -> Request | None:
    """The request whose first record this is, if it has an id. Raises ValueError."""
    found = _said(record).get(_REQUEST)
    if found is None:
        return None
    time_ms, count, digest, request = found.split(b" ", 3)
    return Request(int(time_ms), int(count), bytes.fromhex(digest.decode()), request)


def entry_parts(record: DecodedRecord) -> tuple[bytes | None, Headers]:
    """The key of an entry, and its headers."""
    key = next((value for name, value in record.headers if name == KEY_HEADER), None)
    return key, tuple(one for one in record.headers if not one[0].startswith(RESERVED_PREFIX))


def entry_owner(record: DecodedRecord) -> int | None:
    """The owner of the entry's queue, if the record has one. Raises ValueError."""
    return _owner(next((value for name, value in record.headers if name == OWNER_HEADER), None))


def entry_times(record: DecodedRecord) -> tuple[int, int]:
    """When an entry is shown and when it expires; 0: at once, and never. Raises ValueError."""
    said = _said(record)
    return _time(said, _VISIBLE), _time(said, _EXPIRES)


def check_headers(entries: Iterable[NewEntry]) -> None:
    """Raise BatchInvalid if an entry has a header that is reserved for operations."""
    for entry in entries:
        problem = reserved_header(entry.headers)
        if problem:
            raise BatchInvalid(f"{problem}: entries have no headers that begin with {RESERVED_PREFIX.decode()}")


def entry_record(queue: bytes, entry: NewEntry, now_ms: int) -> BatchInput:
    """The record of an entry."""
    headers = entry.headers if entry.key is None else ((KEY_HEADER, entry.key), *entry.headers)
    if entry.delay_ms:
        headers = ((_VISIBLE, b"%d" % (now_ms + entry.delay_ms)), *headers)
    if entry.ttl_ms:
        headers = ((_EXPIRES, b"%d" % (now_ms + entry.ttl_ms)), *headers)
    return BatchInput(now_ms if entry.timestamp is None else entry.timestamp, queue, entry.value, headers)


def with_request(record: BatchInput, request: Request) -> BatchInput:
    """The first record of a request with an id."""
    said = b"%d %d %s " % (request.time_ms, request.records, request.digest.hex().encode())
    return record._replace(headers=((_REQUEST, said + request.id), *record.headers))


def _headers(kind: bytes, at: Position, *more: tuple[bytes, bytes]) -> Headers:
    return ((_OP, kind), (_AT, b"%d.%d" % at), *more)


def edit_record(queue: bytes, at: Position, value: bytes | None, now_ms: int) -> BatchInput:
    """Change the value of an entry."""
    return BatchInput(now_ms, queue, value, _headers(b"edit", at))


def delete_record(queue: bytes, at: Position, now_ms: int) -> BatchInput:
    """Delete an entry."""
    return BatchInput(now_ms, queue, None, _headers(b"delete", at))


def ack_record(queue: bytes, at: Position, now_ms: int) -> BatchInput:
    """Remove a processed entry."""
    return BatchInput(now_ms, queue, None, _headers(b"ack", at))


def nack_record(queue: bytes, at: Position, deliveries: int, visible_ms: int, now_ms: int) -> BatchInput:
    """Return an unprocessed entry, with its number of deliveries, and when it may be leased again."""
    more = (_DELIVERIES, b"%d" % deliveries), (_VISIBLE, b"%d" % visible_ms)
    return BatchInput(now_ms, queue, None, _headers(b"nack", at, *more))


def replace_record(queue: bytes, at: Position, by: str, reason: str, now_ms: int) -> BatchInput:
    """Remove the entries from a position on."""
    said = [(name, text.encode()) for name, text in ((_BY, by), (_REASON, reason)) if text]
    return BatchInput(now_ms, queue, None, _headers(b"replace", at, *said))


def queue_record(queue: bytes, kind: Literal["purge", "drop"], now_ms: int) -> BatchInput:
    """Remove all entries of a queue; with `drop` its name too."""
    return BatchInput(now_ms, queue, None, ((_OP, kind.encode()),))


def trim_record(queue: bytes, at: Position, now_ms: int) -> BatchInput:
    """Remove the entries of a queue before a position, which exceed its retention."""
    return BatchInput(now_ms, queue, None, _headers(b"trim", at))


def own_record(queue: bytes, owner: int, own: OwnRetention | None, now_ms: int) -> BatchInput:
    """Set the owner of a queue, and its own retention; None: unchanged."""
    said = ((_OP, b"own"), (OWNER_HEADER, b"%d" % owner))
    return BatchInput(now_ms, queue, None, said if own is None else (*said, (_KEEP, b"%d %d %d" % own)))


def due_record(since_ms: int, until_ms: int, now_ms: int) -> BatchInput:
    """Remove entries of the shard that expire in that period, and end delays that end in it."""
    times = (_SINCE, b"%d" % since_ms), (_UNTIL, b"%d" % until_ms)
    return BatchInput(now_ms, None, None, ((_OP, b"due"), *times))
