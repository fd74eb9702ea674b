"""The participant side of transactions: writes markers into the partitions that this node leads.

A marker may come twice, from the current coordinator or from a deposed one. Markers with an older leader epoch of
`__transaction_state` than the newest known here are refused. That epoch comes from the metadata, from markers and from
responses of coordinators (docs/adr/transactions-on-a-cluster.md).
"""

from collections import Counter
from collections.abc import Callable
from functools import partial

from duramen.base.countdown import Countdown
from duramen.base.errors import DuramenError, NotCoordinator, StreamNotFound
from duramen.base.ids import StreamId
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.codec.batch import header
from duramen.codec.markers import encode_marker
from duramen.coordinators.transaction.cluster.requests import WriteMarkers, WriteMarkersResponse
from duramen.coordinators.transaction.completion import TransactionDependencies
from duramen.metadata.partitions import PartitionId
from duramen.rpc.errors import Refused
from duramen.storage.log.log import LogKey
from duramen.transactions.values import SERVER_VERSION

__all__ = ["Participant"]

Done = Callable[[DuramenError | None], None]


class Participant:
    """Writes markers. `ends` is called before each marker with the partition and the producer id."""

    def __init__(self, places: TransactionDependencies, clock: Clock, ends: Callable[[Partition, int], None]) -> None:
        self._places = places
        self._clock = clock
        self._ends = ends
        self._epochs: dict[int, int] = {}  # the newest epochs of coordinators, by their partition
        self._ending: Counter[tuple[LogKey, int]] = Counter()  # markers being written

    def check(self, coordinator: int, epoch: int) -> None:
        """Raise NotCoordinator if a newer epoch of a partition of `__transaction_state` is known."""
        place = self._places.log.place(coordinator)
        known = max(self._epochs.get(coordinator, -1), self._places.membership.partition(place).leader_epoch)
        if epoch < known:
            raise NotCoordinator(f"another node coordinates these transactions since epoch {known}, after {epoch}")
        self._epochs[coordinator] = epoch

    def is_ending(self, partition: Partition, producer_id: int) -> bool:
        """Whether a marker of a producer is being appended to the log."""
        return (partition.log.key, producer_id) in self._ending

    def write(self, request: WriteMarkers, done: Callable[[WriteMarkersResponse], None]) -> None:
        """Write the markers; calls `done` once each is on all in-sync replicas, or was refused."""
        results: list[Refused | None] = [None] * len(request.partitions)
        parts = Countdown(lambda: done(WriteMarkersResponse(tuple(results))), len(results) + 1)

        def written(at: int, error: DuramenError | None) -> None:
            results[at] = None if error is None else Refused.of(error)
            parts.count_down()

        for at, (stream, index) in enumerate(request.partitions):
            try:
                self.check(request.coordinator, request.coordinator_epoch)
                partition = self._led(PartitionId(StreamId(bytes=stream), index))
            except DuramenError as error:
                written(at, error)
            else:
                self._end(partition, request, partial(written, at))
        parts.count_down()

    def _led(self, place: PartitionId) -> Partition:
        stream = self._places.streams.find_id(place.stream_id)
        if stream is None:
            raise StreamNotFound(f"there is no stream {place.stream_id}")
        partition = stream.partition(place.partition)
        partition.check_leads()
        return partition

    def _end(self, partition: Partition, request: WriteMarkers, done: Done) -> None:
        if _is_over(partition, request):
            done(None)
            return
        log = partition.log
        key = log.key, request.producer_id

        def stored(offset: int, error: DuramenError | None) -> None:
            self._ending[key] -= 1
            if not self._ending[key]:
                del self._ending[key]
            if error is None and self._places.offsets.keeps(log):
                self._places.offsets.ended(log, offset, request.producer_id, commit=request.commit)
            done(error)

        marker = encode_marker(
            request.producer_id, request.epoch,
            commit=request.commit, coordinator_epoch=request.coordinator_epoch, now_ms=self._clock.wall_ms(),
            sequence=request.sequence, first_offset=log.transactions.first_offset(request.producer_id),
        )  # fmt: skip
        self._ending[key] += 1
        self._ends(partition, request.producer_id)
        partition.store(marker, header(marker), stored)


def _is_over(partition: Partition, request: WriteMarkers) -> bool:
    """Whether the producer has written since, so that this marker was written before.

    If nothing is open in the producer's present epoch, the marker is written, perhaps a second time: its offset then
    shows when all replicas have it, and late batches of the transaction are refused for their epoch.
    """
    epoch = partition.log.producers.epoch(request.producer_id)
    if request.version < SERVER_VERSION:
        return request.epoch < epoch
    opened = partition.log.transactions.first_offset(request.producer_id) is not None
    return request.epoch < epoch or (request.epoch == epoch and opened)
