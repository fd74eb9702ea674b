"""Storage of consumer offsets and groups, through the coordinator runtime."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

from duramen.base.errors import BatchCorrupt, CoordinatorLoading, DuramenError, NotCoordinator
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.broker.streams import Stream
from duramen.codec.markers import ABORT, COMMIT
from duramen.coordinators.group.rows import Key, OffsetRows, row_key
from duramen.coordinators.group.shard import OFFSETS_CONFIG, OFFSETS_STREAM, GroupRecords, StoreRecords, offsets_kind
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.coordinators.runtime.runtime import Runtime
from duramen.coordinators.runtime.shard import ShardAnswer, ShardKind, TransactionProducer
from duramen.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    OtherKey,
    decode_group,
    decode_key,
    encode_group,
    encode_key,
    encode_offset,
    partition_for,
)
from duramen.groups.values import GroupSnapshot
from duramen.metadata.partitions import PartitionId
from duramen.storage.log.log import Log
from duramen.storage.store import Store

__all__ = ["OFFSETS_CONFIG", "OFFSETS_STREAM", "GroupOffsets"]

Done = Callable[[DuramenError | None], None]


class GroupOffsets:
    """Stores and reads committed offsets and groups. The hash of a group's name selects the partition of its records.

    Methods for all groups cover the groups that this node coordinates.
    """

    def __init__(self, store: Store, runtime: Callable[[], Runtime], clock: Clock, *, alone: bool) -> None:
        """`runtime` runs the shards. `alone`: no other node can lead any of the partitions."""
        self._store = store
        self._clock = clock
        self._alone = alone
        self._stream: Stream | None = None
        self._shards = runtime
        self._leaving: Counter[bytes] = Counter()  # rows of groups whose tombstones are being written
        self.groups: GroupRecords | None = None

    @property
    def kind(self) -> ShardKind[StoreRecords]:
        """The shard kind for the coordinator runtime."""
        return offsets_kind(self)

    def restore_some(self, index: int) -> Iterator[None]:
        """Load the groups of a partition, step by step."""
        return iter(()) if self.groups is None else self.groups.restore_some(index)

    def let_go(self, index: int, error: DuramenError) -> None:
        """The node no longer coordinates the groups of a partition."""
        if self.groups is not None:
            self.groups.let_go(index, error)

    # -- the coordinator ----------------------------------------------------------------------------

    def use(self, stream: Stream) -> None:
        """Use this stream as `__consumer_offsets`."""
        self._stream = stream

    @property
    def ready(self) -> bool:
        """Whether the stream exists."""
        return self._stream is not None

    def _there(self) -> Stream:
        if self._stream is None:
            raise CoordinatorLoading(f"the stream {OFFSETS_STREAM} does not exist yet")
        return self._stream

    def partition_of(self, group: str) -> int:
        """The partition of the group. Raises CoordinatorLoading."""
        return partition_for(group, len(self._there().partitions))

    def place_of(self, group: str) -> PartitionId:
        """The partition of the group, with the stream. Raises CoordinatorLoading."""
        return PartitionId(self._there().id, self.partition_of(group))

    def _partition(self, group: str) -> Partition:
        return self._there().partitions[self.partition_of(group)]

    def check(self, group: str) -> None:
        """Raise NotCoordinator, CoordinatorLoading or StorageFailed unless the group is coordinated here."""
        if self.ready:
            self._shards().check(OFFSETS_STREAM, self.partition_of(group))
        elif not self._alone:
            raise NotCoordinator(f"group {group} has no coordinator yet: there is no stream {OFFSETS_STREAM}")

    def deposed(self, group: str) -> bool:
        """Whether this node, which is cut off, believes that it coordinates the group although another node may."""
        return self.ready and self._partition(group).deposed

    def check_epoch(self, group: str, leader_epoch: int) -> None:
        """Like `check`; also raises NotCoordinator unless this node leads the group's partition in that epoch."""
        self.check(group)
        partition = self._partition(group)
        if not self._alone and partition.leader_epoch != leader_epoch:
            raise NotCoordinator(f"group {group} is coordinated in epoch {leader_epoch}, not {partition.leader_epoch}")

    def coordinates(self, group: str) -> bool:
        """Whether this node coordinates the group."""
        return not self.ready or self._shards().coordinates(OFFSETS_STREAM, self.partition_of(group))

    def keeps(self, log: Log) -> bool:
        """Whether the log belongs to the stream."""
        return self._stream is not None and log.key.stream_id == self._stream.id

    # -- storing ------------------------------------------------------------------------------------

    def _submit(self, group: str, command: StoreRecords, done: Done) -> None:
        def answered(answer: ShardAnswer | DuramenError) -> None:
            done(answer if isinstance(answer, DuramenError) else None)

        try:
            index = self.partition_of(group)
        except CoordinatorLoading as error:
            done(error)
        else:
            # Groups that are being loaded may have changes to store already.
            self._shards().submit_while_loading(OFFSETS_STREAM, index, command, answered)

    def _append(self, group: str, rows: Sequence[tuple[Key, bytes | None]], done: Done) -> None:
        """Store rows in the group's partition; calls `done` once they are committed and applied."""
        leaving = Counter(row_key(key) for key, value in rows if _leaves(key, value))
        self._leaving += leaving

        def stored(error: DuramenError | None) -> None:
            self._leaving -= leaving
            done(error)

        command = StoreRecords([(encode_key(key), value) for key, value in rows])
        self._submit(group, command, stored if leaving else done)

    def commit(self, group: str, committed: Iterable[tuple[OffsetKey, CommittedOffset]], done: Done) -> None:
        """Store offsets of one group, at least one."""
        self._append(group, [(key, encode_offset(offset)) for key, offset in committed], done)

    def store_group(self, group: str, snapshot: GroupSnapshot, done: Done) -> None:
        """Store a group's metadata."""
        self._append(group, [(GroupKey(group), encode_group(snapshot, self._clock.wall_ms()))], done)

    def store_records(self, group: str, changes: Iterable[tuple[bytes, bytes | None]], done: Done) -> None:
        """Store records of one group, at least one, atomically: keys with values, None for a tombstone.

        The keys are those of `groups.records` or of another kind's records; unknown ones raise BatchCorrupt.
        """
        rows = []
        for record_key, value in changes:
            key = decode_key(record_key)
            if key is None or key.group != group:
                raise BatchCorrupt(f"{record_key!r} is no key of a record of group {group}")
            rows.append((key, value))
        self._append(group, rows, done)

    def remove(self, group: str, keys: Sequence[Key], done: Done) -> None:
        """Delete offsets of a group or the group itself."""
        if keys:
            self._append(group, [(key, None) for key in keys], done)
        else:
            self._store.when_synced(done)  # other kinds of groups have deleted state in other places

    # -- in transactions ----------------------------------------------------------------------------

    def hold(
        self, group: str, producer_id: int, producer_epoch: int,
        committed: Sequence[tuple[OffsetKey, CommittedOffset]], done: Done,
    ) -> None:  # fmt: skip
        """Store offsets of one group, at least one, that take effect once the producer's transaction is committed."""
        try:
            self.check(group)
        except DuramenError as error:
            done(error)
            return
        records = [(encode_key(key), encode_offset(offset)) for key, offset in committed]
        self._submit(group, StoreRecords(records, TransactionProducer(producer_id, producer_epoch)), done)

    def ended(self, log: Log, marker_offset: int, producer_id: int, *, commit: bool) -> None:
        """The transaction marker at `marker_offset` in one of the stream's logs is committed."""
        if self.ready:
            marker = CommittedBatch([], producer_id, transactional=True, marker=COMMIT if commit else ABORT)
            self._shards().committed(OFFSETS_STREAM, log.key.partition, marker_offset, marker_offset + 1, marker)

    def unstable(self, key: OffsetKey) -> bool:
        """Whether an open transaction commits an offset for `key`."""
        return self.ready and self._rows(key.group).unstable(key)

    def unstable_of(self, group: str) -> frozenset[OffsetKey]:
        """The partitions for which open transactions commit offsets in a group."""
        return self._rows(group).unstable_of(group) if self.ready else frozenset()

    # -- reading offsets ----------------------------------------------------------------------------

    def _rows(self, group: str) -> OffsetRows:
        return self._rows_in(self.partition_of(group))

    def _rows_in(self, index: int) -> OffsetRows:
        return OffsetRows(self._shards().rows(OFFSETS_STREAM, index))

    def _each(self, index: int | None) -> Iterator[OffsetRows]:
        """The rows of a partition, or of all that this node coordinates."""
        if index is not None:
            yield self._rows_in(index)
        elif self._stream is not None:
            for partition in self._stream.partitions:
                if self._shards().coordinates(OFFSETS_STREAM, partition.index):
                    yield self._rows_in(partition.index)

    def get(self, key: OffsetKey) -> CommittedOffset | None:
        """The committed offset under `key`."""
        return self._rows(key.group).offset(key) if self.ready else None

    def of_group(self, group: str) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every offset of a group, by topic and partition."""
        return self._rows(group).of_group(group) if self.ready else iter(())

    def each_offset(self) -> Iterator[tuple[OffsetKey, CommittedOffset]]:
        """Every committed offset."""
        for rows in self._each(None):
            yield from rows.each_offset()

    def each_key(self, index: int | None = None) -> Iterator[OffsetKey]:
        """The keys of all committed offsets, or of those in one partition of the stream."""
        for rows in self._each(index):
            yield from rows.each_key()

    def each_with_offsets(self) -> Iterator[str]:
        """The names of all groups with committed offsets."""
        for rows in self._each(None):
            yield from rows.each_with_offsets()

    # -- reading groups -----------------------------------------------------------------------------

    def _value(self, key: Key) -> bytes | None:
        """The value under a key; None for a group that is being removed."""
        if self._leaving and row_key(key) in self._leaving:
            return None
        return self._rows(key.group).value(key) if self.ready else None

    def group(self, group: str) -> tuple[GroupSnapshot, int] | None:
        """A stored classic group, and when it was stored (ms)."""
        value = self._value(GroupKey(group))
        return None if value is None else decode_group(value)

    def has_group(self, group: str) -> bool:
        """Whether a classic group is stored under that name."""
        return self._value(GroupKey(group)) is not None

    def each_classic(self, index: int | None = None) -> Iterator[str]:
        """The names of all stored classic groups, or of those in one partition."""
        for rows in self._each(index):
            yield from rows.each_classic()

    def record(self, key: OtherKey) -> bytes | None:
        """The value under a key of a group of another kind."""
        return self._value(key)

    def records_of(self, group: str) -> Iterator[tuple[bytes, bytes]]:
        """Every record of a group of another kind: key bytes and values."""
        return self._rows(group).records_of(group) if self.ready else iter(())

    def each_other(self, index: int | None = None) -> Iterator[str]:
        """The names of all stored groups of other kinds, or of those in one partition; skips over their records."""
        for rows in self._each(index):
            yield from rows.each_other()


def _leaves(key: Key, value: bytes | None) -> bool:
    """Whether a record is a group's tombstone, which hides the group while it is being written."""
    return value is None and not isinstance(key, OffsetKey)
