"""The account of what requests hold: who gets memory, who waits, and who has to go."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.deadlines import Deadlines
from duramen.base.memory import memory_share_bytes
from duramen.base.metrics import Metrics
from duramen.base.units import MIB
from duramen.doors.kafka.connection.memory import RequestMemory
from duramen.sim.machine.clock import ManualClock

_LIMIT = 100


class _Connection:
    def __init__(self, *, last_produced_ms: int = -1) -> None:
        self.last_progress_ms = 0
        self.last_produced_ms = last_produced_ms
        self.unproven_bytes = 0
        self.granted = 0
        self.half = 1
        self.closed = False

    def memory_granted(self) -> None:
        self.granted += 1

    def half_request_bytes(self) -> int:
        return self.half

    def whole_request_bytes(self) -> int:
        return self.half

    def keeps_us_waiting(self) -> bool:
        return bool(self.half)

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
    answered.half = 0
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


def test_half_is_given_on_when_a_stranger_who_held_it_is_gone(memory: RequestMemory, clock: ManualClock) -> None:
    stranger, known = _Connection(), _Connection(last_produced_ms=0)
    clock.advance(10_000)
    assert memory.acquire(stranger, 50)
    assert not memory.acquire(known, 50)
    memory.release(50)
    assert known.granted == 0
    memory.forget(stranger)
    assert known.granted == 1


def test_a_stranger_alone_may_have_it_all_piece_by_piece(memory: RequestMemory) -> None:
    stranger = _Connection()
    assert [memory.acquire(stranger, size) for size in (10, 30, 60)] == [True, True, True]


class _Client(_Connection):
    """Sends a request of `size` bytes; its buffer doubles whenever it is full, as the door's connections have it."""

    def __init__(self, memory: RequestMemory, size: int, *, known: bool) -> None:
        super().__init__(last_produced_ms=0 if known else -1)
        self.half = 0
        self._memory = memory
        self._size = size
        self._wanted = 0
        self.done = False

    def go_on(self) -> None:
        """The next bytes come."""
        if self._wanted or self.done or self.closed:
            return
        if self.half == self._size:
            self._memory.completed(self)
            self.half, self.done = 0, True
            self._memory.release(self._size)
            return
        self._wanted = min(self._size, max(1, 2 * self.half)) - self.half
        if self._memory.acquire(self, self._wanted):
            self._grow()

    def whole_request_bytes(self) -> int:
        return self._size

    def _grow(self) -> None:
        self.half += self._wanted
        self._wanted = 0

    def memory_granted(self) -> None:
        self._grow()

    def reclaim(self) -> None:
        self.closed = True

    def lost(self) -> None:
        """The connection is gone after it was closed."""
        freed, self.half = self.half, 0
        self._memory.release(freed)
        self._memory.forget(self)


@given(
    st.lists(st.tuples(st.integers(1, _LIMIT), st.booleans()), min_size=1, max_size=30), st.integers(0, 1 << 32),
    st.booleans(),
)  # fmt: skip
def test_whatever_waits_for_whatever_everybody_comes_to_an_end(
    requests: list[tuple[int, bool]], seed: int, late: bool
) -> None:
    clock, deadlines, chance = ManualClock(), Deadlines(), random.Random(seed)
    memory = RequestMemory(_LIMIT, clock, deadlines, Metrics())
    clients = [_Client(memory, size, known=known) for size, known in requests]
    memory.holders.update(clients)
    if late:
        clock.advance(10_000)
    for _ in range(60):
        for client in chance.sample(clients, len(clients)):
            for _ in range(chance.randint(0, 3)):
                client.go_on()
            client.last_progress_ms = clock.monotonic_ms()
        clock.advance(500)
        deadlines.fire(clock.monotonic_ms())
        for client in clients:
            if client.closed and client in memory.holders:
                client.lost()
    assert all(client.done or client.closed for client in clients)
    assert any(client.done for client in clients)
    assert memory.acquire(_Connection(), _LIMIT)


def test_a_crowd_that_sends_half_of_its_requests_does_not_keep_one_that_sends_all_of_it_for_long() -> None:
    clock, deadlines = ManualClock(), Deadlines()
    memory = RequestMemory(_LIMIT, clock, deadlines, Metrics())
    clients = [_Client(memory, 32, known=False) for _ in range(100)]
    memory.holders.update(clients)
    seconds, honest = 0, clients[-1]
    while not honest.done:
        for client in clients:
            for _ in range(6):
                if client is honest or client.half < 16:
                    client.go_on()
                    client.last_progress_ms = clock.monotonic_ms()
        clock.advance(1000)
        deadlines.fire(clock.monotonic_ms())
        seconds += 1
        for client in [client for client in clients if client.closed]:
            clients.remove(client)
            client.lost()
        if honest.closed:  # it comes again
            honest = _Client(memory, 32, known=False)
            clients.append(honest)
            memory.holders.add(honest)
    assert seconds <= 30
