"""Who catches up gets what producers do not feel, and never less than lets it catch up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.broker.replicas.yielding import FIRST_RATE, LEAST_RATE, MOST_RATE, Yielding

_WINDOW_MS = 100
_MIB = 1 << 20
_USUAL_US = 2_000


class _Node:
    """A node on which an acknowledgement takes longer where more than `spare` bytes a second go to who catches up."""

    def __init__(self, spare: float, *, per_window: int = 20) -> None:
        self.yielding = Yielding(0)
        self.now_ms = 0
        self.sent_bytes = 0
        self.usual_us = _USUAL_US
        self._spare = spare
        self.per_window = per_window

    def usual(self, windows: int) -> None:
        """Nobody catches up."""
        for _ in range(windows):
            self._window(0)

    def catch_up(self, windows: int, wrote: int = 0) -> list[int]:
        """The rates of so many windows, in each of which as much goes as may, and so many bytes are written."""
        rates = []
        for _ in range(windows):
            rates.append(self.yielding.rate(self.now_ms))
            self.yielding.wrote(wrote, self.now_ms)
            self._window(rates[-1])
        return rates

    def _window(self, rate: int) -> None:
        size = rate * _WINDOW_MS // 1000
        self.yielding.sent(size, self.now_ms)
        self.sent_bytes += size
        for _ in range(self.per_window):
            beyond = max(0.0, rate - self._spare) / _MIB
            self.yielding.took(int(self.usual_us * (1 + beyond)), self.now_ms)
        self.now_ms += _WINDOW_MS


def test_it_begins_slowly_and_takes_what_is_left() -> None:
    node = _Node(spare=100 * _MIB)
    node.usual(50)
    rates = node.catch_up(400)
    assert rates[0] == FIRST_RATE
    settled = rates[100:]
    assert max(settled) <= 1.06 * 100 * _MIB
    assert sum(rate > 100 * _MIB for rate in settled) < len(settled) / 8
    assert sum(settled) / len(settled) > 60 * _MIB


def test_where_nobody_writes_it_takes_all() -> None:
    node = _Node(spare=0, per_window=0)
    assert node.catch_up(60)[-1] == MOST_RATE


def test_where_all_hurts_it_takes_the_least_and_that_grows() -> None:
    node = _Node(spare=0)
    node.usual(50)
    rates = node.catch_up(36_000)  # an hour
    assert rates[20] < 1.01 * LEAST_RATE
    assert max(rates[20:600]) < 2 * LEAST_RATE
    assert rates[-1] > 1000 * LEAST_RATE


def test_where_something_else_makes_it_slow_that_is_what_is_usual() -> None:
    node = _Node(spare=100 * _MIB)
    node.usual(50)
    node.catch_up(100)
    node.usual_us *= 5
    rates = node.catch_up(400)
    assert min(rates) < 2 * LEAST_RATE
    assert rates[-1] > 50 * _MIB


def test_one_in_a_hundred_is_slow_also_where_slowness_comes_in_bursts() -> None:
    node = _Node(spare=30 * _MIB)
    node.usual(50)
    node.catch_up(300)
    rates = node.catch_up(2_000)
    slow = sum(rate > 30.25 * _MIB for rate in rates) / len(rates)
    assert 0.005 < slow < 0.015
    assert sum(rates) / len(rates) > 15 * _MIB


def test_a_disk_that_stands_still_is_no_disk_that_nobody_needs() -> None:
    node = _Node(spare=100 * _MIB)
    node.usual(50)
    before = node.catch_up(20)[-1]
    node.per_window = 0
    assert max(node.catch_up(8)) <= 1.06 * before
    assert node.catch_up(40)[-1] > 100 * before


@pytest.mark.parametrize("spare", [0, 30 * _MIB])
def test_what_is_lacking_does_not_grow(spare: int) -> None:
    node = _Node(spare)
    node.usual(50)
    written = 5 * _MIB
    rates = node.catch_up(100, written)
    assert min(rates[50:]) > 1.9 * written * 1000 / _WINDOW_MS


def test_what_is_usual_is_learned_at_the_first_rate_where_it_is_not_known() -> None:
    node = _Node(spare=64 * _MIB)
    rates = node.catch_up(400)
    assert rates[:4] == [FIRST_RATE] * 4
    assert max(rates) <= 1.06 * 64 * _MIB


def test_after_a_rest_it_begins_anew() -> None:
    node = _Node(spare=1000 * _MIB)
    node.usual(50)
    assert node.catch_up(100)[-1] > 4 * FIRST_RATE
    node.usual(12)
    assert node.catch_up(1) == [FIRST_RATE]


_EVENT = st.one_of(
    st.tuples(st.just("took"), st.integers(0, 10_000_000)),
    st.tuples(st.just("sent"), st.integers(0, 1 << 30)),
    st.tuples(st.just("wrote"), st.integers(0, 1 << 30)),
    st.tuples(st.just("wait"), st.integers(0, 100_000)),
)


@given(st.lists(_EVENT, max_size=200))
def test_whatever_happens_it_is_between_the_least_and_the_most(events: list[tuple[str, int]]) -> None:
    yielding, now_ms = Yielding(0), 0
    for what, amount in events:
        if what == "wait":
            now_ms += amount
        elif what == "took":
            yielding.took(amount, now_ms)
        elif what == "sent":
            yielding.sent(amount, now_ms)
        else:
            yielding.wrote(amount, now_ms)
        assert LEAST_RATE <= yielding.rate(now_ms) <= MOST_RATE


@given(st.lists(st.integers(0, 1_000_000), max_size=300), st.integers(1, 1 << 40))
def test_whatever_acknowledgements_take_all_is_sent_in_bounded_time(taken_us: list[int], left: int) -> None:
    """By the least rate and its doubling: a TiB within two hours and a half."""
    yielding, now_ms = Yielding(0), 0
    for one_us in taken_us:
        yielding.took(one_us, now_ms)
    windows = 0
    while left > 0:
        size = yielding.rate(now_ms)  # a second at a time
        yielding.sent(size, now_ms)
        yielding.took(10_000_000, now_ms)
        left -= size
        now_ms += 1000
        windows += 1
    assert windows <= 9_000
