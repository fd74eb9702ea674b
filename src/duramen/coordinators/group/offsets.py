"""Consumer offsets and groups as they are kept: records in `__consumer_offsets`, applied to a view once committed."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol

from duramen.base.errors import (
    BatchCorrupt,
    CoordinatorLoading,
    DuramenError,
    NotCoordinator,
)
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.codec.batch import CONTROL, TRANSACTIONAL, BatchInput, Header, check, encode, header, records
from duramen.codec.batch_filter import body, marker_type
from duramen.codec.markers import COMMIT
from duramen.coordinators.group.pending_offsets import HeldOffset, PendingOffsets
from duramen.coordinators.group.stored_offsets import Key, StoredOffsets, change_of, row_key
from duramen.coordinators.internal_log import KeptStream, LogDescription
from duramen.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    decode_key,
    encode_group,
    encode_key,
    encode_offset,
)
from duramen.groups.values import GroupSnapshot
from duramen.storage.log.log import Log
from duramen.storage.scan import OnDamage
from duramen.storage.store import Store
from duramen.storage.view.view import Change, View

__all__ = ["OFFSETS_CONFIG", "OFFSETS_STREAM", "GroupOffsets", "GroupRecords"]

Done = Callable[[DuramenError | None], None]

OFFSETS_STREAM: Final = "__consumer_offsets"
OFFSETS_CONFIG: Final = {"cleanup.policy": "compact", "durability": "sync", "segment.bytes": str(100 * 1024 * 1024)}
_WORDS: Final = LogDescription(
    OFFSETS_STREAM, of="consumer offsets", cost="so a group whose last commit was there goes on from an older one"
)


class GroupRecords(Protocol):
    """Those whose records these are: told which partitions are coordinated here."""

    def restore_some(self, index: int) -> Iterator[None]:
        """Take in the groups of a partition, step by step."""

    def let_go(self, index: int, error: DuramenError) -> None:
        """The groups of a partition are not coordinated here now: who waits is told `error`."""


class GroupOffsets(StoredOffsets):
    """Stores and reads what groups commit. A group's records lie in the partition that its name hashes to.

    What is read is of the partitions that are coordinated here.
    """

    def __init__(self, store: Store, view: View, clock: Clock, report: Callable[[str], None], *, alone: bool) -> None:
        """`alone`: whether no other node may lead any of the partitions."""
        super().__init__(view, KeptStream(store, view, self, report, _WORDS, alone=alone))
        self._store = store
        self._clock = clock
        self.groups: GroupRecords | None = None
        self._pending = PendingOffsets(view)

    def recover(self, done: Callable[[DuramenError | OSError | None], None]) -> None:
        """Bring the view to the end of the log, as far as this node answers for it."""
        self._kept.recover(self._pending.load, done, is_foreign=self._is_foreign)

    # -- who coordinates ----------------------------------------------------------------------------

    def led(self, partition: Partition, *, leads: bool) -> None:
        """Whether this node leads a partition from here on; those of other streams do not matter."""
        self._kept.led(partition, leads=leads)

    def follow(self) -> None:
        """Take in what other coordinators have stored."""
        self._kept.follow()

    def check(self, group: str) -> None:
        """Raise NotCoordinator, CoordinatorLoading or StorageFailed unless the group is coordinated here."""
        if self.ready:
            self._kept.check(self._partition(group), f"group {group}")
        elif not self._kept.alone:
            raise NotCoordinator(f"nobody coordinates group {group} yet: there is no stream {OFFSETS_STREAM}")

    def deposed(self, group: str) -> bool:
        """Whether the group is coordinated here only as far as this node knows, which is cut off."""
        return self.ready and self._partition(group).deposed

    def check_epoch(self, group: str, leader_epoch: int) -> None:
        """As `check`, and raise NotCoordinator unless this node leads the group's partition in that epoch."""
        self.check(group)
        partition = self._partition(group)
        if not self._kept.alone and partition.leader_epoch != leader_epoch:
            raise NotCoordinator(f"group {group} is coordinated in epoch {leader_epoch}, not {partition.leader_epoch}")

    def coordinates(self, group: str) -> bool:
        """Whether the group is coordinated here."""
        return not self.ready or self._kept.coordinates(self._partition(group))

    def _partition(self, group: str) -> Partition:
        return self._kept.partitions[self.partition_of(group)]

    def forget(self, partition: Partition) -> None:
        """Take back all that the view has of a partition."""
        index = partition.index
        self._pending.close(index)
        self._view.forget(partition.log, [*self._rows_of(partition), *self._pending.rows(index)])

    def open(self, partition: Partition) -> None:
        """Records of a partition are about to be taken in."""
        self._pending.open(partition.index)

    def close(self, partition: Partition) -> None:
        """None are any more."""
        self._pending.close(partition.index)

    def restore(self, partition: Partition) -> Iterator[None]:
        """A partition is taken in: its groups are next."""
        return iter(()) if self.groups is None else self.groups.restore_some(partition.index)

    def let_go(self, partition: Partition, error: DuramenError) -> None:
        """What is in a partition is coordinated elsewhere, or has to be taken in again."""
        if self.groups is not None:
            self.groups.let_go(partition.index, error)

    # -- taking in ----------------------------------------------------------------------------------

    def take(self, log: Log, lost: OnDamage, found: Header, batch: bytes) -> None:
        """Take in a batch, or what ends a transaction."""
        if found.attributes & CONTROL:
            marker = marker_type(body(batch, found))
            ended = [] if marker is None else self._ended(log, found.producer_id, commit=marker == COMMIT)
            self._view.apply(log, found.next_offset, ended)
            return
        held: list[HeldOffset] = []
        changes: list[Change] = []
        index = log.key.partition
        offset = found.base_offset
        try:
            for record in records(batch, verify=False):
                offset = record.offset
                try:
                    change = change_of(index, record)
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
            changes = self._pending.hold(index, found.producer_id, held)
        self._apply(log, found.next_offset, changes)

    def _apply(self, log: Log, next_offset: int, changes: list[Change]) -> None:
        self._view.apply(log, next_offset, changes + self._pending.supersede(changes))

    def flush(self, done: Callable[[BaseException | None], None] | None = None) -> None:
        """Have the view survive a crash as it is."""
        self._view.flush(done)

    # -- writing ------------------------------------------------------------------------------------

    def _append(self, group: str, rows: Sequence[tuple[Key, bytes | None]], done: Done) -> None:
        """Append the rows' records to the group's partition; `done` once they are committed and in the view."""
        try:
            partition = self._partition(group)
        except CoordinatorLoading as error:
            done(error)
            return
        index = partition.index
        now_ms = self._clock.wall_ms()
        batch = encode(BatchInput(now_ms, encode_key(key), value) for key, value in rows)
        changes = [(row_key(index, key), value) for key, value in rows]
        leaving = Counter(row for (key, value), (row, _) in zip(rows, changes, strict=True) if _leaves(key, value))
        self._leaving += leaving

        def stored(error: DuramenError | None) -> None:
            self._leaving -= leaving
            done(error)

        def apply(base_offset: int) -> None:
            self._apply(partition.log, base_offset + len(rows), changes)

        self._kept.append(partition, batch, check(batch), apply, stored)

    # -- in transactions ----------------------------------------------------------------------------

    def hold(
        self,
        group: str,
        producer_id: int,
        producer_epoch: int,
        committed: Sequence[tuple[OffsetKey, CommittedOffset]],
        done: Done,
    ) -> None:
        """Store offsets of one group, at least one, that count once the producer's transaction is committed."""
        try:
            partition = self._partition(group)
            self._kept.check(partition, f"group {group}")
        except DuramenError as error:
            done(error)
            return
        index = partition.index
        now_ms = self._clock.wall_ms()
        rows = [(key, encode_offset(offset)) for key, offset in committed]
        batch = encode(
            (BatchInput(now_ms, encode_key(key), value) for key, value in rows),
            attributes=TRANSACTIONAL, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=-1,
        )  # fmt: skip

        def apply(base_offset: int) -> None:
            held = [HeldOffset(base_offset + at, row_key(index, key), value) for at, (key, value) in enumerate(rows)]
            self._view.apply(partition.log, base_offset + len(rows), self._pending.hold(index, producer_id, held))

        self._kept.append(partition, batch, header(batch), apply, done)

    def keeps(self, log: Log) -> bool:
        """Whether the log is one of the stream's."""
        return self._kept.keeps(log)

    def ended(self, log: Log, marker_offset: int, producer_id: int, *, commit: bool) -> None:
        """The marker at `marker_offset` of one of the stream's logs is committed."""

        def apply() -> None:
            self._view.apply(log, marker_offset + 1, self._ended(log, producer_id, commit=commit))

        if self.ready:
            self._kept.marked(self._kept.partitions[log.key.partition], marker_offset, apply)

    def _ended(self, log: Log, producer_id: int, *, commit: bool) -> list[Change]:
        return self._pending.end(log.key.partition, producer_id, commit=commit)

    def unstable(self, key: OffsetKey) -> bool:
        """Whether a transaction that is still open commits an offset for `key`."""
        return self._row_key(key) in self._pending

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

    def remove(self, group: str, keys: Sequence[Key], done: Callable[[DuramenError | None], None]) -> None:
        """Forget offsets of a group or the group itself."""
        if keys:
            self._append(group, [(key, None) for key in keys], done)
        else:
            self._store.when_synced(done)  # groups of other kinds have removed what they keep elsewhere


def _leaves(key: Key, value: bytes | None) -> bool:
    """Whether a record is a tombstone of something that is not to be seen while that is on its way to the disk."""
    return value is None and not isinstance(key, OffsetKey)
