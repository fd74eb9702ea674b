"""Who is slow against its peers."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.replication.slowness import WINDOWS, Slowness, p99_ms

LIVE = (1, 2, 3, 4)
WINDOW_MS = 1_000


def windows(slowness: Slowness, times: int, since_ms: int = 0, **latencies_ms: int) -> int:
    """So many windows in which each node, n1 to n4, took so long; when the last one ends."""
    for _ in range(times):
        for name, latency_ms in latencies_ms.items():
            slowness.observe(int(name[1:]), latency_ms)
        since_ms += WINDOW_MS
        assert slowness.close({}, LIVE, since_ms)
    return since_ms


@given(st.lists(st.integers(0, 50), min_size=1, max_size=300))
def test_the_99th_percentile_is_the_nearest_rank(latencies: list[int]) -> None:
    assert p99_ms(Counter(latencies)) == sorted(latencies)[-(-99 * len(latencies) // 100) - 1]


def test_slow_is_who_was_slow_in_several_windows_in_a_row() -> None:
    slowness = Slowness(100, WINDOW_MS, 0)
    now_ms = windows(slowness, WINDOWS - 1, n1=1, n2=2, n3=300)
    assert slowness.eject((2, 3)) is None
    now_ms = windows(slowness, 1, now_ms, n1=1, n2=2, n3=90)
    now_ms = windows(slowness, WINDOWS - 1, now_ms, n1=1, n2=2, n3=300)
    assert slowness.eject((2, 3)) is None
    now_ms = windows(slowness, 1, now_ms, n1=1, n2=2, n3=300)
    assert slowness.eject((2, 3)) == 3
    assert not slowness.may_join(3)
    now_ms = windows(slowness, 1, now_ms, n1=1, n2=2, n3=3)
    assert slowness.may_join(3)
    assert slowness.eject((2, 3)) is None


def test_where_all_are_slow_none_is() -> None:
    slowness = Slowness(100, WINDOW_MS, 0)
    windows(slowness, WINDOWS, n1=900, n2=950, n3=990)
    assert slowness.eject((2, 3)) is None


def test_one_leaves_at_a_time() -> None:
    slowness = Slowness(100, WINDOW_MS, 0)
    now_ms = windows(slowness, WINDOWS, n1=1, n2=500, n3=2, n4=3)
    now_ms = windows(slowness, WINDOWS, now_ms, n1=1, n2=500, n3=2, n4=500)
    assert slowness.eject((2, 3, 4)) == 2
    # It is proposed until it has left; then nobody, until it is fast.
    assert slowness.eject((2, 3, 4)) == 2
    assert slowness.eject((3, 4)) is None
    windows(slowness, 1, now_ms, n1=1, n2=2, n3=2, n4=500)
    assert slowness.eject((3, 4)) == 4


def test_who_answers_nothing_is_as_slow_as_it_has_been_behind() -> None:
    slowness = Slowness(100, WINDOW_MS, 0)
    for window in range(1, WINDOWS + 1):
        slowness.observe(1, 1)
        slowness.observe(2, 1)
        assert slowness.close({3: 700 * window}, LIVE, window * WINDOW_MS)
    assert slowness.eject((2, 3)) == 3


def test_who_is_only_waited_for_is_not_quick_yet() -> None:
    slowness = Slowness(100, WINDOW_MS, 0)
    now_ms = windows(slowness, WINDOWS - 1, n1=500, n2=1, n3=1)
    now_ms += WINDOW_MS
    slowness.observe(2, 1)
    slowness.observe(3, 1)
    assert slowness.close({1: 50}, LIVE, now_ms)  # the next one of its syncs has just begun
    windows(slowness, 1, now_ms, n1=500, n2=1, n3=1)
    assert slowness.is_slow(1)


def test_who_has_to_leave_again_waits_longer() -> None:
    slowness = Slowness(100, WINDOW_MS, 0)
    now_ms, waited = 0, []
    for _ in range(3):
        now_ms = windows(slowness, WINDOWS, now_ms, n1=1, n2=1, n3=500)
        assert slowness.eject((2, 3)) == 3
        waited.append(0)
        while not slowness.may_join(3):
            now_ms = windows(slowness, 1, now_ms, n1=1, n2=1, n3=1)
            waited[-1] += 1
        slowness.joined(3)
    assert waited == [1, 4, 16]


def test_who_led_and_left_joins_after_a_window_in_which_it_is_not_slow() -> None:
    slowness = Slowness(100, WINDOW_MS, 0)
    slowness.suspect(3)
    now_ms = windows(slowness, 1, n1=1, n2=1, n3=500)
    assert not slowness.may_join(3)
    windows(slowness, 1, now_ms, n1=1, n2=1, n3=2)
    assert slowness.may_join(3)


def test_who_had_to_leave_comes_back_where_nothing_is_written() -> None:
    slowness = Slowness(100, WINDOW_MS, 0)
    now_ms = windows(slowness, WINDOWS, n1=1, n2=1, n3=500)
    assert slowness.eject((2, 3)) == 3
    assert slowness.deadline_ms == now_ms + WINDOW_MS
    windows(slowness, 1, now_ms)
    assert slowness.may_join(3)
    assert slowness.deadline_ms is None


def test_nobody_looks_where_no_latency_is_too_much() -> None:
    slowness = Slowness(None, WINDOW_MS, 0)
    slowness.observe(2, 10_000)
    assert slowness.deadline_ms is None
    assert not slowness.close({3: 10_000}, LIVE, 10 * WINDOW_MS)


def test_no_percentile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no latency"):
        p99_ms({})
