"""S0 of a replica: the value it sends to its followers, receives from its upstream, and reports."""

from collections.abc import Callable

from duramen.broker.partition import Partition
from duramen.keyed.floors import SnapshotFloor
from duramen.replication.machine import ReplicaMachine
from duramen.replication.messages import ReplicaFetchAnswer, SnapshotBound
from duramen.replication.replica import CheckpointRange

__all__ = ["ReplicaSnapshots"]

_ALL = (1 << 63) - 1


class ReplicaSnapshots:
    """The floor of the partition, if its stream is keyed here or at the leader."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._watched: SnapshotFloor | None = None

    @property
    def bound(self) -> SnapshotBound | None:
        """The snapshot part of a response: read after its batches, because compaction may have advanced in between."""
        floor = self._partition.snapshots
        if floor is None:
            return None
        return SnapshotBound(max(floor.oldest, self._partition.log.whole_from), floor.agreed)

    def hear(self, answer: ReplicaFetchAnswer, size: int) -> bool:
        """An answer of the present epoch came, with so many bytes of batches; whether that is news."""
        bound, partition = answer.snapshots, self._partition
        if bound is None:
            return False
        if partition.snapshots is None:
            partition.snapshots = SnapshotFloor()
        floor, copies = partition.snapshots, size > 0 and answer.asked.end.offset < bound.oldest
        news = floor.hear(bound.oldest, bound.agreed, copies=copies)
        if copies:
            partition.log.supersede(bound.oldest)
        if news:
            floor.heard()
        return news

    def lead(self) -> None:
        """The replica leads from here on."""
        if self._partition.snapshots is not None:
            self._partition.snapshots.lead(self._partition.log.end_offset)

    def cut(self) -> None:
        """The log was truncated or recreated."""
        floor, end_offset = self._partition.snapshots, self._partition.log.end_offset
        if floor is not None:
            floor.cut(end_offset)
            floor.was_cut(end_offset)

    def report(self, machine: ReplicaMachine, moved: Callable[[], None] | None = None) -> None:
        """Report the S0 that is on disk. A replica that may have forgotten the S0 of its source reports none."""
        floor = self._partition.snapshots
        if floor is not self._watched:
            self._watched = floor
            if floor is None:
                machine.state_moved(None, -1)
            else:
                floor.lowest = lambda: machine.lowest_checkpoint
                floor.highest = lambda: machine.highest_checkpoint
        if floor is not None:
            if moved is not None:
                floor.moved = moved
            joins = CheckpointRange(max(floor.agreed, floor.least), floor.oldest)
            machine.state_moved(_ALL if floor.is_kept else -1, floor.reported, joins)
