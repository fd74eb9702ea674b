"""Who catches up is served in turns, at a rate."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from duramen.base.deadlines import Deadlines
from duramen.broker.replicas.throttle.throttle import PAUSE_MS, PERIOD_MS, UNLIMITED, CatchUpThrottle
from duramen.sim.machine.scheduler import VirtualClock

_RATE = 1000
_SIZES = st.lists(st.integers(0, 5000), max_size=30)


def _run(deadlines: Deadlines, clock: VirtualClock) -> None:
    while (next_ms := deadlines.next_ms()) is not None:
        clock.now_us = max(clock.now_us, 1000 * next_ms)
        deadlines.fire(clock.monotonic_ms())


@given(_SIZES)
def test_what_is_sent_is_paid_for_before_the_next_turn(sizes: list[int]) -> None:
    clock, deadlines = VirtualClock(), Deadlines()
    begun_ms = clock.monotonic_ms()
    pace = CatchUpThrottle(_RATE, clock, deadlines)
    served: list[tuple[int, int]] = []

    def serve(number: int, size: int) -> None:
        served.append((number, clock.monotonic_ms()))
        pace.spent(size)

    for number, size in enumerate(sizes):
        pace.ask(partial(serve, number, size), pauses=True)
    _run(deadlines, clock)
    assert [number for number, _ in served] == list(range(len(sizes)))
    for number, at_ms in served:
        assert 0 <= at_ms - begun_ms - sum(sizes[:number]) * 1000 / _RATE <= 1


def test_nobody_goes_before_who_went_has_sent() -> None:
    clock, deadlines = VirtualClock(), Deadlines()
    pace = CatchUpThrottle(_RATE, clock, deadlines)
    gone: list[str] = []
    pace.ask(lambda: gone.append("first"), pauses=True)
    pace.ask(lambda: gone.append("second"), pauses=False)
    _run(deadlines, clock)
    assert gone == ["first"]
    pace.spent(0)
    assert gone == ["first", "second"]
    pace.ask(lambda: gone.append("third"), pauses=True)
    pace.end()
    pace.spent(0)
    assert gone == ["first", "second"]
    assert deadlines.next_ms() is None


def test_without_a_rate_nobody_has_to_ask() -> None:
    assert not CatchUpThrottle(UNLIMITED, VirtualClock(), Deadlines()).limited


def test_while_somebody_writes_it_pauses_now_and_then() -> None:
    clock, deadlines = VirtualClock(), Deadlines()
    pace = CatchUpThrottle(UNLIMITED, clock, deadlines)
    served: list[int] = []

    def serve() -> None:
        served.append(clock.wall_ms() % PERIOD_MS)
        pace.spent(100_000)
        pace.took(1_000, leads=True)
        pace.ask(serve, pauses=True)

    for _ in range(50):
        pace.took(1_000, leads=True)
        clock.now_us += 100_000
    pace.ask(serve, pauses=True)
    until_ms = clock.monotonic_ms() + 2 * PERIOD_MS
    while clock.monotonic_ms() < until_ms:
        clock.now_us = max(clock.now_us, 1000 * (deadlines.next_ms() or 0))
        deadlines.fire(clock.monotonic_ms())
    assert min(served) >= PAUSE_MS
    assert max(served) > PERIOD_MS - 100
    assert len(served) > 1_000


def test_where_nobody_writes_it_does_not_pause() -> None:
    clock, deadlines = VirtualClock(), Deadlines()
    pace = CatchUpThrottle(UNLIMITED, clock, deadlines)
    clock.now_us += 1000 * (PERIOD_MS - clock.wall_ms() % PERIOD_MS)
    gone: list[bool] = []
    pace.ask(lambda: gone.append(True), pauses=True)
    assert gone


def test_who_lacks_only_what_was_written_just_now_does_not_wait_for_a_pause_to_end() -> None:
    clock, deadlines = VirtualClock(), Deadlines()
    pace = CatchUpThrottle(UNLIMITED, clock, deadlines)
    clock.now_us += 1000 * (PERIOD_MS - clock.wall_ms() % PERIOD_MS)
    pace.took(1_000, leads=True)
    gone: list[str] = []
    pace.ask(lambda: gone.append("far"), pauses=True)
    pace.ask(lambda: gone.append("near"), pauses=False)
    assert gone == ["near"]
    pace.spent(0)
    clock.now_us += 1000 * PAUSE_MS
    deadlines.fire(clock.monotonic_ms())
    assert gone == ["near", "far"]


@given(st.lists(st.booleans(), max_size=30))
def test_outside_of_pauses_all_go_in_the_order_in_which_they_ask(pauses: list[bool]) -> None:
    clock, deadlines = VirtualClock(), Deadlines()
    pace = CatchUpThrottle(_RATE, clock, deadlines)
    gone: list[int] = []

    def go(number: int) -> None:
        gone.append(number)
        pace.spent(_RATE // 10)

    for number, pausing in enumerate(pauses):
        pace.ask(partial(go, number), pauses=pausing)
    _run(deadlines, clock)
    assert gone == list(range(len(pauses)))
