"""Records of `__consumer_offsets` as rows: the effect of a batch on them, and how they are read. Pure.

    0x06, group, topic, int32 partition     value of the offset's record
    0x07, group                             value of the classic group's record
    0x08, group, key of the record          value of a record of a group of another kind
    0x09, row                               what open transactions commit of that row, for each producer: int64
                                            producer id, int64 offset, int32 length (-1: a tombstone), value
    0x0a, int64 producer id, row            nothing: the open transaction of that producer commits the row

Strings have a uint16 length. When a transaction commits, its pending values become the rows; when it aborts, they are
removed. Of two records of a key the later one in the log applies, whichever transaction ends first: compaction keeps
the same one.
"""

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from duramen.base.errors import BatchCorrupt, DuramenError
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.codec.markers import COMMIT
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    OtherKey,
    decode_group,
    decode_key,
    decode_offset,
)
from duramen.groups.values import GroupSnapshot

__all__ = ["Key", "OffsetRows", "changes", "changes_outside", "row_key"]

Key = OffsetKey | GroupKey | OtherKey
Lost = Callable[[int, int, DuramenError], None]
"""Called with the first and the last offset of unreadable records, and the reason."""

_OFFSET_ROW: Final = b"\x06"
_GROUP_ROW: Final = b"\x07"
_OTHER_ROW: Final = b"\x08"
_HELD_ROW: Final = b"\x09"
_HOLDER_ROW: Final = b"\x0a"
_NEXT: Final = {_OFFSET_ROW: _GROUP_ROW, _GROUP_ROW: _OTHER_ROW, _OTHER_ROW: _HELD_ROW}
_LENGTH: Final = struct.Struct(">H")
_PARTITION: Final = struct.Struct(">i")
_PRODUCER: Final = struct.Struct(">q")
_HELD: Final = struct.Struct(">qqi")
_TOMBSTONE: Final = -1


