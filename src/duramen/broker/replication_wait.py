"""Waits until this node has a record safely, standalone or as a replica, or until the record is cut."""

from collections.abc import Callable

from duramen.base.deadlines import Deadline, Deadlines
from duramen.base.ids import Position
from duramen.base.ports import Clock
from duramen.broker.partition import Partition
from duramen.broker.replicas.recovery import takeovers_of
from duramen.replication.history import ReplicaHistory
from duramen.replication.replication_wait import ReplicationWaitOutcome, judge

__all__ = ["wait_replicated"]

Reached = Callable[[ReplicationWaitOutcome], None]


def wait_replicated(
    partition: Partition, record: Position, wait_ms: int, clock: Clock, deadlines: Deadlines, done: Reached
) -> None:
    """Call `done` with the outcome of a record: at once, or within `wait_ms`.

    Raises NotLeader if this node has no replica of the partition, or the error of a stopped replica.
    """
    deadline_ms = clock.monotonic_ms() + wait_ms
    if partition.role is not None:
        partition.role.wait_replicated(record, done, deadline_ms)
    else:
        _Wait(partition, record, done).begin(deadlines, deadline_ms, waits=wait_ms > 0)


class _Wait:
    """A wait on a standalone node: its consumers see all its records."""

    def __init__(self, partition: Partition, record: Position, done: Reached) -> None:
        self._partition = partition
        self._record = record
        self._done = done
        self._deadline: Deadline | None = None

    def begin(self, deadlines: Deadlines, deadline_ms: int, *, waits: bool) -> None:
        outcome = self._look()
        if outcome is None and waits:
            self._partition.waiting[self._risen] = None
            self._deadline = deadlines.at(deadline_ms, lambda: self._end(ReplicationWaitOutcome.TIMED_OUT))
        else:
            self._done(outcome or ReplicationWaitOutcome.TIMED_OUT)

    def _look(self) -> ReplicationWaitOutcome | None:
        log = self._partition.log
        return judge(
            ReplicaHistory(takeovers_of(log), log.start_offset, log.end_offset), log.high_watermark, self._record
        )

    def _risen(self, _: Partition) -> None:
        outcome = self._look()
        if outcome is not None:
            self._end(outcome)

    def _end(self, outcome: ReplicationWaitOutcome) -> None:
        self._partition.waiting.pop(self._risen, None)
        if self._deadline is not None:
            self._deadline.cancel()
        self._done(outcome)
