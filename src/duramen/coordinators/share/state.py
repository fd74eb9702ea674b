"""What share groups have been delivered, as it is kept: records in `__share_group_state`, rows in a view.

Rows of the view: byte 2, partition of the stream, share partition, 0 -> offset and value of its snapshot; the same
with 1 and an offset -> the value of an update since. So an update costs a row, however much is in flight, and a share
partition that nobody uses costs no memory. The log is cut below the oldest snapshot that counts.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol
from uuid import UUID

from duramen.base.errors import BatchCorrupt, DuramenError
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.batch import BatchInput, DecodedRecord, Header, check, encode, records
from duramen.coordinators.internal_log import KeptStream, LogDescription
from duramen.groups.share_records import (
    ShareKey,
    ShareState,
    ShareUpdate,
    decode_key,
    decode_snapshot,
    decode_update,
    encode_key,
    encode_snapshot,
    merged,
    state_partition_for,
)
from duramen.metadata.partitions import PartitionId
from duramen.storage.log.log import Log
from duramen.storage.scan import OnDamage
from duramen.storage.store import Store
from duramen.storage.view.view import Change, View

__all__ = ["SHARE_STATE_CONFIG", "SHARE_STATE_STREAM", "Row", "ShareStateOwner", "ShareStates"]

SHARE_STATE_STREAM: Final = "__share_group_state"
SHARE_STATE_CONFIG: Final = {
    "cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1", "durability": "sync",
    "segment.bytes": str(100 * 1024 * 1024),
}  # fmt: skip

_WORDS: Final = LogDescription(
    SHARE_STATE_STREAM, of="share groups", cost="so what a share group acknowledged there may be delivered again"
)

_FOREIGN_ROW: Final = b"\x01"  # rows before the first of the next are of a layout that is not read
_ROW: Final = b"\x02"
_SNAPSHOT: Final = b"\x00"
_UPDATE: Final = b"\x01"
_END: Final = b"\x02"
_INDEX = struct.Struct(">i")
_LENGTH = struct.Struct(">H")
_PLACE = struct.Struct(">16si")
_OFFSET = struct.Struct(">q")
_NAMED: Final = 1 + 4  # where a row names its group

Done = Callable[[DuramenError | None], None]
Row = tuple[bytes, bytes | None]
"""A record's key, and its value; None ends what it is about."""


def _span(index: int) -> tuple[bytes, bytes]:
    """Where the rows of a partition of the stream lie."""
    return _ROW + _INDEX.pack(index), _ROW + _INDEX.pack(index + 1)


def _prefix(index: int, key: ShareKey) -> bytes:
    encoded = key.group.encode()
    return (
        _ROW
        + _INDEX.pack(index)
        + _LENGTH.pack(len(encoded))
        + encoded
        + _PLACE.pack(key.topic_id.bytes, key.partition)
    )


def _key_of(row: bytes) -> ShareKey:
    (length,) = _LENGTH.unpack_from(row, _NAMED)
    begin = _NAMED + _LENGTH.size
    topic, partition = _PLACE.unpack_from(row, begin + length)
    return ShareKey(row[begin : begin + length].decode(), UUID(bytes=topic), partition)


class ShareStateOwner(Protocol):
    """Who answers for what is stored here."""

    def let_go(self, index: int) -> None:
        """What is in a partition is coordinated elsewhere, or has to be taken in again."""


