"""The witness sees all that the replicas of a test do, and raises Broken when one breaks a promise."""

from bisect import bisect_left
from typing import NamedTuple

from tests.raft.disk import Content, digest

from duramen.raft.epochs import EpochEnd
from duramen.raft.messages import EntryBatch
from duramen.raft.voters import ReplicaId


class Broken(AssertionError):
    """A promise of the quorum was broken."""


class Stuck(AssertionError):
    """Nothing was broken, but the quorum does not go on where it should."""


class Committed(NamedTuple):
    """A committed batch, the epoch in which somebody first knew, and the digest up to its end."""

    batch: EntryBatch
    epoch: int
    digest: int


class Witness:
    """What has happened so far, to the whole quorum.

    One leader in an epoch; one vote of a replica in an epoch, restarts included; one history of what is committed, the
    same for everybody; every later leader has all of it; one content for an epoch and an offset.
    """

    def __init__(self) -> None:
        self.leaders: dict[int, ReplicaId] = {}
        self.votes: dict[tuple[ReplicaId, int], ReplicaId] = {}
        self.ordered: dict[EpochEnd, EntryBatch] = {}
        self.committed: list[Committed] = []
        self.firsts: list[int] = []

    @property
    def high_watermark(self) -> int:
        """Below it all is committed, as far as anybody knows."""
        return self.committed[-1].batch.first + self.committed[-1].batch.entries if self.committed else 0

    def voted(self, voter: ReplicaId, epoch: int, candidate: ReplicaId) -> None:
        """A vote was given, and said so."""
        known = self.votes.setdefault((voter, epoch), candidate)
        if known != candidate:
            raise Broken(f"{voter} voted in epoch {epoch} for {known} and for {candidate}")

    def led(self, leader: ReplicaId, epoch: int, log: Content) -> None:
        """A replica leads."""
        known = self.leaders.setdefault(epoch, leader)
        if known != leader:
            raise Broken(f"{known} and {leader} led in epoch {epoch}")
        for entry in reversed(self.committed):
            if entry.epoch < epoch:
                self._has(leader, log, entry)
                return

    def appended(self, batch: EntryBatch) -> None:
        """A batch was written."""
        known = self.ordered.setdefault(EpochEnd(batch.epoch, batch.first), batch)
        if known != batch:
            raise Broken(f"{known} and {batch} are at the same place")

    def committed_up_to(self, replica: ReplicaId, epoch: int, log: Content, since: int, high_watermark: int) -> None:
        """A replica takes everything from `since` to its high watermark for committed."""
        for batch in log.batches:
            if batch.first + batch.entries <= since:
                continue
            if batch.first >= high_watermark:
                break
            if batch.first < self.high_watermark:
                at = bisect_left(self.firsts, batch.first)
                if self.committed[at].batch != batch:
                    raise Broken(f"{replica} has {batch} where {self.committed[at].batch} was committed")
            else:
                before = self.committed[-1].digest if self.committed else 0
                self.committed.append(Committed(batch, epoch, digest(before, batch)))
                self.firsts.append(batch.first)
        if log.end.offset < high_watermark:
            raise Broken(f"{replica} takes {high_watermark} for committed and ends at {log.end}")

    def installed(self, replica: ReplicaId, log: Content) -> None:
        """A replica begins with a snapshot."""
        end = log.snapshot.offset
        at = bisect_left(self.firsts, end) - 1
        if end > self.high_watermark or (end and self.committed[at].digest != log.digest):
            raise Broken(f"the snapshot {log.snapshot} of {replica} is not what was committed")

    def _has(self, leader: ReplicaId, log: Content, entry: Committed) -> None:
        batch = entry.batch
        if batch.first < log.snapshot.offset:
            return
        if not any(own == batch for own in log.batches):
            raise Broken(f"{leader} leads without {batch}, which was committed in epoch {entry.epoch}")
