"""Access of clients to a simulated node: their requests, and the path directly to the broker."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, Protocol

from duramen.base.errors import DuramenError
from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.broker.partition import Partition
from duramen.coordinators.group.coordinator import CommitMember
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.service.broker import Broker
from duramen.storage.scan import read_slice
from duramen.storage.store import AppendDone

__all__ = ["AtTheBroker", "FetchedData", "NodeAccess"]


class FetchedData(NamedTuple):
    """The result of a fetch of one partition: `data`, which should reach up to `reach`, or an error; and its offsets.

    `aborted` has producer id and first offset of aborted transactions, for read_committed consumers.
    """

    data: bytes
    error: BaseException | None
    high_watermark: int
    start_offset: int
    reach: int
    aborted: Sequence[tuple[int, int]] = ()


FetchDone = Callable[[FetchedData], None]
CommitDone = Callable[[DuramenError | None], None]
ProducerDone = Callable[[int, DuramenError | None], None]
OffsetDone = Callable[[int | None], None]


class NodeAccess(Protocol):
    """Requests of clients to a node. Each `done` is called once, or never if the process ends before.

    `later`: responses may arrive some time after they were sent.
    """

    later: bool

    def produce(self, partition: Partition, batch: bytes, done: AppendDone) -> None:
        """Append a batch."""

    def new_producer_id(self, done: ProducerDone) -> None:
        """An id for an idempotent producer."""

    def fetch(self, partition: Partition, offset: int, max_bytes: int, done: FetchDone, *, committed: bool) -> None:
        """Whole batches from `offset` on, at once; with `committed` those that are decided."""

    def commit(self, key: OffsetKey, offset: int, member: CommitMember, done: CommitDone) -> None:
        """Store the offset of a group."""

    def committed(self, key: OffsetKey, done: OffsetDone) -> None:
        """The offset that a group has stored."""


class AtTheBroker:
    """Calls, without a door."""

    later = False

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def produce(self, partition: Partition, batch: bytes, done: AppendDone) -> None:
        """Append a batch."""
        partition.append(bytearray(batch), done)

    def new_producer_id(self, done: ProducerDone) -> None:
        """An id for an idempotent producer."""
        self._broker.producer_ids.allocate(done)

    def fetch(self, partition: Partition, offset: int, max_bytes: int, done: FetchDone, *, committed: bool) -> None:
        """Whole batches from `offset` on, at once; with `committed` those that are decided."""
        self._broker.fetches.fetch(
            [PartitionFetch(partition, offset, max_bytes, isolation=int(committed))], min_bytes=1, max_bytes=max_bytes,
            max_wait_ms=0, done=partial(self._fetched, offset, done),
        )  # fmt: skip

    def _fetched(self, offset: int, done: FetchDone, fetched: Sequence[FetchResult]) -> None:
        one = fetched[0]
        if one.error is not None or one.slice is None:
            done(FetchedData(b"", one.error, one.high_watermark, one.start_offset, offset))
            return
        reach = one.slice.next_offset if one.slice.next_offset >= 0 else one.high_watermark

        def read(data: bytes | DuramenError | OSError) -> None:
            error = None if isinstance(data, bytes) else data
            found = data if isinstance(data, bytes) else b""
            done(FetchedData(found, error, one.high_watermark, one.start_offset, reach, one.aborted))

        read_slice(self._broker.store, one.slice, read)

    def commit(self, key: OffsetKey, offset: int, member: CommitMember, done: CommitDone) -> None:
        """Store the offset of a group."""

        def committed(result: list[DuramenError | None] | DuramenError) -> None:
            done(result[0] if isinstance(result, list) else result)

        def ready(error: DuramenError | None) -> None:
            if error is not None:
                done(error)
                return
            value = CommittedOffset(offset, -1, "", self._broker.now_ms())
            self._broker.groups.commit(key.group, member, [(key, value)], committed)

        self._broker.internal_streams.ensure_offsets(ready)

    def committed(self, key: OffsetKey, done: OffsetDone) -> None:
        """The offset that a group has stored."""
        stored = self._broker.groups.committed(key)
        done(None if stored is None else stored.offset)
