"""Consumer offsets and groups as they are read: rows of a view, in the words of who asks.

Rows of the view, each with the partition of `__consumer_offsets` that it comes from behind its first byte: byte 6,
group, topic, partition -> the offset record's value; byte 7, group -> the classic group's; byte 8, group, a record's
key -> its value, for the records of groups of other kinds. Byte 9 is what open transactions commit (`pending`).
"""

import struct
from collections import Counter
from collections.abc import Iterator
from typing import Final

from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import DecodedRecord
from duramen.coordinators.internal_log import KeptStream
from duramen.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    OtherKey,
    decode_group,
    decode_key,
    decode_offset,
    partition_for,
)
from duramen.groups.values import GroupSnapshot
from duramen.metadata.partitions import PartitionId
from duramen.storage.view.view import Change, View

__all__ = ["Key", "StoredOffsets", "change_of", "row_key"]

Key = OffsetKey | GroupKey | OtherKey

_FOREIGN_ROW: Final = b"\x01"  # rows before the first of these are of a layout that is not read
_OFFSET_ROW: Final = b"\x06"
_GROUP_ROW: Final = b"\x07"
_OTHER_ROW: Final = b"\x08"
_NEXT: Final = {_OFFSET_ROW: _GROUP_ROW, _GROUP_ROW: _OTHER_ROW, _OTHER_ROW: b"\x09"}
_NAMED: Final = 1 + 4  # where a row names its group
_LENGTH = struct.Struct(">H")
_PARTITION = struct.Struct(">i")


