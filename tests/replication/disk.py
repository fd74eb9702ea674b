"""A replica's disk in tests: the log as it is written, and as it was when last synced."""

from bisect import bisect_left
from typing import NamedTuple

from tests.replication.broken import Broken

from duramen.base.ids import Position
from duramen.replication.messages import ReplicaBatch
from duramen.replication.replica import ReplicaDiskState

Row = tuple[int, int, int]


class Content(NamedTuple):
    """A log: where it begins, its batches, its leader-epoch cache."""

    start: int = 0
    batches: tuple[ReplicaBatch, ...] = ()
    takeovers: tuple[Row, ...] = ()

    @property
    def end(self) -> Position:
        """The end that names this history."""
        offset = self.batches[-1].first_offset + self.batches[-1].records if self.batches else self.start
        return Position(self.takeovers[-1][0] if self.takeovers else -1, offset)

    def append(self, batch: ReplicaBatch, leader_id: int) -> "Content":
        """With one batch more."""
        if batch.first_offset != self.end.offset:
            raise Broken(f"{batch} does not follow {self.end}")
        takeovers = self.takeovers
        if batch.epoch != self.end.leader_epoch:
            takeovers = (*takeovers, (batch.epoch, leader_id, batch.first_offset))
        return Content(self.start, (*self.batches, batch), takeovers)

    def cut(self, end_offset: int) -> "Content":
        """Without what is behind; batches are never cut apart."""
        batches = self.batches[: bisect_left(self.batches, end_offset, key=lambda batch: batch.first_offset)]
        found = Content(self.start, batches, tuple(row for row in self.takeovers if row[2] < end_offset))
        if found.end.offset != end_offset:
            raise Broken(f"{end_offset} is in the middle of a batch")
        return found

    def start_at(self, offset: int) -> "Content":
        """Without what is before."""
        gone = bisect_left(self.batches, offset, key=lambda batch: batch.first_offset)
        before = [row for row in self.takeovers if row[2] <= offset]
        clamped = [(epoch, leader_id, offset) for epoch, leader_id, _ in before[-1:]]
        return Content(offset, self.batches[gone:], (*clamped, *self.takeovers[len(before) :]))

    def from_offset(self, offset: int, most: int) -> tuple[ReplicaBatch, ...]:
        """Up to so many batches from there on."""
        at = bisect_left(self.batches, offset, key=lambda batch: batch.first_offset)
        return self.batches[at : at + most]

    def has(self, batch: ReplicaBatch) -> bool:
        """Whether it is in the log, or was before the start moved."""
        if batch.first_offset < self.start:
            return True
        at = bisect_left(self.batches, batch.first_offset, key=lambda one: one.first_offset)
        return at < len(self.batches) and self.batches[at] == batch


class Disk:
    """The log as it is written, and as a loss of power leaves it; `high_watermark` is noted with each sync."""

    def __init__(self) -> None:
        self.written = self.synced = Content()
        self.high_watermark = 0

    def kept(self) -> ReplicaDiskState:
        """What a replica that starts finds; recovery has synced it."""
        self.synced = self.written
        log = self.written
        return ReplicaDiskState(log.takeovers, log.start, log.end.offset, self.high_watermark)

    def lose_power(self, survive: int) -> None:
        """What was not synced is gone, or up to so many batches of it survive where it only grew."""
        synced, written = self.synced, self.written
        if written.batches[: len(synced.batches)] == synced.batches and written.start == synced.start:
            kept = written.batches[: len(synced.batches) + survive]
            self.written = written.cut(kept[-1].first_offset + kept[-1].records) if kept else synced
        else:
            self.written = synced
        self.synced = self.written
