"""One partition as its leader sees it: checks and appends batches, and answers questions about its log."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Final, NamedTuple

from duramen.base.errors import (
    DeletionRefused,
    DuramenError,
    FencedLeaderEpoch,
    OffsetNotAvailable,
    OffsetOutOfRange,
    QueueTransactionRefused,
    TransactionalIdMissing,
    UnknownLeaderEpoch,
)
from duramen.base.ports import Clock
from duramen.broker.batch_checks import StreamRules, check_batch, too_large
from duramen.broker.local_state import LocalState
from duramen.broker.offset_search import OffsetFound, TimeSearch
from duramen.broker.record_counts import LastSearch
from duramen.broker.role import Role
from duramen.codec.batch import (
    HEADER_BYTES,
    TRANSACTIONAL,
    Header,
    header,
    set_append_time,
)
from duramen.codec.sequences import FIRST_DERIVED_ID
from duramen.keyed.floors import SnapshotFloor
from duramen.metadata.partitions import PartitionId
from duramen.storage.log.log import Log
from duramen.storage.log.refused_batches import SENT_AGAIN
from duramen.storage.segment.reader import Slice
from duramen.storage.store import AppendDone, Store, TurnAppend

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "Admission",
    "Partition",
    "Writer",
]

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5

_NOT_NAMED: Final = -1

Admission = Callable[["Partition", Header, Callable[[DuramenError | None], None]], None]
"""Called with a partition, the header of a transactional batch, and a callback, which is called once, in order.

