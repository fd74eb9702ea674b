"""Queues with an owner: the bytes of all queues of an owner, and the time of the first entry of each. Pure.

The owner of a queue is a number; for queues of the inventory it is the number of the namespace. A queue may have its
own retention. Then it is in the time index of no owner, by the time at which its first entry is too old.

    w, hash                       uint32 owner, uint64 bytes of its runs and overlays, uint64 entries, int64 time of
                                  the first entry, three int64: the queue's own retention (`OwnRetention`)
    w                             if present, some queue has an owner
    g, uint32 owner               uint64: the bytes of all its queues
    a, uint32 owner, uint64 time, hash   nothing: the time index
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from duramen.base.ports import StateRows
from duramen.queues.names import HASH_BYTES
from duramen.queues.pending_rows import PendingRows
from duramen.queues.reading import entries_from
from duramen.queues.rows import name_key, number_of, queue_end, state_of
from duramen.queues.runs import Run, timestamp_of

__all__ = [
    "NOT_SAID",
    "NO_OWNER",
    "OwnRetention",
    "OwnedQueue",
    "Said",
    "account",
    "aged_queues",
    "any_owners",
    "has_owner",
    "have_owners",
    "is_owned_key",
    "owned_bytes",
    "owned_queue",
    "owned_queues",
    "owner_key",
    "owner_of_key",
    "owners",
    "stored_bytes",
]

NO_OWNER: Final = 0
NOT_SAID: Final = -2
"""The own retention of a queue without one: its owner's applies."""
ENTRY_BYTES: Final = 17
"""The bytes of an entry in a run besides its key, value and headers."""

_RUN_BYTES: Final = 16
_FIELD_BYTES: Final = 4
_NEVER: Final = -1
_HAS_OWNERS: Final = b"w"
_OWNED: Final = struct.Struct(">IQQqqqq")
_U32: Final = struct.Struct(">I")
_U64: Final = struct.Struct(">Q")
_AGE: Final = struct.Struct(">IQ16s")
_COUNT: Final = struct.Struct("<I")
_COUNT_AT: Final = 12  # in a run


def stored_bytes(entries: Iterable[tuple[bytes | None, bytes | None, Sequence[tuple[bytes, bytes | None]]]]) -> int:
    """The bytes of new entries, each a key, a value and headers, in one run."""
    size = _RUN_BYTES
    for key, value, headers in entries:
        size += ENTRY_BYTES + len(value or b"")
        if key is not None:
            size += _FIELD_BYTES + len(key)
        if headers:
            size += _FIELD_BYTES + sum(2 * _FIELD_BYTES + len(name) + len(said or b"") for name, said in headers)
    return size


class OwnRetention(NamedTuple):
    """A queue's own retention: as `Retention`, each NOT_SAID if the owner's applies."""

    ms: int = NOT_SAID
    bytes: int = NOT_SAID
    entries: int = NOT_SAID


Said: TypeAlias = tuple[int, OwnRetention | None]
"""The owner of a queue, and the queue's own retention; None: unchanged."""


class OwnedQueue(NamedTuple):
    """A queue with an owner: the bytes of its rows, its maximum number of entries, and when the first was written.

    `first_ms` is -1 if the queue is empty.
    """

    owner: int
    bytes: int = 0
    entries: int = 0
    first_ms: int = _NEVER
    own: OwnRetention = OwnRetention()


def owned_key(queue: bytes) -> bytes:
    """The key of a queue with an owner."""
    return b"w" + queue


def owner_key(owner: int) -> bytes:
    """The key of an owner's total bytes."""
    return b"g" + _U32.pack(owner)


def owner_of_key(key: bytes) -> int:
    """The owner in a key of totals or of the time index."""
    found: int = _U32.unpack_from(key, 1)[0]
    return found


def is_owned_key(key: bytes) -> bool:
    """Whether it is the key of a queue with an owner."""
    return key[:1] == b"w" and len(key) > 1


