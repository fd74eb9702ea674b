"""The witness sees all that the replicas of a test do, and raises Broken when one breaks a promise."""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from tests.replication.broken import Broken
from tests.replication.disk import Content

from duramen.base.ids import Position
from duramen.replication.messages import ReplicaBatch
from duramen.replication.replication_wait import ReplicationWaitOutcome

KNOWN: Final = 1 << 62
"""The epoch for what a replica knows from before it was started: then somebody knew already."""


class Committed(NamedTuple):
    """A committed batch and the lowest epoch in which somebody knew."""

    batch: ReplicaBatch
    epoch: int


class Witness:
    """What has happened so far to the partition.

    One leader in an epoch; one content for an epoch and an offset; one history of what is committed or shown, the same
    for everybody, never cut; every later leader has all of it, and so has, when it is committed, the disk of everybody
    who may lead next; the end that clients are told never falls from one epoch to the next.
    """

    def __init__(self, holders: Callable[[], Iterable[tuple[int, Content]]]) -> None:
        self.leaders: dict[int, tuple[int, Content]] = {}
        self.ordered: dict[Position, ReplicaBatch] = {}
        self.committed: list[Committed] = []
        self.told: dict[int, tuple[int, int]] = {}
        self.acknowledged = 0
        self.asked = 0
        self._said_cut: dict[ReplicaBatch, int] = {}
        self._holders = holders

    @property
    def end_offset(self) -> int:
        """Below it all is committed, as far as anybody knows."""
        return self.committed[-1].batch.first_offset + self.committed[-1].batch.records if self.committed else 0

    def led(self, node_id: int, epoch: int, log: Content) -> None:
        """A replica leads."""
        known, _ = self.leaders.setdefault(epoch, (node_id, log))
        if known != node_id or self.leaders[epoch][1] is not log:
            raise Broken(f"{known} led in epoch {epoch}, and {node_id} does")
        for batch, committed_epoch in self.committed:
            if committed_epoch < epoch and not log.has(batch):
                raise Broken(f"{node_id} leads epoch {epoch} without {batch}, committed in epoch {committed_epoch}")

    def appended(self, batch: ReplicaBatch) -> None:
        """A batch was written."""
        known = self.ordered.setdefault(Position(batch.epoch, batch.first_offset), batch)
        if known != batch:
            raise Broken(f"{known} and {batch} are at the same place")

    def shown(self, node_id: int, epoch: int, log: Content, since: int, until: int) -> None:
        """A replica takes everything from `since` to `until` for committed, or shows it."""
        if log.end.offset < until:
            raise Broken(f"{node_id} shows what is below {until} and ends at {log.end}")
        for batch in log.from_offset(since, len(log.batches)):
            if batch.first_offset >= until:
                break
            at = bisect_left(self.committed, batch.first_offset, key=lambda one: one.batch.first_offset)
            if at == len(self.committed):
                self._commit(batch, epoch)
            elif self.committed[at].batch != batch:
                raise Broken(f"{node_id} shows {batch} where {self.committed[at].batch} is")
            elif epoch < self.committed[at].epoch:
                self.committed[at] = Committed(batch, epoch)
                self._later_leaders_have(batch, epoch)

    def cut(self, node_id: int, epoch: int, log: Content, end_offset: int) -> None:
        """A replica lets go of what is behind, in that epoch.

        Who may not lead next, and has not heard yet of the epoch in which a batch was committed, may let go of it.
        """
        may_lead = any(holder == node_id for holder, _ in self._holders())
        for batch in log.from_offset(end_offset, len(log.batches)):
            committed = self._found(batch)
            if committed is not None and (may_lead or committed.epoch <= epoch):
                raise Broken(f"{node_id} cuts {batch}")

    def released(self, batch: ReplicaBatch) -> None:
        """A producer was told that the batch is safe."""
        self.acknowledged += 1
        if not self._is_committed(batch):
            raise Broken(f"{batch} was acknowledged before it was committed")

    def asked_for(self, node_id: int, batch: ReplicaBatch, log: Content, outcome: ReplicationWaitOutcome) -> None:
        """Who asked a replica for a batch was answered."""
        self.asked += outcome in (ReplicationWaitOutcome.REACHED, ReplicationWaitOutcome.CUT)
        is_committed = self._is_committed(batch)
        if outcome is ReplicationWaitOutcome.REACHED and not (is_committed and log.has(batch)):
            raise Broken(f"{node_id} says that it has {batch}, which is not committed, or not on its disk")
        if outcome is ReplicationWaitOutcome.CUT:
            self._said_cut.setdefault(batch, node_id)
            if is_committed:
                raise Broken(f"{node_id} says that {batch} was cut, and it is committed")

    def shown_end(self, epoch: int, offset: int) -> None:
        """A client was told where the log ends by the leader of the epoch."""
        least, most = self.told.get(epoch, (offset, offset))
        if offset < most:
            raise Broken(f"the end that clients are told in epoch {epoch} falls from {most} to {offset}")
        self.told[epoch] = (least, offset)
        for other, (first, last) in self.told.items():
            if (other < epoch and offset < last) or (other > epoch and offset > first):
                raise Broken(f"clients are told the end {offset} in epoch {epoch}, and {first} to {last} in {other}")

    def _is_committed(self, batch: ReplicaBatch) -> bool:
        return self._found(batch) is not None

    def _found(self, batch: ReplicaBatch) -> Committed | None:
        at = bisect_left(self.committed, batch.first_offset, key=lambda one: one.batch.first_offset)
        found = self.committed[at] if at < len(self.committed) else None
        return found if found is not None and found.batch == batch else None

    def _commit(self, batch: ReplicaBatch, epoch: int) -> None:
        if batch.first_offset != self.end_offset:
            raise Broken(f"{batch} is committed, and what is before it is not: {self.end_offset}")
        if batch in self._said_cut:
            raise Broken(f"{batch} is committed, and {self._said_cut[batch]} said that it was cut")
        self.committed.append(Committed(batch, epoch))
        for node_id, log in self._holders():
            if not log.has(batch):
                raise Broken(
                    f"{batch} is committed in epoch {epoch}, and {node_id}, which may lead, has it not on disk"
                )
        self._later_leaders_have(batch, epoch)

    def _later_leaders_have(self, batch: ReplicaBatch, epoch: int) -> None:
        for later, (node_id, log) in self.leaders.items():
            if later > epoch and not log.has(batch):
                raise Broken(f"{batch} is committed in epoch {epoch}, and {node_id} led epoch {later} without it")
