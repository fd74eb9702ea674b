import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.demo.report import percentile


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.001, 1))
def test_is_the_smallest_that_enough_do_not_exceed(values: list[float], share: float) -> None:
    ordered = sorted(values)
    found = percentile(ordered, share)
    assert found in ordered
    assert sum(value <= found for value in ordered) >= share * len(ordered) - 1e-6
    assert sum(value < found for value in ordered) < share * len(ordered) + 1e-6


@pytest.mark.parametrize(("share", "expected"), [(0.0, 1.0), (0.5, 2.0), (0.75, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_examples(share: float, expected: float) -> None:
    assert percentile([1.0, 2.0, 3.0, 4.0], share) == expected


def test_of_nothing() -> None:
    assert percentile([], 0.5) == 0