def _age_key(queue: bytes, owned: OwnedQueue) -> bytes | None:
    """A queue's key in the time index; None: none of its entries becomes too old."""
    own_ms = owned.own.ms
    if owned.first_ms == _NEVER or own_ms == -1:
        return None
    if own_ms == NOT_SAID:
        return b"a" + _AGE.pack(owned.owner, owned.first_ms, queue)
    return b"a" + _AGE.pack(NO_OWNER, owned.first_ms + own_ms, queue)


def owned_queue(rows: StateRows | PendingRows, queue: bytes) -> OwnedQueue | None:
    """The queue of that hash, if it has an owner."""
    return _read(rows.get(owned_key(queue)))


def has_owner(rows: StateRows, queue: bytes) -> bool:
    """Whether the queue of that hash has an owner."""
    return rows.get(owned_key(queue)) is not None


def any_owners(rows: StateRows) -> bool:
    """Whether some queue may have an owner."""
    return rows.get(_HAS_OWNERS) is not None


def have_owners(rows: StateRows, queues: Iterable[bytes]) -> list[bool]:
    """`has_owner` for many queues."""
    return [value is not None for value in rows.get_many([*map(owned_key, queues)])]


def _read(value: bytes | None) -> OwnedQueue | None:
    if value is None:
        return None
    owner, size, entries, first_ms, *own = _OWNED.unpack(value)
    return OwnedQueue(owner, size, entries, first_ms, OwnRetention(*own))


def _value(owned: OwnedQueue) -> bytes:
    return _OWNED.pack(*owned[:4], *owned.own)


def owned_bytes(rows: StateRows | PendingRows, owner: int) -> int:
    """The bytes of an owner's queues in this shard."""
    return int.from_bytes(rows.get(owner_key(owner)) or b"", "big")


def owners(rows: StateRows, after: int) -> Iterator[tuple[int, int]]:
    """Owners after a number, in order, with the bytes of their queues."""
    for key, value in rows.scan(owner_key(after + 1), b"h"):
        yield owner_of_key(key), int.from_bytes(value, "big")


def owned_queues(rows: StateRows, after: bytes) -> Iterator[tuple[bytes, OwnedQueue]]:
    """Queues with an owner after a hash, in order."""
    for key, value in rows.scan(owned_key(after) + b"\x00", b"x"):
        found = _read(value)
        assert found is not None
        yield key[1:], found


def aged_queues(rows: StateRows, owner: int) -> Iterator[tuple[int, bytes]]:
    """Queues of an owner by the time of their first entries; of NO_OWNER, by the time at which these are due."""
    for key, _ in rows.scan(b"a" + _U32.pack(owner), b"a" + _U32.pack(owner + 1)):
        _, time_ms, queue = _AGE.unpack_from(key, 1)
        yield time_ms, queue


class _Touched:
    """Rows of a queue that a step has changed: the keys of runs and overlays, and whether its state has changed."""

    __slots__ = ("keys", "state")

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.state = False


def account(
    rows: PendingRows, before: StateRows, offset: int, new: Mapping[bytes, int], said: Mapping[bytes, Said]
) -> None:
    """Update the rows of owners after a step's changes of the others.

    `new` are the owners of queues that have none yet, `said` the `own` operations on queues. `before` are the rows
    before the step, which have all before `offset`.
    """
    if not new and not said and rows.get(_HAS_OWNERS) is None:
        return
    totals = dict[int, int]()
    for queue, change in _touched(rows, said).items():
        old = owned_queue(rows, queue)
        found = _accounted(rows, before, offset, queue, change, old, new.get(queue), said.get(queue))
        if found != old:
            _put(rows, queue, old, found)
            for one, sign in ((old, -1), (found, 1)):
                if one is not None:
                    totals[one.owner] = totals.get(one.owner, 0) + sign * one.bytes
    if totals and rows.get(_HAS_OWNERS) is None:
        rows.put(_HAS_OWNERS, b"")
    for owner, more in totals.items():
        if more:
            total = owned_bytes(rows, owner) + more
            rows.put(owner_key(owner), _U64.pack(total) if total else None)


def _touched(rows: PendingRows, said: Iterable[bytes]) -> dict[bytes, _Touched]:
    found = dict[bytes, _Touched]()
    for key in rows.changes:
        kind = key[:1]
        if kind in (b"r", b"o", b"s", b"n"):
            one = found.setdefault(key[1 : 1 + HASH_BYTES], _Touched())
            if kind in (b"r", b"o"):
                one.keys.append(key)
            one.state |= kind == b"s"
    for queue in said:
        found.setdefault(queue, _Touched())
    return found


