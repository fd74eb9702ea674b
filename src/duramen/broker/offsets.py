"""Consumer offsets and groups as they are kept: records in `__consumer_offsets`, rows in a view.

Rows of the view: byte 1, group, topic, partition -> the offset record's value; byte 2, group -> the classic group's;
byte 3, group, a record's key -> its value, for the records of groups of other kinds.
"""

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from duramen.base.errors import BatchCorrupt, CoordinatorLoading, DuramenError
from duramen.base.ports import Clock
from duramen.broker.catching_up import CatchingUp
from duramen.broker.pending import HeldOffset, PendingOffsets
from duramen.broker.streams import Stream
from duramen.codec.batch import CONTROL, TRANSACTIONAL, Header, NewRecord, Record, check, encode, header, records
from duramen.codec.filtering import body, marker_type
from duramen.codec.markers import COMMIT
from duramen.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    OtherKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
    partition_for,
)
from duramen.groups.values import GroupSnapshot
from duramen.storage.log import Log
from duramen.storage.scanning import OnDamage
from duramen.storage.store import Store
from duramen.storage.view import Change, View

__all__ = ["OFFSETS_CONFIG", "OFFSETS_STREAM", "Offsets"]

OFFSETS_STREAM: Final = "__consumer_offsets"
OFFSETS_CONFIG: Final = {"cleanup.policy": "compact", "durability": "sync", "segment.bytes": str(100 * 1024 * 1024)}

_OFFSET_ROW: Final = b"\x01"
_GROUP_ROW: Final = b"\x02"
_OTHER_ROW: Final = b"\x03"
_END: Final = b"\x04"
_LENGTH = struct.Struct(">H")
_PARTITION = struct.Struct(">i")


