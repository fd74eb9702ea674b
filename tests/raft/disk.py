"""A replica's disk in tests: what is written, and what of it a crash leaves."""

import zlib
from typing import NamedTuple

from duramen.raft.ballots import Ballot
from duramen.raft.epochs import NOTHING, EpochEnd
from duramen.raft.messages import EntryBatch
from duramen.raft.replica import RaftDiskState
from duramen.raft.voters import NO_VOTERS, Voters


def digest(before: int, batch: EntryBatch) -> int:
    """What a snapshot holds in these tests: a checksum of all that was committed, from batch to batch."""
    return zlib.crc32(repr((batch.epoch, batch.first, batch.payload)).encode(), before)


class Content(NamedTuple):
    """A log: a snapshot, with the voters and the digest that it holds, and the batches behind it."""

    snapshot: EpochEnd = NOTHING
    voters: Voters = NO_VOTERS
    digest: int = 0
    batches: tuple[EntryBatch, ...] = ()

    @property
    def end(self) -> EpochEnd:
        """Where it ends."""
        if not self.batches:
            return self.snapshot
        last = self.batches[-1]
        return EpochEnd(last.epoch, last.first + last.entries)


class Disk:
    """The ballot, which is written and synced in one; the log as it is written, and as it was when last synced."""

    def __init__(self, voters: Voters = NO_VOTERS) -> None:
        self.ballot = Ballot()
        self.damaged = False  # whether what was synced may be lost, as far as a start knows
        self.synced = self.written = Content(voters=voters)

    def kept(self) -> RaftDiskState:
        """What a replica that starts finds."""
        log = self.written
        return RaftDiskState(self.ballot, log.snapshot, log.voters, log.batches, self.damaged)

    def crash(self) -> None:
        """The process ends; what was not synced is gone."""
        self.written = self.synced

    def lose(self, batches: int) -> None:
        """While no process runs, damage takes the last batches of what was synced, as the next start notices."""
        kept = self.synced.batches[: max(0, len(self.synced.batches) - batches)]
        self.written = self.synced = self.synced._replace(batches=kept)
        self.damaged = True

    def append(self, batch: EntryBatch) -> None:
        """Write a batch to the end."""
        if batch.first != self.written.end.offset:
            raise AssertionError(f"{batch} does not follow {self.written.end}")
        self.written = self.written._replace(batches=(*self.written.batches, batch))

    def cut(self, end_offset: int) -> None:
        """Let go of what is behind; batches are never cut apart."""
        kept = tuple(batch for batch in self.written.batches if batch.first < end_offset)
        self.written = self.written._replace(batches=kept)
        if self.written.end.offset != end_offset:
            raise AssertionError(f"{end_offset} is in the middle of a batch")

    def install(self, snapshot: EpochEnd, voters: Voters, held: int) -> None:
        """Begin anew with a snapshot."""
        self.written = Content(snapshot, voters, held)

    def compact(self, end_offset: int) -> None:
        """Make a snapshot of what is below `end_offset`, the end of a batch; it is synced when the log is."""
        snapshot, voters, held, batches = self.written
        gone = [batch for batch in batches if batch.first < end_offset]
        for batch in gone:
            held = digest(held, batch)
            voters = voters if batch.voters is None else batch.voters
        if gone:
            snapshot = EpochEnd(gone[-1].epoch, gone[-1].first + gone[-1].entries)
            self.written = Content(snapshot, voters, held, batches[len(gone) :])

    def batches_from(self, offset: int, most: int) -> tuple[EntryBatch, ...]:
        """Up to so many batches from there on."""
        return tuple(batch for batch in self.written.batches if batch.first >= offset)[:most]