def _put(rows: PendingRows, queue: bytes, old: OwnedQueue | None, new: OwnedQueue | None) -> None:
    old_age, new_age = (None if one is None else _age_key(queue, one) for one in (old, new))
    if old_age != new_age:
        if old_age is not None:
            rows.put(old_age, None)
        if new_age is not None:
            rows.put(new_age, b"")
    rows.put(owned_key(queue), None if new is None else _value(new))


def _accounted(
    rows: PendingRows, before: StateRows, offset: int, queue: bytes, change: _Touched, old: OwnedQueue | None,
    new: int | None, said: Said | None,
) -> OwnedQueue | None:  # fmt: skip
    """The owned state of a queue after a step; None: it has no owner, or was dropped."""
    if name_key(queue) in rows.changes and rows.get(name_key(queue)) is None:
        return None  # it was dropped, perhaps in the step that made it
    found = old
    if found is None:
        if new is None and (said is None or said[1] is None):
            return None  # its first entry has the owner
        found = OwnedQueue(NO_OWNER if new is None else new)
        if before.get(name_key(queue)) is not None:
            size, entries = _measured(rows, queue)
            change = _Touched()
            found = found._replace(bytes=size, entries=entries, first_ms=_first_ms(rows, queue))
    if change.keys and not change.state and all(_is_new(key, rows, offset) for key in change.keys):
        found = _grown(found, change.keys, rows)
    elif change.keys or change.state:
        size, entries = _difference(rows, before, change.keys)
        found = found._replace(
            bytes=found.bytes + size, entries=found.entries + entries, first_ms=_first_ms(rows, queue)
        )  # fmt: skip
    if said is not None:
        owner, own = said
        found = found._replace(owner=owner, own=found.own if own is None else own)
    return found


def _is_new(key: bytes, rows: PendingRows, offset: int) -> bool:
    """Whether it is the key of a run without entries before an offset."""
    return key[:1] == b"r" and number_of(key) >= offset and rows.changes[key] is not None


def _grown(owned: OwnedQueue, keys: Sequence[bytes], rows: PendingRows) -> OwnedQueue:
    """A queue that has only got new runs."""
    size, entries, first_ms = owned.bytes, owned.entries, owned.first_ms
    for key in keys:
        more = _size(key, rows.changes[key])
        size, entries = size + more[0], entries + more[1]
    if first_ms == _NEVER:
        first = Run(rows.changes[min(keys)] or b"")
        first_ms = max(0, timestamp_of(next(body for _, body in first.bodies() if body)))
    return OwnedQueue(owned.owner, size, entries, first_ms, owned.own)


def _size(key: bytes, value: bytes | None) -> tuple[int, int]:
    """The bytes and the number of entries of a run; an overlay has no entries."""
    if value is None:
        return 0, 0
    return len(value), int(_COUNT.unpack_from(value, _COUNT_AT)[0]) if key[:1] == b"r" else 0


def _difference(rows: PendingRows, before: StateRows, keys: Sequence[bytes]) -> tuple[int, int]:
    """The increase in bytes and entries by changed rows."""
    size, entries = 0, 0
    for key, old in zip(keys, before.get_many(keys), strict=True):
        now, then = _size(key, rows.changes[key]), _size(key, old)
        size, entries = size + now[0] - then[0], entries + now[1] - then[1]
    return size, entries


def _measured(rows: PendingRows, queue: bytes) -> tuple[int, int]:
    found = [
        _size(key, value)
        for kind in (b"r", b"o")
        for key, value in rows.scan(kind + queue, queue_end(kind, queue))
    ]  # fmt: skip
    return sum(size for size, _ in found), sum(entries for _, entries in found)


def _first_ms(rows: PendingRows, queue: bytes) -> int:
    """When the first entry was written; -1 without entries."""
    first = next(entries_from(rows, queue, state_of(rows, queue), 0), None)
    return _NEVER if first is None else max(0, first.timestamp)