@lru_cache(maxsize=1 << 12)
def _part(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def row_key(key: Key) -> bytes:
    """The row of a record key."""
    if isinstance(key, OffsetKey):
        return _OFFSET_ROW + _part(key.group) + _part(key.topic) + _PARTITION.pack(key.partition)
    if isinstance(key, OtherKey):
        return _OTHER_ROW + _part(key.group) + key.record_key
    return _GROUP_ROW + _part(key.group)


def _group_of(row: bytes) -> tuple[str, int]:
    """The group that a row names, and the end of its name."""
    (length,) = _LENGTH.unpack_from(row, 1)
    end = 1 + _LENGTH.size + length
    return row[1 + _LENGTH.size : end].decode(), end


def _offset_key(row: bytes) -> OffsetKey:
    group, group_end = _group_of(row)
    (topic_length,) = _LENGTH.unpack_from(row, group_end)
    topic_end = group_end + _LENGTH.size + topic_length
    (partition,) = _PARTITION.unpack_from(row, topic_end)
    return OffsetKey(group, row[group_end + _LENGTH.size : topic_end].decode(), partition)


def _after(prefix: bytes) -> bytes:
    """The first key after all that start with `prefix`, which must not start with 255."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))


# -- from records to rows -----------------------------------------------------------------------------


class _Held(NamedTuple):
    """A pending change of a row in a producer's open transaction; `offset` is the offset of the record in its log."""

    producer_id: int
    offset: int
    value: bytes | None


def _decode_held(found: bytes | None) -> list[_Held]:
    held, position = list[_Held](), 0
    while found is not None and position < len(found):
        producer_id, offset, length = _HELD.unpack_from(found, position)
        position += _HELD.size
        end = position + max(length, 0)
        held.append(_Held(producer_id, offset, None if length == _TOMBSTONE else found[position:end]))
        position = end
    return held


def _encode_held(held: Iterable[_Held]) -> bytes:
    parts = list[bytes]()
    for producer_id, offset, value in held:
        parts += (_HELD.pack(producer_id, offset, _TOMBSTONE if value is None else len(value)), value or b"")
    return b"".join(parts)


class _Changing:
    """Rows with pending changes on top."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows
        self.changes: dict[bytes, bytes | None] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.changes[key] if key in self.changes else self._rows.get(key)

    def keys(self, prefix: bytes) -> list[bytes]:
        """Every key that starts with `prefix`, in order."""
        end = _after(prefix)
        found = {key for key, _ in self._rows.scan(prefix, end)}
        found |= {key for key in self.changes if prefix <= key < end}
        return sorted(key for key in found if self.get(key) is not None)

    # -- transactions -------------------------------------------------------------------------------

    def _keep(self, row: bytes, held: list[_Held]) -> None:
        self.changes[_HELD_ROW + row] = _encode_held(held) if held else None

    def _forget(self, row: bytes, gone: Iterable[_Held]) -> None:
        for one in gone:
            self.changes[_holder(one.producer_id) + row] = None

    def hold(self, producer_id: int, offset: int, row: bytes, value: bytes | None) -> None:
        """Add a record of an open transaction."""
        held = [one for one in _decode_held(self.get(_HELD_ROW + row)) if one.producer_id != producer_id]
        self._keep(row, [*held, _Held(producer_id, offset, value)])
        self.changes[_holder(producer_id) + row] = b""

    def put(self, row: bytes, value: bytes | None) -> None:
        """Apply a record outside of transactions; it overrides earlier pending values of its row."""
        self.changes[row] = value
        found = self.get(_HELD_ROW + row)
        if found is not None:
            self._forget(row, _decode_held(found))
            self._keep(row, [])

    def end(self, producer_id: int, *, commit: bool) -> None:
        """Apply the pending values of a transaction, or discard them."""
        holder = _holder(producer_id)
        for key in self.keys(holder):
            row = key[len(holder) :]
            held = _decode_held(self.get(_HELD_ROW + row))
            own = next(one for one in held if one.producer_id == producer_id)
            # Pending values of records before this one are obsolete.
            gone = [one for one in held if one is own or (commit and one.offset < own.offset)]
            if commit:
                self.changes[row] = own.value
            self._forget(row, gone)
            self._keep(row, [one for one in held if one not in gone])


def _holder(producer_id: int) -> bytes:
    return _HOLDER_ROW + _PRODUCER.pack(producer_id)


@lru_cache(maxsize=1 << 12)
def _row_of_key(record_key: bytes) -> tuple[type[Key], bytes] | None:
    """The type of a record's key, and its row; None for a later version. Raises BatchCorrupt."""
    key = decode_key(record_key)
    return None if key is None else (type(key), row_key(key))


def _row_of(record: DecodedRecord) -> bytes | None:
    """The row of a record; None for a later version. Raises BatchCorrupt."""
    found = None if record.key is None else _row_of_key(record.key)
    if found is None:
        return None
    kind, row = found
    if record.value is not None and kind is OffsetKey:
        decode_offset(record.value)
    elif record.value is not None and kind is GroupKey:
        decode_group(record.value)
    return row


def changes(batches: Iterable[CommittedBatch], rows: StateRows, lost: Lost) -> Mapping[bytes, bytes | None]:
    """The changes of rows by committed batches, in log order; None removes a row."""
    changing = _Changing(rows)
    for batch in batches:
        if batch.marker is not None:
            changing.end(batch.producer_id, commit=batch.marker == COMMIT)
        for record in batch.records:
            try:
                row = _row_of(record)
            except BatchCorrupt as error:
                lost(record.offset, record.offset, error)
                continue
            if row is not None and batch.transactional:
                changing.hold(batch.producer_id, record.offset, row, record.value)
            elif row is not None:
                changing.put(row, record.value)
    return changing.changes


def changes_outside(found: Sequence[DecodedRecord], rows: StateRows) -> Mapping[bytes, bytes | None]:
    """The changes of rows by records outside of transactions; unreadable ones are skipped."""
    return changes([CommittedBatch(list(found))], rows, lambda *_: None)


# -- reading ------------------------------------------------------------------------------------------


class OffsetRows:
    """The stored groups and offsets of one partition."""

    def __init__(self, rows: StateRows) -> None:
        self._rows = rows

    def offset(self, key: OffsetKey) -> CommittedOffset | None:
        """The committed offset under `key`."""
        value = self._rows.get(row_key(key))
        return None if value is None else decode_offset(value)

    def unstable(self, key: OffsetKey) -> bool:
        """Whether an open transaction commits an offset for `key`."""
        return self._rows.get(_HELD_ROW + row_key(key)) is not None

    def unstable_of(self, group: str) -> frozenset[OffsetKey]:
        """The partitions for which open transactions commit offsets in a group."""
        prefix = _HELD_ROW + _OFFSET_ROW + _part(group)
        return frozenset(_offset_key(key[1:]) for key, _ in self._rows.scan(prefix, _after(prefix)))

    def value(self, key: Key) -> bytes | None:
        """The value stored under `key`."""
        return self._rows.get(row_key(key))

    def group(self, group: str) -> tuple[GroupSnapshot, int] | None:
        """A stored classic group, and when it was stored (ms)."""
        value = self.value(GroupKey(group))
        return None if value is None else decode_group(value)

    def of_group(self, group: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every offset of a group, by topic and partition."""
        prefix = _OFFSET_ROW + _part(group)
        for row, value in self._rows.scan(prefix, _after(prefix)):
            yield _offset_key(row), decode_offset(value)

    def each_offset(self) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every committed offset."""
        for row, value in self._rows.scan(_OFFSET_ROW, _GROUP_ROW):
            yield _offset_key(row), decode_offset(value)

    def each_key(self) -> Iterator[OffsetKey]:
        """The keys of all committed offsets."""
        for row, _ in self._rows.scan(_OFFSET_ROW, _GROUP_ROW):
            yield _offset_key(row)

    def each_classic(self) -> Iterator[str]:
        """The names of all stored classic groups."""
        for row, _ in self._rows.scan(_GROUP_ROW, _OTHER_ROW):
            yield _group_of(row)[0]

    def each_with_offsets(self) -> Iterator[str]:
        """The names of all groups with offsets; skips over the offsets."""
        return self._each_group(_OFFSET_ROW)

    def each_other(self) -> Iterator[str]:
        """The names of all stored groups of other kinds; skips over their records."""
        return self._each_group(_OTHER_ROW)

    def _each_group(self, row: bytes) -> Iterator[str]:
        first, end = row, _NEXT[row]
        while (found := next(iter(self._rows.scan(first, end)), None)) is not None:
            group, named = _group_of(found[0])
            yield group
            first = _after(found[0][:named])

    def records_of(self, group: str) -> Iterator[tuple[bytes, bytes]]:
        """Every record of a group of another kind: key bytes and values."""
        prefix = _OTHER_ROW + _part(group)
        for row, value in self._rows.scan(prefix, _after(prefix)):
            yield row[len(prefix) :], value
