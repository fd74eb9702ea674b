"""Whether a target is met, and by how much not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.bench.report.targets import Rounds, at_least, at_most, not_measured
from duramen.bench.scenarios.effort import FULL, scaled


@given(st.floats(0.01, 100), st.floats(0.01, 100))
def test_a_ratio_is_met_from_the_wanted_one_on(ratio: float, wanted: float) -> None:
    outcome = at_least("load", ratio, wanted, "Kafka", "10 against 5")
    assert outcome.met == (ratio >= wanted)
    assert bool(outcome.short) != outcome.met


def test_how_much_is_missing_is_said() -> None:
    assert at_least("load", 3.0, 4.0, "Kafka", "").short == "25 % short"
    assert at_most("memory", 90.0, 80.0, "MiB").short == "10 MiB over"
    assert at_most("memory", 80.0, 80.0, "MiB").met
    assert not_measured("load", "much", "no peer").met is None


@given(st.lists(st.tuples(st.floats(1, 1000), st.floats(1.5, 3)), min_size=1, max_size=9))
def test_a_bad_moment_that_hits_both_does_not_count(rounds: list[tuple[float, float]]) -> None:
    found = Rounds()
    for speed, factor in rounds:
        found.add("other", speed)
        found.add("ours", speed * factor)
    factors = sorted(factor for _, factor in rounds)
    assert factors[0] - 1e-9 <= found.ratio("ours", "other") <= factors[-1] + 1e-9


def test_a_ratio_needs_the_same_rounds() -> None:
    found = Rounds()
    found.add("ours", 1.0)
    with pytest.raises(RequestInvalid, match="same rounds"):
        found.ratio("ours", "other")
    assert found.medians == {"ours": 1.0}


def test_effort_scales() -> None:
    assert scaled(FULL.rounds, 1.0) == FULL
    small = scaled(1, 0.001)
    assert small.rounds == small.starts == 1
    assert small.memory_records >= 3