def _part(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def row_key(index: int, key: Key) -> bytes:
    """Where the view keeps what is stored under a key in a partition of the stream."""
    place = _PARTITION.pack(index) + _part(key.group)
    if isinstance(key, OffsetKey):
        return _OFFSET_ROW + place + _part(key.topic) + _PARTITION.pack(key.partition)
    if isinstance(key, OtherKey):
        return _OTHER_ROW + place + key.record_key
    return _GROUP_ROW + place


def _group_of(row: bytes) -> tuple[str, int]:
    """The group that a row names, and where its name ends."""
    (length,) = _LENGTH.unpack_from(row, _NAMED)
    end = _NAMED + _LENGTH.size + length
    return row[_NAMED + _LENGTH.size : end].decode(), end


def _offset_key(row: bytes) -> OffsetKey:
    group, group_end = _group_of(row)
    (topic_length,) = _LENGTH.unpack_from(row, group_end)
    topic_end = group_end + 2 + topic_length
    (partition,) = _PARTITION.unpack_from(row, topic_end)
    return OffsetKey(group, row[group_end + 2 : topic_end].decode(), partition)


def _after(prefix: bytes) -> bytes:
    """The first key that does not begin with `prefix`, which does not begin with 255."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))


def _span(row: bytes, index: int) -> tuple[bytes, bytes]:
    return row + _PARTITION.pack(index), row + _PARTITION.pack(index + 1)


def change_of(index: int, record: DecodedRecord) -> Change | None:
    """The row that a record stands for; None for one of a later version. Raises BatchCorrupt."""
    key = None if record.key is None else decode_key(record.key)
    if key is None:
        return None
    if record.value is not None and isinstance(key, OffsetKey):
        decode_offset(record.value)
    elif record.value is not None and isinstance(key, GroupKey):
        decode_group(record.value)
    return row_key(index, key), record.value


class StoredOffsets:
    """What groups have stored. A group lies in the partition that its name hashes to.

    Where all groups are asked for, those are meant that are coordinated here.
    """

    def __init__(self, view: View, kept: KeptStream) -> None:
        self._view = view
        self._kept = kept
        self._leaving: Counter[bytes] = Counter()  # rows of groups whose tombstones are on their way to the disk

    def use(self, stream: Stream) -> None:
        """The stream `__consumer_offsets`."""
        self._kept.stream = stream

    @property
    def ready(self) -> bool:
        """Whether there is somewhere to store."""
        return self._kept.stream is not None

    def partition_of(self, group: str) -> int:
        """Which partition keeps the group. Raises CoordinatorLoading."""
        return partition_for(group, len(self._kept.there().partitions))

    def place_of(self, group: str) -> PartitionId:
        """The same, with the stream. Raises CoordinatorLoading."""
        return PartitionId(self._kept.there().id, self.partition_of(group))

    def _row_key(self, key: Key) -> bytes:
        # Without a stream there are no rows, and any partition's is as good.
        return row_key(self.partition_of(key.group) if self.ready else 0, key)

    def _rows_of(self, partition: Partition) -> list[bytes]:
        """The keys of all rows of a partition."""
        return [row for kind in _NEXT for row, _ in self._view.scan(*_span(kind, partition.index))]

    @property
    def _is_foreign(self) -> bool:
        """Whether the view has rows of a layout that is not read."""
        return next(self._view.scan(_FOREIGN_ROW, _OFFSET_ROW), None) is not None

    # -- offsets ------------------------------------------------------------------------------------

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        """The offset stored under `key`."""
        value = self._view.get(self._row_key(key))
        return None if value is None else decode_offset(value)

    def _spans(self, row: bytes, index: int | None) -> Iterator[tuple[bytes, bytes]]:
        """Where the rows of a kind lie, of one partition or of all that are coordinated here."""
        if index is not None:
            yield _span(row, index)
        elif self._kept.alone:
            yield row, _NEXT[row]
        else:
            for partition in self._kept.partitions:
                if self._kept.coordinates(partition):
                    yield _span(row, partition.index)

    def of_group(self, group: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every offset of a group, by topic and partition."""
        prefix = self._prefix(_OFFSET_ROW, group)
        for row, value in self._view.scan(prefix, _after(prefix)):
            yield _offset_key(row), decode_offset(value)

    def _prefix(self, row: bytes, group: str) -> bytes:
        return row + _PARTITION.pack(self.partition_of(group) if self.ready else 0) + _part(group)

    def each_offset(self) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every offset there is."""
        for span in self._spans(_OFFSET_ROW, None):
            for row, value in self._view.scan(*span):
                yield _offset_key(row), decode_offset(value)

    def each_key(self, index: int | None = None) -> Iterator[OffsetKey]:
        """Where there is an offset, or those of a partition of the stream."""
        for span in self._spans(_OFFSET_ROW, index):
            for row, _ in self._view.scan(*span):
                yield _offset_key(row)

    # -- classic groups -----------------------------------------------------------------------------

    def group(self, group: str) -> tuple[GroupSnapshot, int] | None:
        """A group as it was stored, and when (ms); one that is being removed is not there."""
        value = self._row(self._row_key(GroupKey(group)))
        return None if value is None else decode_group(value)

    def _row(self, row: bytes) -> bytes | None:
        return None if row in self._leaving else self._view.get(row)

    def has_group(self, group: str) -> bool:
        """Whether a classic group is stored under that name."""
        return self._row(self._row_key(GroupKey(group))) is not None

    def each_classic(self, index: int | None = None) -> Iterator[str]:
        """The names of all classic groups that are stored, or those of a partition."""
        for span in self._spans(_GROUP_ROW, index):
            for row, _ in self._view.scan(*span):
                yield _group_of(row)[0]

    def each_with_offsets(self) -> Iterator[str]:
        """The names of all groups that have offsets; these are not looked through, but stepped over."""
        return self._each_group(_OFFSET_ROW, None)

    def _each_group(self, row: bytes, index: int | None) -> Iterator[str]:
        for span in self._spans(row, index):
            first, end = span
            while (found := next(self._view.scan(first, end), None)) is not None:
                group, named = _group_of(found[0])
                yield group
                first = _after(found[0][:named])

    # -- reading records of other kinds ----------------------------------------------------------------

    def record(self, key: OtherKey) -> bytes | None:
        """The value stored under a key; one that is being removed is not there."""
        return self._row(self._row_key(key))

    def records_of(self, group: str) -> Iterator[tuple[bytes, bytes]]:
        """Every record of a group of another kind: keys and values, by the keys' bytes."""
        prefix = self._prefix(_OTHER_ROW, group)
        for row, value in self._view.scan(prefix, _after(prefix)):
            yield row[len(prefix) :], value

    def each_other(self, index: int | None = None) -> Iterator[str]:
        """The names of all groups of other kinds that are stored, or those of a partition; records are stepped over."""
        return self._each_group(_OTHER_ROW, index)