The callback gets None as soon as the batch may be appended, or the reason why it may not.
"""


class Writer(NamedTuple):
    """A producer; `transaction_offset` is the start of its open transaction, -1 without one."""

    producer_id: int
    epoch: int
    last_sequence: int
    last_ms: int
    transaction_offset: int


class Partition:
    """A partition of a stream. `waiting` has the callbacks for a higher high watermark.

    `role` is None on a standalone node, which leads everything. `state` is derived state beside the log, if any,
    `snapshots` is S0 of a keyed stream's replica. `placed` is called when the role or the log changes.
    """

    __slots__ = ("_clock", "_role", "_store", "index", "log", "placed", "snapshots", "state", "stream", "waiting")

    def __init__(
        self, stream: StreamRules, index: int, log: Log, store: Store, clock: Clock, role: Role | None = None
    ) -> None:
        self.stream = stream
        self.index = index
        self.log = log
        self._role = role
        self.state: LocalState | None = None
        self.snapshots: SnapshotFloor | None = None
        self.placed: Callable[[Partition], None] | None = None
        self.waiting: dict[Callable[[Partition], None], None] = {}
        self._store = store
        self._clock = clock
        log.on_advance = self._advanced

    @property
    def role(self) -> Role | None:
        """The role of this node for the partition; None on a standalone node."""
        return self._role

    @role.setter
    def role(self, role: Role) -> None:
        self._role = role
        if self.placed is not None:
            self.placed(self)

    def begin_anew(self) -> None:
        """The log's content is deleted; it continues as an empty log."""
        before = self.log
        self._store.delete(before)
        self.log = self._store.ensure(before.key, before.config)
        if self.state is not None:
            self.state.applied_offset = self.state.floor_offset = 0
        self.log.on_advance = self._advanced
        self.snapshots = None
        before.notify()
        if self.placed is not None:
            self.placed(self)

    def _advanced(self) -> None:
        for wake in list(self.waiting):
            wake(self)

    def committed_offset(self) -> int:
        """Everything below is committed and on disk here; if that is unknown, only offsets that the log lacks.

        A replicated log without a replica yet has an end that may be truncated.
        """
        log = self.log
        if self.role is not None and log.replicated is None:
            return log.start_offset
        return min(log.high_watermark, log.synced_offset)

    @property
    def place(self) -> PartitionId:
        """Its identity in the cluster, also for a live topic, whose own id the cluster does not know."""
        return PartitionId(self.log.key.stream_id, self.index)

    @property
    def leader_epoch(self) -> int:
        """The epoch of the partition's leader, as far as known here; -1 if unknown."""
        return self._store.node_epoch if self.role is None else self.role.epoch

    @property
    def last_stable_offset(self) -> int:
        """The first offset that read_committed readers do not see yet."""
        return self.log.last_stable_offset

    def producers(self) -> list[Writer]:
        """The known producers with an id; derived ids are none that a client has."""
        transactions = self.log.transactions
        return [
            Writer(
                producer_id,
                epoch,
                batches[-1][1] if batches else -1,
                last_ms,
                -1 if (first := transactions.first_offset(producer_id)) is None else first,
            )
            for producer_id, epoch, last_ms, batches in self.log.producers.rows()
            if producer_id < FIRST_DERIVED_ID
        ]

    def check_epoch(self, epoch: int) -> None:
        """Raise unless a client that names the leader's epoch (-1: it does not) knows the present one."""
        if epoch not in (_NOT_NAMED, self.leader_epoch):
            error = FencedLeaderEpoch if epoch < self.leader_epoch else UnknownLeaderEpoch
            raise error(f"the leader epoch is {self.leader_epoch}, not {epoch}")

    def append(
        self,
        batch: bytearray | memoryview,
        done: AppendDone | None,
        admit: Admission | None = None,
        *,
        all_replicas: bool = True,
    ) -> None:
        """Check a producer's batch and append it; from here on the log owns it.

        `admit` decides whether a batch of a transaction may be appended; without it none may. `done` gets the base
        offset once it is acknowledged, or the error; the error may come at once. Without `all_replicas` it is
        acknowledged as soon as this node has it (acks=1).
        """
        try:
            if self.role is not None:
                done = self.role.accept(done or _nobody, all_replicas=all_replicas)
            head = self.check(batch)
        except DuramenError as error:
            self._refuse(batch, done, error)
            return
        recompressing = self.stream.recompressing
        if recompressing is None:
            self._admit(batch, batch, head, done, admit)
        else:
            recompressing.take(self.index, batch, head, partial(self._recompressed, batch, done, admit))

    def _recompressed(
        self, came: bytearray | memoryview, done: AppendDone | None, admit: Admission | None,
        batch: bytearray | memoryview | DuramenError,
    ) -> None:  # fmt: skip
        """A batch has the stream's compression; `came` is the original."""
        if isinstance(batch, DuramenError):
            self._refuse(came, done, batch)
        else:
            self._admit(came, batch, header(batch), done, admit)

    def _admit(
        self, came: bytearray | memoryview, batch: bytearray | memoryview, head: Header, done: AppendDone | None,
        admit: Admission | None,
    ) -> None:  # fmt: skip
        if not head.attributes & TRANSACTIONAL:
            self._admitted(came, batch, head, done, None)
        elif self.stream.shards:
            refused = QueueTransactionRefused(f"{self.stream.name} is a queue space and takes no transactions")
            self._admitted(came, batch, head, done, refused)
        elif admit is not None:
            admit(self, head, partial(self._admitted, came, batch, head, done))
        else:
            error: DuramenError = TransactionalIdMissing(
                "a transactional batch needs a transactional id in its request"
            )
            self._admitted(came, batch, head, done, error)

    def _admitted(
        self, came: bytearray | memoryview, batch: bytearray | memoryview, head: Header, done: AppendDone | None,
        error: DuramenError | None,
    ) -> None:  # fmt: skip
        """A batch may be appended to the log, or `error` is the reason why not."""
        stream = self.stream
        if error is None and came is not batch and len(batch) > stream.max_message_bytes:
            error = too_large(batch, stream)
        if error is None and stream.shards and self.state is not None:
            error = self.state.problem or self.state.refusal(head.records)
            if error is not self.state.problem and self.is_repeated(head):
                error = None
        if error is not None:
            self._refuse(came, done, error)
            return
        if stream.append_time:
            now_ms = self._clock.wall_ms()
            set_append_time(batch, now_ms)
            head = header(batch)
            if came is not batch:
                set_append_time(came, now_ms)  # from which the producer gets its response
        # A batch without a waiting producer (acks=0) waits for the disk only if it counts towards a limit.
        if stream.shards and self.state is not None and (done is not None or max(stream.shard_limits) >= 0):
            done = self.state.once_applied(head.last_offset_delta + 1, len(batch), done)
        self.append_checked(batch, head, done)

    def is_repeated(self, head: Header) -> bool:
        """Whether the store appends nothing for an idempotent producer's batch: it is a duplicate, or is refused."""
        try:
            return head.producer_id >= 0 and self.log.producers.check(head) is not None
        except DuramenError:
            return True

    def append_checked(self, batch: bytearray | memoryview, head: Header, done: AppendDone | None) -> None:
        """Append a batch outside of transactions that `check` accepts unchanged; `done` as for `append`."""
        stream, size = self.stream, len(batch)
        stream.records_in.value += head.records
        stream.bytes_in.value += size
        stream.batch_records.observe(head.records)
        stream.batch_bytes.observe(size)
        self._store.append(self.log, batch, head, self.leader_epoch, done)

    def append_all(self, appends: Sequence[TurnAppend], done: Callable[[DuramenError | None], None]) -> None:
        """As `append_checked` of each; the store's `flush` has to follow (see its `append_all`), and `count_all`."""
        self._store.append_all(self.log, appends, self.leader_epoch, done)

    def count_all(self, appends: Sequence[TurnAppend]) -> None:
        """Count the batches of `append_all`, once they are on disk or without a waiting producer: it is not urgent."""
        stream = self.stream
        for one in appends:
            records, size = one.head.records, len(one.batch)
            stream.records_in.value += records
            stream.bytes_in.value += size
            stream.batch_records.observe(records)
            stream.batch_bytes.observe(size)

    def takes_as_is(self, size: int, max_timestamp: int, now_ms: int) -> bool:
        """Whether `check` accepts every sound batch of this size unchanged, and nothing else decides on it."""
        stream = self.stream
        return (
            self._role is None
            and stream.takes_as_is
            and size <= stream.max_message_bytes
            and max_timestamp - now_ms <= stream.timestamp_after_ms
        )

    def _refuse(self, batch: bytearray | memoryview, done: AppendDone | None, error: DuramenError) -> None:
        if isinstance(error, SENT_AGAIN):
            self.note_refused(batch, error)
        if done is not None:
            done(-1, error)

    def note_refused(self, batch: bytearray | memoryview, error: DuramenError | None = None) -> None:
        """A batch is refused and its producer will send it again: later batches are refused until then."""
        if len(batch) >= HEADER_BYTES:
            self._store.note_refused(self.log, header(batch), error)

    def refused(self, head: Header, error: DuramenError) -> None:
        """A batch with that header was refused before `append`: note it if its producer will send it again."""
        if isinstance(error, SENT_AGAIN):
            self._store.note_refused(self.log, head, error)

    def check(self, batch: bytearray | memoryview) -> Header:
        """The header of a producer's batch that may be appended. Raises the error of `append`.

        If its records are examined, or it has only one, the header's largest timestamp is then that of the records.
        """
        return check_batch(batch, self.stream, self.index, self._clock)

    def store(self, batch: bytearray, head: Header, done: AppendDone) -> None:
        """Append a batch of the broker's own unchanged; `done` as for `append`, with all replicas."""
        try:
            stored = done if self.role is None else self.role.accept(done, all_replicas=True)
        except DuramenError as error:
            done(-1, error)
        else:
            self._store.append(self.log, batch, head, self.leader_epoch, stored)

    def is_read(self, offset: int, leader_epoch: int) -> bool:
        """Whether a standalone node knows at once that a read at `offset` succeeds and finds no records yet.

        True for most partitions of a consumer that has caught up; for others a read tells.
        """
        log = self.log
        return (
            offset == log.synced_offset
            and self._role is None
            and log.replicated is None
            and not log.damage
            and not self.stream.deleted
            and leader_epoch in (_NOT_NAMED, self._store.node_epoch)
        )

    def served(self, slice_: Slice, offset: int) -> None:
        """Count a slice for a consumer that requested the records from `offset` on."""
        self.stream.bytes_out.value += len(slice_)
        if slice_.next_offset > offset:
            self.stream.records_out.value += slice_.next_offset - offset

    def delete_before(self, offset: int, done: Callable[[int, DuramenError | None], None]) -> None:
        """Delete the records before `offset`, -1: before the high watermark (Kafka's DeleteRecords, KIP-107).

        `done` gets the first offset that is left, once that is durable, or (-1, DeletionRefused, OffsetOutOfRange …).
        """
        log = self.log
        try:
            self.check_leads()
            until = self.check_deletion(offset)
        except DuramenError as error:
            done(-1, error)
        else:
            self._store.delete_before(log, until, lambda error: done(log.start_offset if error is None else -1, error))

    def check_deletion(self, offset: int) -> int:
        """The offset up to which `delete_before` would delete. Raises its errors."""
        log = self.log
        until = log.high_watermark if offset == LATEST else offset
        if self.stream.kept:
            raise DeletionRefused(self.stream.kept)
        if not 0 <= until <= log.high_watermark:
            raise OffsetOutOfRange(
                f"offset {until} is not in {log.start_offset} to {log.high_watermark} of partition {self.index}"
            )
        return until

    def check_leads(self) -> None:
        """Raise NotLeader unless this node leads the partition."""
        if self.role is not None:
            self.role.check_leads()

    def check_holds(self) -> None:
        """Raise NotLeader unless this node has an open replica of the partition."""
        if self.role is not None:
            self.role.check_holds()

    # -- asking -------------------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether this node leads the partition."""
        try:
            self.check_leads()
        except DuramenError:
            return False
        return True

    @property
    def in_sync(self) -> Collection[int]:
        """The nodes that may lead it next, as its leader knows; none where this node does not lead it."""
        return () if self.role is None else self.role.in_sync

    @property
    def deposed(self) -> bool:
        """Whether its leadership is in doubt: the node has been cut off for so long that others may lead."""
        return self.role is not None and self.role.deposed

    @property
    def holds(self) -> bool:
        """Whether this node has an open replica, and so knows the high watermark."""
        try:
            self.check_holds()
        except DuramenError:
            return False
        return True

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """(Newest epoch not after `epoch`, its end offset): OffsetForLeaderEpoch (KIP-101, KIP-320).

        (-1, -1) for a future epoch; for one before the log's first, that epoch and the first's offset. Records that are
        not known to be committed count: an earlier leader may have shown them, and this one never truncates them.
        """
        log = self.log
        if epoch > self.leader_epoch or epoch < 0:
            return -1, -1
        if epoch == self.leader_epoch:
            return epoch, log.end_offset
        found, end_offset = log.takeovers.end_of(epoch, log.end_offset)
        if found < 0:
            first = next(iter(log.takeovers), None)
            return epoch, log.end_offset if first is None else max(first.first_offset, log.start_offset)
        return found, end_offset

    def find_offset(self, timestamp: int, done: OffsetFound, *, committed: bool = False) -> None:
        """The offset of the first record at or after `timestamp` (ms), or of one of the special values above.

        With `committed`, as read with `read_committed`. `done` gets OffsetNotAvailable if an earlier leader may have
        shown a higher high watermark than is known here (KIP-207).
        """
        log = self.log
        if self.role is not None and self.role.latest_offset is None and timestamp not in (EARLIEST, EARLIEST_LOCAL):
            done(-1, -1, OffsetNotAvailable("the leader is new and does not know the high watermark yet"))
        elif timestamp == LATEST:
            done(log.visible_end(committed=committed), -1, None)
        elif timestamp in (EARLIEST, EARLIEST_LOCAL):
            done(log.start_offset, -1, None)
        elif timestamp == LATEST_TIERED:
            done(-1, -1, None)
        else:
            search = TimeSearch(log, self._store, self.stream.decoded_limit_bytes, done, committed=committed)
            if timestamp == MAX_TIMESTAMP:
                search.newest()
            else:
                search.at(timestamp)

    def find_last(self, count: int, done: OffsetFound) -> None:
        """The offset from which on readers see `count` records; the log's start where there are less.

        `done` gets an error as of `find_offset`.
        """

        def ended(end_offset: int, _: int, error: DuramenError | OSError | None) -> None:
            if error is not None:
                done(-1, -1, error)
            else:
                LastSearch(self.log, self._store, self.stream.decoded_limit_bytes, done).before(end_offset, count)

        self.find_offset(LATEST, ended)


def _nobody(_: int, __: DuramenError | None) -> None:
    """No request waits for it."""
