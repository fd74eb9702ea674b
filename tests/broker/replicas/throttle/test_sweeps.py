"""Sweeps over many replicas: all of them, in order, a bounded number in each turn."""

from collections import deque
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from duramen.broker.replicas.throttle.sweeps import Sweeps

_AT_ONCE = 256


@given(st.lists(st.tuples(st.integers(0, 900), st.booleans()), max_size=6))
def test_every_sweep_meets_all_in_order_and_no_turn_is_long(wanted: list[tuple[int, bool]]) -> None:
    turns: deque[Callable[[], None]] = deque()
    sweeps: Sweeps[int] = Sweeps(turns.append)
    met: list[tuple[int, int]] = []
    longest = 0
    for number, (count, waits) in enumerate(wanted):
        before = len(met)
        sweeps.begin(range(count), lambda one, number=number: met.append((number, one)))  # type: ignore[misc]
        longest = max(longest, len(met) - before)
        while turns and waits:
            before = len(met)
            turns.popleft()()
            longest = max(longest, len(met) - before)
    while turns:
        before = len(met)
        turns.popleft()()
        longest = max(longest, len(met) - before)
    assert met == [(number, one) for number, (count, _) in enumerate(wanted) for one in range(count)]
    assert longest <= _AT_ONCE


def test_what_is_ended_does_nothing_more() -> None:
    turns: deque[Callable[[], None]] = deque()
    sweeps: Sweeps[int] = Sweeps(turns.append)
    met: list[int] = []
    sweeps.begin(range(2 * _AT_ONCE), met.append)
    sweeps.end()
    turns.popleft()()
    assert met == list(range(_AT_ONCE))
    assert not turns
