"""Turns of reads that wait for the disk: how much of the time they take while somebody writes, and otherwise."""

import random
from collections.abc import Callable

import pytest

from duramen.base.deadlines import Deadlines
from duramen.doors.kafka.connection.cold_reads import ColdReads
from duramen.sim.machine.clock import ManualClock
from duramen.storage.segment.reader import Blocked


class Disk:
    """A store whose reads take as long as it is told, one at a time."""

    def __init__(self, clock: ManualClock, takes_ms: Callable[[], int]) -> None:
        self.wal_end = 0
        self.error: OSError | None = None
        self.reads = 0
        self.read_ms = 0
        self._clock = clock
        self._takes_ms = takes_ms

    def unblock(self, blocked: Blocked, done: Callable[[BaseException | None], None]) -> None:
        took_ms = self._takes_ms()
        self.reads += 1
        self.read_ms += took_ms
        self._clock.advance(took_ms)
        blocked.apply(blocked.job())
        done(self.error)


def run(share: float, *, readers: int, writing: bool, takes_ms: Callable[[], int], reads: int = 400) -> float:
    """How much of the time the reads take of readers that ask again as soon as they are answered."""
    clock, deadlines = ManualClock(), Deadlines()
    disk = Disk(clock, takes_ms)
    cold = ColdReads(disk, clock, deadlines, share)
    waiting: list[int] = list(range(readers))
    turns = dict.fromkeys(range(readers), 0)
    began_s = clock.seconds()

    def ask(reader: int) -> None:
        def done(error: BaseException | None) -> None:
            assert error is None
            turns[reader] += 1
            waiting.append(reader)

        cold.read(Blocked(lambda: None, lambda _: None), done)

    while disk.reads < reads:
        if writing:
            disk.wal_end += 1
        while waiting:
            ask(waiting.pop(0))
            if disk.reads >= reads:
                break
        clock.advance(1)
        deadlines.fire(clock.monotonic_ms())
    assert max(turns.values()) - min(turns.values()) <= 2, "everybody gets the same"
    return disk.read_ms / 1000 / (clock.seconds() - began_s)


@pytest.mark.parametrize("readers", [1, 3, 20])
@pytest.mark.parametrize("share", [0.1, 0.25, 0.5])
def test_while_somebody_writes_reads_take_their_share_however_many_there_are(share: float, readers: int) -> None:
    chance = random.Random(readers)
    taken = run(share, readers=readers, writing=True, takes_ms=lambda: chance.randint(1, 8))
    assert taken == pytest.approx(share, rel=0.3)


@pytest.mark.parametrize("readers", [1, 3])
def test_nobody_waits_where_nobody_writes_or_nothing_is_to_be_left(readers: int) -> None:
    for share, writing in ((0.25, False), (1.0, True)):
        assert run(share, readers=readers, writing=writing, takes_ms=lambda: 5) > 0.9


def test_a_disk_that_stands_still_does_not_make_readers_rest_for_as_long() -> None:
    taken = run(0.25, readers=1, writing=True, takes_ms=lambda: 1000, reads=40)
    assert taken > 0.9


def test_errors_are_told() -> None:
    clock = ManualClock()
    disk = Disk(clock, lambda: 1)
    disk.error = OSError("no")
    told: list[BaseException | None] = []
    ColdReads(disk, clock, Deadlines(), 0.25).read(Blocked(lambda: None, lambda _: None), told.append)
    assert told == [disk.error]