def _part(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _row_key(key: OffsetKey | GroupKey | OtherKey) -> bytes:
    if isinstance(key, OffsetKey):
        return _OFFSET_ROW + _part(key.group) + _part(key.topic) + _PARTITION.pack(key.partition)
    if isinstance(key, OtherKey):
        return _OTHER_ROW + _part(key.group) + key.record_key
    return _GROUP_ROW + _part(key.group)


def _offset_key(row: bytes) -> OffsetKey:
    (group_length,) = _LENGTH.unpack_from(row, 1)
    group_end = 3 + group_length
    (topic_length,) = _LENGTH.unpack_from(row, group_end)
    topic_end = group_end + 2 + topic_length
    (partition,) = _PARTITION.unpack_from(row, topic_end)
    return OffsetKey(row[3:group_end].decode(), row[group_end + 2 : topic_end].decode(), partition)


def _after(prefix: bytes) -> bytes:
    """The first key that does not begin with `prefix`, which does not begin with 255."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes((kept[-1] + 1,))


def _change(record: Record) -> Change | None:
    """The row that a record stands for; None for one of a later version. Raises BatchCorrupt."""
    key = None if record.key is None else decode_key(record.key)
    if key is None:
        return None
    if record.value is not None and isinstance(key, OffsetKey):
        decode_offset(record.value)
    elif record.value is not None and isinstance(key, GroupKey):
        decode_group(record.value)
    return _row_key(key), record.value


class Offsets:
    """Stores and reads what groups commit. A group's records lie in the partition that its name hashes to."""

    def __init__(self, store: Store, view: View, clock: Clock) -> None:
        self._store = store
        self._view = view
        self._clock = clock
        self._stream: Stream | None = None
        self._pending = PendingOffsets(view)
        self._catching_up = CatchingUp(
            store, view, self._take, of="consumer offsets", stream=OFFSETS_STREAM,
            cost="so a group whose last commit was there goes on from an older one",
        )  # fmt: skip
        self._leaving: Counter[bytes] = Counter()  # rows of groups whose tombstones are on their way to the disk

    def use(self, stream: Stream) -> None:
        """The stream `__consumer_offsets`."""
        self._stream = stream

    @property
    def ready(self) -> bool:
        """Whether there is somewhere to store."""
        return self._stream is not None

    def recover(self, report: Callable[[str], None], done: Callable[[DuramenError | OSError | None], None]) -> None:
        """Bring the view to the end of the log, from the position it holds or, where that does not fit, anew.

        What is damaged is reported, and the rest taken in.
        """
        partitions = self._stream.partitions if self._stream is not None else []
        self._catching_up.fit(partitions, report)
        self._pending.load()
        self._catching_up.go_on(partitions, report, done)

    def _take(self, log: Log, lost: OnDamage, found: Header, batch: bytes) -> None:
        if found.attributes & CONTROL:
            marker = marker_type(body(batch, found))
            ended = [] if marker is None else self._ended(log, found.producer_id, commit=marker == COMMIT)
            self._view.apply(log, found.next_offset, ended)
            return
        held: list[HeldOffset] = []
        changes: list[Change] = []
        offset = found.base_offset
        try:
            for record in records(batch, verify=False):
                offset = record.offset
                try:
                    change = _change(record)
                except BatchCorrupt as error:
                    lost(offset, offset, error)
                    continue
                if change is not None and found.attributes & TRANSACTIONAL:
                    held.append(HeldOffset(offset, change[0], change[1] or b""))
                elif change is not None:
                    changes.append(change)
        except BatchCorrupt as error:
            lost(offset, found.next_offset - 1, error)
        if held:
            changes = self._pending.hold(log.key.partition, found.producer_id, held)
        self._apply(log, found.next_offset, changes)

    def _apply(self, log: Log, next_offset: int, changes: list[Change]) -> None:
        self._view.apply(log, next_offset, changes + self._pending.supersede(changes))

    def flush(self, done: Callable[[BaseException | None], None] | None = None) -> None:
        """Have the view survive a crash as it is."""
        self._view.flush(done)

    # -- writing ------------------------------------------------------------------------------------

    def _append(
        self,
        group: str,
        rows: Sequence[tuple[OffsetKey | GroupKey | OtherKey, bytes | None]],
        done: Callable[[DuramenError | None], None],
    ) -> None:
        """Append the rows' records to the group's partition; `done` once they are durable and in the view."""
        if self._stream is None:
            done(CoordinatorLoading("the stream of consumer offsets is not there yet"))
            return
        partition = self._stream.partitions[self.partition_of(group)]
        log = partition.log
        now_ms = self._clock.wall_ms()
        batch = encode(NewRecord(now_ms, encode_key(key), value) for key, value in rows)
        head = check(batch)
        leaving = Counter(_row_key(key) for key, value in rows if value is None and not isinstance(key, OffsetKey))
        self._leaving += leaving

        def appended(base_offset: int, error: DuramenError | None) -> None:
            self._leaving -= leaving
            if error is None:
                changes = [(_row_key(key), value) for key, value in rows]
                self._apply(log, base_offset + len(rows), changes)
            done(error)

        partition.store(batch, head, appended)

    # -- in transactions ----------------------------------------------------------------------------

    def partition_of(self, group: str) -> int:
        """Which partition keeps the group. Raises CoordinatorLoading."""
        if self._stream is None:
            raise CoordinatorLoading("the stream of consumer offsets is not there yet")
        return partition_for(group, len(self._stream.partitions))

    def hold(
        self,
        group: str,
        producer_id: int,
        producer_epoch: int,
        committed: Sequence[tuple[OffsetKey, CommittedOffset]],
        done: Callable[[DuramenError | None], None],
    ) -> None:
        """Store offsets of one group, at least one, that count once the producer's transaction is committed."""
        if self._stream is None:
            done(CoordinatorLoading("the stream of consumer offsets is not there yet"))
            return
        partition = self._stream.partitions[self.partition_of(group)]
        log = partition.log
        now_ms = self._clock.wall_ms()
        rows = [(key, encode_offset(offset)) for key, offset in committed]
        batch = encode(
            (NewRecord(now_ms, encode_key(key), value) for key, value in rows),
            attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=-1,
        )  # fmt: skip

        def appended(base_offset: int, error: DuramenError | None) -> None:
            if error is None:
                held = [HeldOffset(base_offset + at, _row_key(key), value) for at, (key, value) in enumerate(rows)]
                changes = self._pending.hold(partition.index, producer_id, held)
                self._view.apply(log, base_offset + len(rows), changes)
            done(error)

        partition.store(batch, header(batch), appended)

    def keeps(self, log: Log) -> bool:
        """Whether the log is one of the stream's."""
        return self._stream is not None and log.key.stream_id == self._stream.id

    def ended(self, log: Log, marker_offset: int, producer_id: int, *, commit: bool) -> None:
        """The marker at `marker_offset` of one of the stream's logs is durable."""
        self._view.apply(log, marker_offset + 1, self._ended(log, producer_id, commit=commit))

    def _ended(self, log: Log, producer_id: int, *, commit: bool) -> list[Change]:
        return self._pending.end(log.key.partition, producer_id, commit=commit)

    def unstable(self, key: OffsetKey) -> bool:
        """Whether a transaction that is still open commits an offset for `key`."""
        return _row_key(key) in self._pending

    # -- writing and forgetting ---------------------------------------------------------------------

    def commit(
        self,
        group: str,
        committed: Iterable[tuple[OffsetKey, CommittedOffset]],
        done: Callable[[DuramenError | None], None],
    ) -> None:
        """Store offsets of one group, at least one."""
        self._append(group, [(key, encode_offset(offset)) for key, offset in committed], done)

    def store_group(self, group: str, snapshot: GroupSnapshot, done: Callable[[DuramenError | None], None]) -> None:
        """Store a group's metadata."""
        self._append(group, [(GroupKey(group), encode_group(snapshot, self._clock.wall_ms()))], done)

    def store_records(
        self, group: str, changes: Iterable[tuple[bytes, bytes | None]], done: Callable[[DuramenError | None], None]
    ) -> None:
        """Store records of one group, at least one, together or not at all: keys with values, None for a tombstone.

        The keys are those of `groups.records` or of another kind's records; unknown ones raise BatchCorrupt.
        """
        rows = []
        for record_key, value in changes:
            key = decode_key(record_key)
            if key is None or key.group != group:
                raise BatchCorrupt(f"{record_key!r} is no key of a record of group {group}")
            rows.append((key, value))
        self._append(group, rows, done)

    def remove(
        self, group: str, keys: Sequence[OffsetKey | GroupKey | OtherKey], done: Callable[[DuramenError | None], None]
    ) -> None:
        """Forget offsets of a group or the group itself."""
        if keys:
            self._append(group, [(key, None) for key in keys], done)
        else:
            self._store.when_synced(done)  # groups of other kinds have removed what they keep elsewhere

    # -- reading ------------------------------------------------------------------------------------

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        """The offset stored under `key`."""
        value = self._view.get(_row_key(key))
        return None if value is None else decode_offset(value)

    def of_group(self, group: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every offset of a group, by topic and partition."""
        prefix = _OFFSET_ROW + _part(group)
        for row, value in self._view.scan(prefix, _after(prefix)):
            yield _offset_key(row), decode_offset(value)

    def each_offset(self) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every offset there is."""
        for row, value in self._view.scan(_OFFSET_ROW, _GROUP_ROW):
            yield _offset_key(row), decode_offset(value)

    def group(self, group: str) -> tuple[GroupSnapshot, int] | None:
        """A group as it was stored, and when (ms); one that is being removed is not there."""
        value = self._row(_row_key(GroupKey(group)))
        return None if value is None else decode_group(value)

    def _row(self, row: bytes) -> bytes | None:
        return None if row in self._leaving else self._view.get(row)

    def has_group(self, group: str) -> bool:
        """Whether a classic group is stored under that name."""
        return self._row(_row_key(GroupKey(group))) is not None

    def each_classic(self) -> Iterator[str]:
        """The names of all classic groups that are stored."""
        for row, _ in self._view.scan(_GROUP_ROW, _OTHER_ROW):
            yield row[3:].decode()

    def each_with_offsets(self) -> Iterator[str]:
        """The names of all groups that have offsets; these are not looked through, but stepped over."""
        first = _OFFSET_ROW
        while (found := next(self._view.scan(first, _GROUP_ROW), None)) is not None:
            group = _offset_key(found[0]).group
            yield group
            first = _after(_OFFSET_ROW + _part(group))

    # -- reading records of other kinds ----------------------------------------------------------------

    def record(self, key: OtherKey) -> bytes | None:
        """The value stored under a key; one that is being removed is not there."""
        return self._row(_row_key(key))

    def records_of(self, group: str) -> Iterator[tuple[bytes, bytes]]:
        """Every record of a group of another kind: keys and values, by the keys' bytes."""
        prefix = _OTHER_ROW + _part(group)
        for row, value in self._view.scan(prefix, _after(prefix)):
            yield row[len(prefix) :], value

    def each_other(self) -> Iterator[str]:
        """The names of all groups of other kinds that are stored; their records are stepped over."""
        first = _OTHER_ROW
        while (found := next(self._view.scan(first, _END), None)) is not None:
            (length,) = _LENGTH.unpack_from(found[0], 1)
            group = found[0][3 : 3 + length]
            yield group.decode()
            first = _after(_OTHER_ROW + _LENGTH.pack(length) + group)
