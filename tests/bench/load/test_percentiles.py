"""Percentiles as far as a sample carries them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.bench.load.percentiles import POINTS, Latencies


@given(st.lists(st.integers(1, 5_000_000), min_size=1, max_size=3000))
def test_a_percentile_is_given_only_where_ten_samples_lie_beyond_it(took_us: list[int]) -> None:
    found = Latencies(took_us)
    for point in POINTS:
        carried = round(len(took_us) * (100 - point), 6) >= 1000
        assert (found.at_ms(point) is not None) == (carried or point == 0)


@given(st.lists(st.integers(1, 5_000_000), min_size=20, max_size=500))
def test_values_are_those_of_the_sample_to_three_digits(took_us: list[int]) -> None:
    found, ordered = Latencies(took_us), sorted(took_us)
    assert found.at_ms(0) == pytest.approx(ordered[0] / 1000, rel=0.002)
    assert found.at_ms(50) == pytest.approx(ordered[(len(ordered) + 1) // 2 - 1] / 1000, rel=0.002)
    assert found.max_ms == pytest.approx(ordered[-1] / 1000, rel=0.002)


@given(st.lists(st.lists(st.integers(1, 10_000), max_size=50), max_size=5))
def test_runs_merge_into_the_sample_of_all(runs: list[list[int]]) -> None:
    merged = Latencies.merged([Latencies(run) for run in runs])
    assert merged.carried_ms() == Latencies([one for run in runs for one in run]).carried_ms()
    assert merged.count == sum(map(len, runs))


def test_no_samples_carry_nothing() -> None:
    assert Latencies().carried_ms() == {}
    assert Latencies().max_ms == 0


def test_what_is_out_of_range_counts_as_the_nearest() -> None:
    assert Latencies([-5]).max_ms == pytest.approx(0.001)
    assert Latencies([10**12]).max_ms == pytest.approx(600_000, rel=0.002)
