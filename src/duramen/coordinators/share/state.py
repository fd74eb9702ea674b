"""The stored delivery state of share groups: records in `__share_group_state`, and their rows.

Keys of rows: length of the group and the group, topic id, partition; then 0 with the offset of the snapshot and the
snapshot as value, or 1 and an offset with a later update as value. So an update costs one row, however much is in
flight, and an unused share partition costs no memory.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from duramen.base.errors import BatchCorrupt, CoordinatorLoading
from duramen.base.ports import StateRows
from duramen.broker.partition import Partition
from duramen.broker.streams import BrokerStreams, Stream
from duramen.codec.batch import DecodedRecord
from duramen.groups.share_records import (
    ShareKey,
    ShareState,
    ShareUpdate,
    decode_key,
    decode_snapshot,
    decode_update,
    merged,
    state_partition_for,
)
from duramen.metadata.partitions import PartitionId

__all__ = [
    "SHARE_STATE_CONFIG",
    "SHARE_STATE_STREAM",
    "Kept",
    "StateStream",
    "StoredShareState",
    "changes",
    "find_state",
    "find_updates",
    "read_record",
    "snapshot_offsets",
]

SHARE_STATE_STREAM: Final = "__share_group_state"
SHARE_STATE_CONFIG: Final = {
    "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "durability": "sync",
    "segment.bytes": str(100 * 1024 * 1024),
}  # fmt: skip

_SNAPSHOT: Final = b"\x00"
_UPDATE: Final = b"\x01"
_END: Final = b"\x02"
_FIRST: Final = b""
_LAST: Final = b"\xff\xff"  # group names are shorter
_LENGTH = struct.Struct(">H")
_PLACE = struct.Struct(">16si")
_OFFSET = struct.Struct(">q")


class Kept(NamedTuple):
    """A share partition, and the offset of its snapshot."""

    key: ShareKey
    offset: int


class StateStream:
    """The stream `__share_group_state`, which may not exist yet."""

    def __init__(self, streams: BrokerStreams) -> None:
        self._streams = streams

    @property
    def ready(self) -> bool:
        """Whether the stream exists."""
        return bool(self.partitions)

    @property
    def partitions(self) -> Sequence[Partition]:
        """The partitions of the stream; none if it does not exist."""
        stream = self._streams.find(SHARE_STATE_STREAM)
        return () if stream is None else stream.partitions

    def _there(self) -> Stream:
        stream = self._streams.find(SHARE_STATE_STREAM)
        if stream is None:
            raise CoordinatorLoading(f"the stream {SHARE_STATE_STREAM} does not exist yet")
        return stream

    def place_of(self, key: ShareKey) -> PartitionId:
        """The partition that stores a share partition. Raises CoordinatorLoading."""
        stream = self._there()
        return PartitionId(stream.id, state_partition_for(key, len(stream.partitions)))

    def keeper_epoch(self, key: ShareKey) -> int:
        """The leader epoch of that partition. Raises CoordinatorLoading."""
        return self._there().partitions[self.place_of(key).partition].leader_epoch


# -- rows -------------------------------------------------------------------------------------------


def _prefix(key: ShareKey) -> bytes:
    encoded = key.group.encode()
    return _LENGTH.pack(len(encoded)) + encoded + _PLACE.pack(key.topic_id.bytes, key.partition)


def _key_of(row: bytes) -> ShareKey:
    (length,) = _LENGTH.unpack_from(row)
    begin = _LENGTH.size
    topic, partition = _PLACE.unpack_from(row, begin + length)
    return ShareKey(row[begin : begin + length].decode(), UUID(bytes=topic), partition)


class StoredShareState(NamedTuple):
    """A decoded record: a snapshot, an update, or None, which ends the state."""

    key: ShareKey
    value: ShareState | ShareUpdate | None


def read_record(record: DecodedRecord) -> StoredShareState | None:
    """Decode a record; None if it is unreadable: records that it acknowledges may be delivered again."""
    try:
        decoded = None if record.key is None else decode_key(record.key)
        if decoded is None:
            return None
        key, is_update = decoded
        if record.value is None:
            return None if is_update else StoredShareState(key, None)
        return StoredShareState(key, decode_update(record.value) if is_update else decode_snapshot(record.value))
    except BatchCorrupt:
        return None


def changes(found: Sequence[DecodedRecord], rows: StateRows) -> Mapping[bytes, bytes | None]:
    """The changes of rows by records."""
    changed: dict[bytes, bytes | None] = {}
    updates: dict[bytes, list[bytes]] = {}  # the ones in `changed`, by their prefix
    for record in found:
        stored = read_record(record)
        if stored is None:
            continue
        prefix, offset = _prefix(stored.key), _OFFSET.pack(record.offset)
        if isinstance(stored.value, ShareUpdate):
            row = prefix + _UPDATE + offset
            changed[row] = record.value
            updates.setdefault(prefix, []).append(row)
            continue
        # A snapshot replaces the updates before it.
        changed.update((row, None) for row, _ in rows.scan(prefix + _UPDATE, prefix + _END))
        changed.update(dict.fromkeys(updates.pop(prefix, ())))
        changed[prefix + _SNAPSHOT] = None if record.value is None else offset + record.value
    return changed


def find_state(rows: StateRows, key: ShareKey) -> ShareState | None:
    """The stored state of a share partition."""
    snapshot = rows.get(_prefix(key) + _SNAPSHOT)
    return None if snapshot is None else merged(decode_snapshot(snapshot[_OFFSET.size :]), find_updates(rows, key))


def find_updates(rows: StateRows, key: ShareKey) -> list[ShareUpdate]:
    """The updates since the snapshot."""
    prefix = _prefix(key)
    return [decode_update(value) for _, value in rows.scan(prefix + _UPDATE, prefix + _END)]


def snapshot_offsets(rows: StateRows) -> Iterator[Kept]:
    """Every stored share partition."""
    for row, value in rows.scan(_FIRST, _LAST):
        key = _key_of(row)
        if row == _prefix(key) + _SNAPSHOT:
            yield Kept(key, _OFFSET.unpack_from(value)[0])