class ShareStates:
    """Stores and reads the state of share partitions. What is read is committed, and of partitions led by this node."""

    def __init__(self, store: Store, view: View, clock: Clock, report: Callable[[str], None], *, alone: bool) -> None:
        """`alone`: whether no other node may lead any of the partitions."""
        self.coordinator: ShareStateOwner | None = None
        self._store = store
        self._view = view
        self._clock = clock
        self._kept = KeptStream(store, view, self, report, _WORDS, alone=alone)

    def use(self, stream: Stream) -> None:
        """The stream `__share_group_state`."""
        self._kept.stream = stream

    @property
    def ready(self) -> bool:
        """Whether there is somewhere to store."""
        return self._kept.stream is not None

    @property
    def alone(self) -> bool:
        """Whether no other node may lead any of the partitions."""
        return self._kept.alone

    def recover(self, done: Callable[[DuramenError | OSError | None], None]) -> None:
        """Bring the view to the end of the log, as far as this node answers for it."""
        is_foreign = next(self._view.scan(_FOREIGN_ROW, _ROW), None) is not None
        self._kept.recover(lambda: None, done, is_foreign=is_foreign)

    # -- who coordinates ----------------------------------------------------------------------------

    def led(self, partition: Partition, *, leads: bool) -> None:
        """Whether this node leads a partition from here on; those of other streams do not matter."""
        self._kept.led(partition, leads=leads)

    def follow(self) -> None:
        """Take in what others have stored."""
        self._kept.follow()

    def place_of(self, key: ShareKey) -> PartitionId:
        """The partition that keeps a share partition. Raises CoordinatorLoading."""
        stream = self._kept.there()
        return PartitionId(stream.id, state_partition_for(key, len(stream.partitions)))

    def keeper_epoch(self, key: ShareKey) -> int:
        """The leader epoch of the partition that keeps a share partition. Raises CoordinatorLoading."""
        return self._kept.there().partitions[self.place_of(key).partition].leader_epoch

    def check(self, key: ShareKey) -> None:
        """Raise NotCoordinator, CoordinatorLoading or StorageFailed unless a share partition is kept here."""
        partition = self._kept.there().partitions[self.place_of(key).partition]
        self._kept.check(partition, f"share group {key.group}")

    def forget(self, partition: Partition) -> None:
        """Take back all that the view has of a partition."""
        rows = [row for row, _ in self._view.scan(*_span(partition.index))]
        self._view.forget(partition.log, rows)

    def open(self, partition: Partition) -> None:
        """Records of a partition are about to be taken in: nothing of it is in memory."""

    def close(self, partition: Partition) -> None:
        """None are any more."""

    def restore(self, partition: Partition) -> Iterator[None]:
        """A partition is taken in: states are looked up when they are asked for."""
        del partition
        return iter(())

    def let_go(self, partition: Partition, error: DuramenError) -> None:
        """What is in a partition is coordinated elsewhere, or has to be taken in again."""
        del error  # who waits is told by the append that has failed
        if self.coordinator is not None:
            self.coordinator.let_go(partition.index)

    # -- taking in ----------------------------------------------------------------------------------

    def take(self, log: Log, lost: OnDamage, found: Header, batch: bytes) -> None:
        """Take in a batch."""
        changes: list[Change] = []
        offset = found.base_offset
        try:
            for record in records(batch, verify=False):
                offset = record.offset
                try:
                    changes += self._changes(log.key.partition, record, changes)
                except BatchCorrupt as error:
                    lost(offset, offset, error)
        except BatchCorrupt as error:
            lost(offset, found.next_offset - 1, error)
        self._view.apply(log, found.next_offset, changes)

    def _changes(self, index: int, record: DecodedRecord, before: Sequence[Change]) -> list[Change]:
        """The rows that a record changes, behind those that the same batch has changed `before`."""
        decoded = None if record.key is None else decode_key(record.key)
        if decoded is None:
            return []
        key, update = decoded
        prefix = _prefix(index, key)
        if update:
            if record.value is not None:
                decode_update(record.value)
            return [(prefix + _UPDATE + _OFFSET.pack(record.offset), record.value)]
        if record.value is not None:
            decode_snapshot(record.value)
        # A snapshot takes the place of the updates before it.
        old = [row for row, _ in self._view.scan(prefix + _UPDATE, prefix + _END)]
        old += (row for row, value in before if value is not None and row.startswith(prefix + _UPDATE))
        value = None if record.value is None else _OFFSET.pack(record.offset) + record.value
        return [*((row, None) for row in old), (prefix + _SNAPSHOT, value)]

    def flush(self, done: Callable[[BaseException | None], None] | None = None) -> None:
        """Have the view survive a crash as it is."""
        self._view.flush(done)

    # -- writing ------------------------------------------------------------------------------------

    def append(self, index: int, rows: Sequence[Row], done: Done) -> None:
        """Append records to a partition of the stream; `done` once they are committed and in the view.

        NotCoordinator where this node leads it no more.
        """
        partition = self._kept.there().partitions[index]
        log = partition.log
        now_ms = self._clock.wall_ms()
        batch = encode(BatchInput(now_ms, key, value) for key, value in rows)

        def apply(base_offset: int) -> None:
            changes: list[Change] = []
            for at, (key, value) in enumerate(rows):
                changes += self._changes(index, DecodedRecord(base_offset + at, now_ms, key, value, ()), changes)
            self._view.apply(log, base_offset + len(rows), changes)

        self._kept.append(partition, batch, check(batch), apply, done)

    def snapshot(self, key: ShareKey, state: ShareState) -> Row:
        """The record that stores a state as a whole."""
        now_ms = self._clock.wall_ms()
        stamped = state._replace(created_ms=state.created_ms or now_ms, written_ms=now_ms)
        return encode_key(key), encode_snapshot(stamped)

    # -- reading ------------------------------------------------------------------------------------

    def get(self, key: ShareKey) -> ShareState | None:
        """All that is kept of a share partition."""
        snapshot = self._view.get(self._prefix(key) + _SNAPSHOT)
        return None if snapshot is None else merged(decode_snapshot(snapshot[_OFFSET.size :]), self.updates(key))

    def _prefix(self, key: ShareKey) -> bytes:
        return _prefix(self.place_of(key).partition if self.ready else 0, key)

    def updates(self, key: ShareKey) -> list[ShareUpdate]:
        """The updates since the snapshot."""
        prefix = self._prefix(key)
        return [decode_update(value) for _, value in self._view.scan(prefix + _UPDATE, prefix + _END)]

    def each(self, index: int | None = None) -> Iterator[ShareKey]:
        """Every share partition that is kept here, or those of a partition of the stream."""
        partitions = self._kept.partitions
        here = [partition.index for partition in partitions if self._kept.coordinates(partition)]
        for one in here if index is None else (index,):
            for row, _ in self._view.scan(*_span(one)):
                key = _key_of(row)
                if row == _prefix(one, key) + _SNAPSHOT:
                    yield key

    # -- letting go ---------------------------------------------------------------------------------

    def prune(self, most_records: int, rewrite: Callable[[ShareKey], None]) -> None:
        """Cut each partition of the log that is led here below the oldest snapshot that counts.

        Where that leaves more than `most_records`, `rewrite` is asked to store those of the older half anew.
        """
        cuts = [cut for partition in self._kept.partitions for cut in self._cut(partition, most_records, rewrite)]

        def flushed(error: BaseException | None) -> None:
            # A view that falls back behind the cut would never hear of what was forgotten there.
            for log, until in cuts if error is None else ():
                self._store.delete_before(log, until, lambda _: None)

        if cuts:
            self._view.flush(flushed)

    def _cut(
        self, partition: Partition, most_records: int, rewrite: Callable[[ShareKey], None]
    ) -> Iterator[tuple[Log, int]]:
        """Where a partition's log may be cut."""
        if not self._kept.coordinates(partition):
            return
        log, index = partition.log, partition.index
        applied = oldest = self._view.position(log)
        for row, value in self._view.scan(*_span(index)):
            key = _key_of(row)
            if row != _prefix(index, key) + _SNAPSHOT:
                continue
            (offset,) = _OFFSET.unpack_from(value)
            oldest = min(offset, oldest)
            if log.high_watermark - offset > most_records // 2 and log.high_watermark - log.start_offset > most_records:
                rewrite(key)
        if log.start_offset < oldest <= applied:
            yield log, oldest
