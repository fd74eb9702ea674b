"""Rests in the middle of computing: how much of the time a job may take, and what it says of it."""

import pytest

from duramen.sim.machine.clock import ManualClock
from duramen.storage.maintenance.rests import Rests


class Watch(ManualClock):
    """Time goes by while somebody works or pauses, and is counted."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 100.0
        self.pauses: list[float] = []

    def seconds(self) -> float:
        return self.now_s

    def pause(self, duration_s: float) -> None:
        self.pauses.append(duration_s)
        self.now_s += duration_s


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
@pytest.mark.parametrize("piece_s", [0.000_002, 0.000_05, 0.003])
def test_no_more_than_its_share_of_the_time_is_taken(share: float, piece_s: float) -> None:
    clock = Watch()
    rests = Rests(clock, share)
    rests.begin()
    worked_s = 0.0
    longest_s = 0.0001 + 16 * piece_s  # from one look at the clock that is late enough to the next
    for _ in rests.each(range(4000)):
        clock.now_s += piece_s
        worked_s += piece_s
    took_s = clock.now_s - 100.0
    assert took_s + 1e-9 >= (worked_s - longest_s) / share
    assert len(clock.pauses) >= worked_s / longest_s - 1, "the lock is offered after each slice"
    assert took_s - worked_s == pytest.approx(sum(clock.pauses), abs=1e-6)


def test_what_was_rested_is_told_once_to_the_millisecond() -> None:
    clock = Watch()
    rests = Rests(clock, 0.5)
    told_ms = 0
    for _ in range(10):
        rests.begin()
        for _ in rests.each(range(160)):
            clock.now_s += 0.000_02
        told_ms += rests.rested_ms()
    assert told_ms == int(sum(clock.pauses) * 1000)
    assert rests.rested_ms() == 0


def test_who_is_in_a_hurry_does_not_rest_and_time_between_jobs_is_not_work() -> None:
    clock = Watch()
    rests = Rests(clock, 0.1)
    clock.now_s += 3600
    rests.begin()
    for _ in range(16):
        rests.piece()
    assert clock.pauses == []
    rests.hurried = True
    for _ in range(1000):
        clock.now_s += 0.001
        rests.piece()
    assert clock.pauses == []
    assert rests.rested_ms() == 0
