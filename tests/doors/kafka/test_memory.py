"""The account of what requests hold: who gets memory, who waits, and who has to go."""

import pytest

from duramen.base.deadlines import Deadlines
from duramen.base.memory import memory_share_bytes
from duramen.base.metrics import Metrics
from duramen.base.units import MIB
from duramen.doors.kafka.memory import RequestMemory
from duramen.sim.clock import ManualClock

_LIMIT = 100


class _Connection:
    def __init__(self, *, last_produced_ms: int = -1) -> None:
        self.last_progress_ms = 0
        self.last_produced_ms = last_produced_ms
        self.unproven_bytes = 0
        self.granted = 0
        self.half = True
        self.closed = False

    def memory_granted(self) -> None:
        self.granted += 1

    def holds_half_a_request(self) -> bool:
        return self.half

    def reclaim(self) -> None:
        self.closed = True


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def deadlines() -> Deadlines:
    return Deadlines()


@pytest.fixture
def memory(clock: ManualClock, deadlines: Deadlines) -> RequestMemory:
    return RequestMemory(_LIMIT, clock, deadlines, Metrics())


def _proven(clock: ManualClock) -> _Connection:
    return _Connection(last_produced_ms=clock.monotonic_ms())


def test_what_does_not_fit_waits_and_is_served_in_turn(memory: RequestMemory, clock: ManualClock) -> None:
    first, second, third = (_proven(clock) for _ in range(3))
    assert memory.acquire(first, 100)
    assert not memory.acquire(second, 60)
    assert not memory.acquire(third, 40)
    memory.release(50)
    assert (second.granted, third.granted) == (0, 0)
    memory.release(50)
    assert (second.granted, third.granted) == (1, 1)


def test_unfinished_requests_of_strangers_hold_at_most_half(memory: RequestMemory, clock: ManualClock) -> None:
    strangers = [_Connection() for _ in range(5)]
    assert [memory.acquire(stranger, 20) for stranger in strangers] == [True, True, False, False, False]
    assert memory.acquire(_proven(clock), 60)
    # A request that is whole counts as theirs no longer.
    memory.completed(strangers[0])
    memory.release(20)
    assert [stranger.granted for stranger in strangers] == [0, 0, 1, 0, 0]


def test_those_acknowledged_lately_go_before_those_of_long_ago_and_these_before_strangers(
    memory: RequestMemory, clock: ManualClock
) -> None:
    holder = _proven(clock)
    assert memory.acquire(holder, _LIMIT)
    known = _Connection(last_produced_ms=clock.monotonic_ms())
    clock.advance(10_000)
    stranger, lately = _Connection(), _proven(clock)
    for waiting in (stranger, known, lately):
        assert not memory.acquire(waiting, 50)
    order = []
    for _ in range(3):
        memory.release(50)
        order.append([waiting.granted for waiting in (lately, known, stranger)])
        memory.completed(known)
    assert order[-1] == [1, 1, 1]
    assert sum(order[0]) == 1
    assert order[0][2] == 0


def test_strangers_are_served_however_many_others_wait(memory: RequestMemory, clock: ManualClock) -> None:
    assert memory.acquire(_proven(clock), _LIMIT)
    stranger = _Connection()
    assert not memory.acquire(stranger, 50)
    others = [_proven(clock) for _ in range(20)]
    for other in others:
        assert not memory.acquire(other, 50)
    released = 0
    while not stranger.granted:
        memory.release(50)
        released += 1
    assert released <= 5


def test_small_requests_pass_those_that_wait(memory: RequestMemory, clock: ManualClock) -> None:
    assert memory.acquire(_proven(clock), _LIMIT)
    assert not memory.acquire(_proven(clock), 1)
    assert memory.try_take(10)
    assert not memory.try_take(10)


def test_the_silent_are_closed_when_others_wait(
    memory: RequestMemory, clock: ManualClock, deadlines: Deadlines
) -> None:
    silent, lively, answered = _proven(clock), _proven(clock), _proven(clock)
    answered.half = False
    memory.holders.update((silent, lively, answered))
    for holder in (silent, lively, answered):
        assert memory.acquire(holder, 30)
    clock.advance(5000)
    deadlines.fire(clock.monotonic_ms())
    assert not silent.closed
    waiting = _proven(clock)
    assert not memory.acquire(waiting, 40)
    clock.advance(1000)
    lively.last_progress_ms = clock.monotonic_ms()
    deadlines.fire(clock.monotonic_ms())
    assert [one.closed for one in (silent, lively, answered)] == [True, False, False]


def test_who_is_gone_waits_no_more(memory: RequestMemory, clock: ManualClock) -> None:
    assert memory.acquire(_proven(clock), _LIMIT)
    gone, stays = _Connection(), _Connection()
    assert not memory.acquire(gone, 30)
    assert not memory.acquire(stays, 30)
    memory.forget(gone)
    memory.release(_LIMIT)
    assert (gone.granted, stays.granted) == (0, 1)


@pytest.mark.parametrize("limit_mib", [128, 192, 256, 512, 4096])
def test_shares_leave_room_for_the_process_itself(limit_mib: int) -> None:
    share = memory_share_bytes(limit_mib * MIB)
    assert 10 * MIB <= share <= limit_mib * MIB // 4
    assert limit_mib * MIB - 2 * share >= 100 * MIB
