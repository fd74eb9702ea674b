"""Who catches up gets what producers hardly feel, and never less than lets it catch up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.broker.replicas.throttle.control import FIRST_RATE, LEAST_RATE, MOST_RATE, CatchUpRate

_WINDOW_MS = 100
_MIB = 1 << 20
_USUAL_US = 2_000
_RARE_EVERY, _RARE_TIMES = 40, 4


class _Node:
    """A node on which an acknowledgement takes longer where more than `spare` bytes a second go to who catches up.

    Some take longer anyway, so that the slowest of a hundred is not the slowest of ten.
    """

    def __init__(self, spare: float, *, per_window: int = 20) -> None:
        self.yielding = CatchUpRate(0)
        self.now_ms = 0
        self.sent_bytes = 0
        self.usual_us = _USUAL_US
        self._spare = spare
        self.per_window = per_window
        self._taken = 0

    def usual(self, windows: int, *, paused: bool = True) -> None:
        """Nobody catches up, or nobody is served; by chance, where it is not a pause."""
        for _ in range(windows):
            self._window(0, paused=paused)

    def catch_up(self, windows: int, wrote: int = 0) -> list[int]:
        """The rates of so many windows, in each of which as much goes as may, and so many bytes are written."""
        rates = []
        for _ in range(windows):
            rates.append(self.yielding.rate(self.now_ms))
            self.yielding.wrote(wrote, self.now_ms)
            self._window(rates[-1], paused=False)
        return rates

    def _window(self, rate: int, *, paused: bool) -> None:
        size = rate * _WINDOW_MS // 1000
        self.yielding.sent(size, self.now_ms)
        self.sent_bytes += size
        for _ in range(self.per_window):
            self._taken += 1
            beyond = max(0.0, rate - self._spare) / _MIB
            times = _RARE_TIMES if self._taken % _RARE_EVERY == 0 else 1
            self.yielding.took(int(self.usual_us * times * (1 + beyond)), self.now_ms, leads=True, paused=paused)
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
    """It is learned in the pauses: there it is slow too."""
    node = _Node(spare=100 * _MIB)
    node.usual(50)
    node.catch_up(100)
    node.usual_us *= 5
    assert min(node.catch_up(180)) < 2 * LEAST_RATE
    rates = []
    for _ in range(8):
        node.usual(20)
        rates += node.catch_up(180)
    assert rates[-1] > 50 * _MIB


def test_where_all_is_quicker_again_that_is_what_is_usual() -> None:
    node = _Node(spare=100 * _MIB)
    node.usual_us *= 5
    node.usual(50)
    node.usual_us //= 5
    for _ in range(8):
        node.usual(20)
        node.catch_up(180)
    node.usual_us *= 2
    assert min(node.catch_up(50)) < 2 * LEAST_RATE


def test_a_pause_changes_no_rate_and_what_is_quiet_by_chance_is_not_usual() -> None:
    node = _Node(spare=100 * _MIB)
    node.usual(50)
    before = node.catch_up(100)[-1]
    node.usual(20)
    assert node.catch_up(1)[0] == pytest.approx(before, rel=0.05)
    node.usual_us *= 10
    for _ in range(20):
        node.usual(5, paused=False)
        node.catch_up(1)
    node.usual_us //= 5
    assert min(node.catch_up(50)) < 2 * LEAST_RATE


def test_one_in_ten_is_slow() -> None:
    node = _Node(spare=30 * _MIB)
    node.usual(50)
    node.catch_up(300)
    rates = node.catch_up(2_000)
    slow = sum(rate > 30.5 * _MIB for rate in rates) / len(rates)
    assert 0.05 < slow < 0.15
    assert sum(rates) / len(rates) > 20 * _MIB


def test_a_moment_in_which_a_machine_stands_still_costs_seconds() -> None:
    node = _Node(spare=1000 * _MIB)
    node.usual(50)
    before = node.catch_up(100)[-1]
    node.usual_us *= 10
    node.catch_up(1)
    node.usual_us //= 10
    rates = node.catch_up(60)
    assert rates[0] > before / 3
    assert rates[-1] > before


def test_what_stands_still_again_and_again_is_given_way_to() -> None:
    """The slowest of ten does not show it."""
    node = _Node(spare=1000 * _MIB)
    node.usual(50)
    rates = []
    for _ in range(50):
        rates += node.catch_up(19)
        node.usual_us *= 10
        rates += node.catch_up(1)
        node.usual_us //= 10
    assert max(rates[500:]) < 3 * LEAST_RATE


def test_few_acknowledgements_do_too() -> None:
    node = _Node(spare=100 * _MIB, per_window=1)
    node.usual(200)
    rates = node.catch_up(1_000)
    assert max(rates) <= 1.06 * 100 * _MIB
    assert sum(rates[500:]) / 500 > 60 * _MIB


def test_a_disk_that_stands_still_is_no_disk_that_nobody_needs() -> None:
    node = _Node(spare=100 * _MIB)
    node.usual(50)
    before = node.catch_up(20)[-1]
    node.per_window = 0
    assert max(node.catch_up(8)) <= 1.06 * before
    assert node.catch_up(40)[-1] > 100 * before


def test_who_begins_to_write_is_given_way_to_at_once() -> None:
    node = _Node(spare=100 * _MIB)
    node.usual(50)
    before = node.catch_up(20)[-1]
    node.per_window = 0
    node.catch_up(60)
    node.per_window = 20
    node.yielding.took(_USUAL_US, node.now_ms, leads=True, paused=False)
    assert node.yielding.rate(node.now_ms) <= 1.06 * before


@pytest.mark.parametrize("spare", [0, 30 * _MIB])
def test_what_is_lacking_does_not_grow(spare: int) -> None:
    node = _Node(spare)
    node.usual(50)
    written = 5 * _MIB
    rates = node.catch_up(100, written)
    assert min(rates[50:]) > 1.9 * written * 1000 / _WINDOW_MS


def test_where_it_is_not_known_what_is_usual_it_stays_as_it_begins_until_a_pause() -> None:
    node = _Node(spare=64 * _MIB)
    assert set(node.catch_up(100)) == {FIRST_RATE}
    node.usual(20)
    rates = node.catch_up(400)
    assert max(rates) <= 1.06 * 64 * _MIB
    assert sum(rates[100:]) / 300 > 40 * _MIB


def test_after_a_rest_it_begins_anew() -> None:
    node = _Node(spare=1000 * _MIB)
    node.usual(50)
    assert node.catch_up(100)[-1] > 4 * FIRST_RATE
    node.usual(40)
    assert node.catch_up(1) == [FIRST_RATE]


def test_somebody_writes_as_long_as_there_are_acknowledgements() -> None:
    node = _Node(spare=0)
    assert not node.yielding.has_writers(node.now_ms)
    node.usual(2)
    assert node.yielding.has_writers(node.now_ms)
    node.per_window = 0
    node.usual(20)
    assert not node.yielding.has_writers(node.now_ms)


_EVENT = st.one_of(
    st.tuples(st.just("took"), st.integers(0, 10_000_000)),
    st.tuples(st.just("sent"), st.integers(0, 1 << 30)),
    st.tuples(st.just("wrote"), st.integers(0, 1 << 30)),
    st.tuples(st.just("wait"), st.integers(0, 100_000)),
)


@given(st.lists(_EVENT, max_size=200))
def test_whatever_happens_it_is_between_the_least_and_the_most(events: list[tuple[str, int]]) -> None:
    yielding, now_ms = CatchUpRate(0), 0
    for what, amount in events:
        if what == "wait":
            now_ms += amount
        elif what == "took":
            yielding.took(amount, now_ms, leads=amount % 3 == 0, paused=amount % 2 == 1)
        elif what == "sent":
            yielding.sent(amount, now_ms)
        else:
            yielding.wrote(amount, now_ms)
        assert LEAST_RATE <= yielding.rate(now_ms) <= MOST_RATE


@given(st.lists(st.integers(0, 1_000_000), max_size=300), st.integers(1, 1 << 40))
def test_whatever_acknowledgements_take_all_is_sent_in_bounded_time(taken_us: list[int], left: int) -> None:
    """By the least rate and its doubling: a TiB within two hours and a half."""
    yielding, now_ms = CatchUpRate(0), 0
    for one_us in taken_us:
        yielding.took(one_us, now_ms, leads=True, paused=True)
    windows = 0
    while left > 0:
        size = yielding.rate(now_ms)  # a second at a time
        yielding.sent(size, now_ms)
        yielding.took(10_000_000, now_ms, leads=True, paused=False)
        left -= size
        now_ms += 1000
        windows += 1
    assert windows <= 9_000
