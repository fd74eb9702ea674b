"""The history of one partition over all replicas: leaders, the order of batches, commits.

A batch is its epoch and its first offset: two with the same epoch and offset must be equal. So a log is known by its
leader epochs and its end. Pure.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from duramen.replication.history import ReplicaHistory
from duramen.sim.machine.trace import BrokenPromise

__all__ = ["KNOWN", "Holding", "KnownBatch", "PartitionLedger"]

KNOWN: Final = 1 << 62
"""The epoch for state of a replica from before its start: it was known already."""


class Holding(Protocol):
    """The part of a log that counts: all of it, or the part on disk."""

    def has(self, batch: "KnownBatch") -> bool:
        """Whether a batch is there, or was let go."""


class KnownBatch(NamedTuple):
    """A committed batch, the lowest leader epoch in which that was known, and the replicas that truncated it then."""

    first_offset: int
    next_offset: int
    epoch: int
    crc: int
    known_epoch: int
    cut_by: frozenset[int] = frozenset()


class _Leader(NamedTuple):
    node_id: int
    life: int
    log: ReplicaHistory


class PartitionLedger:
    """The history of a partition, which must be unique.

    `holders` are the nodes that may lead next, and their disks; `cutting`, the replicas that have truncated records
    which are committed now and still in their log.
    """

    def __init__(
        self,
        name: str,
        holders: Callable[[], Iterable[tuple[int, Holding]]],
        cutting: Callable[[KnownBatch], Iterable[int]],
    ) -> None:
        self.name = name
        self.committed: list[KnownBatch] = []
        self.trimmed_offset = 0  # up to which a client requested deletions
        self._holders = holders
        self._cutting = cutting
        self._ordered: dict[tuple[int, int], tuple[int, int]] = {}  # by epoch and first offset: next offset, CRC
        self._leaders: dict[int, _Leader] = {}
        self._told: dict[int, tuple[int, int]] = {}

    @property
    def end_offset(self) -> int:
        """Below it all is committed, as far as anybody knows."""
        return self.committed[-1].next_offset if self.committed else 0

    @property
    def epochs(self) -> int:
        """The number of epochs with a leader."""
        return len(self._leaders)

    def broken(self, what: str) -> BrokenPromise:
        """The error for a broken promise."""
        return BrokenPromise(f"{self.name}: {what}")

    # -- operations of replicas ---------------------------------------------------------------------

    def appended(self, node_id: int, epoch: int, first_offset: int, next_offset: int, crc: int) -> None:
        """A batch was written."""
        found = next_offset, crc
        if self._ordered.setdefault((epoch, first_offset), found) != found:
            raise self.broken(f"node {node_id} writes another batch at {first_offset} than there is in epoch {epoch}")

    def led(self, node_id: int, life: int, epoch: int, log: ReplicaHistory) -> None:
        """A replica leads; `log` is its log."""
        known = self._leaders.get(epoch)
        if known is not None:
            if known[:2] != (node_id, life):
                raise self.broken(f"node {known.node_id} led in epoch {epoch}, and node {node_id} does")
            return
        log = ReplicaHistory(log.takeovers_after(-1), log.start_offset, log.end_offset)
        self._leaders[epoch] = _Leader(node_id, life, log)
        for batch in self.committed:
            if batch.known_epoch < epoch and not has(log, batch):
                raise self.broken(f"node {node_id} leads epoch {epoch} without {batch}")

    def shown(self, node_id: int, epoch: int, log: ReplicaHistory, since: int, until: int) -> None:
        """A replica takes everything from `since` to `until` for committed, or shows it."""
        if log.end_offset < until:
            raise self.broken(f"node {node_id} shows what is below {until} and ends at {log.end_offset}")
        offset = max(since, log.start_offset)
        if offset < self.end_offset:
            offset = self._compare(node_id, epoch, log, offset, until)
        while offset < until:
            batch_epoch = log.epoch_at(offset)
            ordered = self._ordered.get((batch_epoch, offset))
            if ordered is None:
                raise self.broken(f"node {node_id} shows at {offset} what nobody ordered in epoch {batch_epoch}")
            if offset != self.end_offset and self.committed:
                raise self.broken(f"node {node_id} shows {offset}, and what is before it is not committed")
            batch = KnownBatch(offset, ordered[0], batch_epoch, ordered[1], epoch)
            self._commit(batch._replace(cut_by=frozenset(self._cutting(batch))))
            offset = batch.next_offset

    def _compare(self, node_id: int, epoch: int, log: ReplicaHistory, offset: int, until: int) -> int:
        """The committed records that it shows are the true ones."""
        at = bisect_left(self.committed, offset + 1, key=lambda one: one.next_offset)
        while at < len(self.committed) and self.committed[at].first_offset < until:
            batch = self.committed[at]
            if log.epoch_at(max(batch.first_offset, log.start_offset)) != batch.epoch:
                raise self.broken(f"node {node_id} shows other records where {batch} is")
            if epoch < batch.known_epoch:
                self.committed[at] = batch = batch._replace(known_epoch=epoch)
                self._later_leaders_have(batch)
            at += 1
            offset = batch.next_offset
        return offset

    def cut(self, node_id: int, epoch: int, log: ReplicaHistory, end_offset: int) -> None:
        """A replica truncates `log` to `end_offset`, in that epoch.

        A replica that may not lead next, and did not know the epoch in which a batch was committed, may truncate it.
        """
        may_lead = any(holder == node_id for holder, _ in self._holders())
        at = bisect_left(self.committed, end_offset, key=lambda one: one.first_offset)
        for batch in self.committed[at:]:
            if not may_lead and (batch.known_epoch > epoch or node_id in batch.cut_by):
                continue
            if batch.next_offset <= log.end_offset and log.epoch_at(batch.first_offset) == batch.epoch:
                raise self.broken(f"node {node_id} cuts {batch}")

    def starts(self, node_id: int, start_offset: int) -> None:
        """A replica has deleted records before that offset."""
        if start_offset > max(self.trimmed_offset, 0) and start_offset > self.end_offset:
            raise self.broken(f"node {node_id} begins at {start_offset}; nobody let go of more than {self.end_offset}")

    def shown_end(self, epoch: int, offset: int) -> None:
        """A client got the end of the log from the leader of the epoch."""
        least, most = self._told.get(epoch, (offset, offset))
        if offset < most:
            raise self.broken(f"the end that clients are told in epoch {epoch} falls from {most} to {offset}")
        self._told[epoch] = least, offset
        for other, (first, last) in self._told.items():
            if (other < epoch and offset < last) or (other > epoch and offset > first):
                raise self.broken(f"the end is {offset} in epoch {epoch}, and {first} to {last} in epoch {other}")

    def released(self, crc: int, first_offset: int) -> None:
        """A producer's batch is acknowledged by all in-sync replicas at that offset."""
        at = bisect_left(self.committed, first_offset, key=lambda one: one.first_offset)
        if at == len(self.committed) or self.committed[at].first_offset != first_offset:
            raise self.broken(f"a batch is acknowledged at {first_offset}, where nothing is committed")
        if self.committed[at].crc != crc:
            raise self.broken(f"a batch is acknowledged at {first_offset}, where another is committed")

    # -- consequences -------------------------------------------------------------------------------

    def _commit(self, batch: KnownBatch) -> None:
        self.committed.append(batch)
        for node_id, holding in self._holders():
            if not holding.has(batch):
                raise self.broken(f"{batch} is committed, and node {node_id}, which may lead next, has it not on disk")
        self._later_leaders_have(batch)

    def _later_leaders_have(self, batch: KnownBatch) -> None:
        for epoch, leader in self._leaders.items():
            if epoch > batch.known_epoch and not has(leader.log, batch):
                raise self.broken(f"{batch} is committed, and node {leader.node_id} led epoch {epoch} without it")

    def holders_have_all(self) -> None:
        """Every node that may lead next has all committed records."""
        for node_id, holding in self._holders():
            for batch in self.committed:
                if not holding.has(batch):
                    raise self.broken(f"node {node_id} may lead next, and has {batch} not on its disk")


def has(log: ReplicaHistory, batch: KnownBatch) -> bool:
    """Whether a log has a batch, or has let it go."""
    if batch.first_offset < log.start_offset:
        return True
    return batch.next_offset <= log.end_offset and log.epoch_at(batch.first_offset) == batch.epoch
