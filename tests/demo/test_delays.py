import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import DemoFailed
from duramen.demo.delays import Delay, check_same, grid_of, mean_min
from duramen.demo.expected import expected_delays
from duramen.demo.flights import find_dataset

DELAYS = [
    Delay("AA", 5, 10, 8, 16),
    Delay("AA", 7, 10, 10, 100),
    Delay("B6", 5, 4, 4, 200),
    Delay("B6", 1, 1, 0, 0),
]


def test_the_mean_is_of_those_that_departed() -> None:
    assert mean_min(DELAYS[:2]) == 116 / 18
    assert mean_min(DELAYS[3:]) is None
    assert mean_min([]) is None


def test_a_grid_has_the_latest_carrier_first_and_hours_in_which_anything_departed() -> None:
    grid = grid_of(DELAYS)
    assert grid.carriers == ("B6", "AA")
    assert grid.hours == (5, 7)
    assert grid.means == ((50.0, None), (2.0, 10.0))


def test_a_grid_of_spans_of_hours() -> None:
    grid = grid_of(DELAYS, [(5, 8), (9, 12)])
    assert grid.hours == (5, 9)
    assert grid.means == ((50.0, None), (116 / 18, None))


@given(st.permutations(DELAYS))
def test_the_same_in_any_order_is_the_same(delays: list[Delay]) -> None:
    assert check_same(delays, DELAYS) == 4


@pytest.mark.parametrize(
    ("ours", "said"),
    [
        (DELAYS[1:], "AA at 5 h: nothing and 16 minutes of 8 departures of 10 flights"),
        ([*DELAYS, Delay("ZZ", 9, 1, 1, 1)], "ZZ at 9 h: 1 minutes of 1 departures of 1 flights and nothing"),
        ([Delay("AA", 5, 10, 8, 17), *DELAYS[1:]], "AA at 5 h: 17 minutes"),
        ([*DELAYS, DELAYS[0]], "AA at 5 h: 16 minutes of 8 departures of 10 flights, then 16 minutes"),
    ],
)
def test_what_differs_is_named(ours: list[Delay], said: str) -> None:
    with pytest.raises(DemoFailed, match=re.escape(said)):
        check_same(ours, DELAYS)


def test_pandas_reads_the_raw_file() -> None:
    path: Path = find_dataset().flights
    delays = expected_delays(path, 1000)
    assert sum(delay.flights for delay in delays) == 1000
    assert sum(delay.departed for delay in delays) < 1000
    assert len({(delay.carrier, delay.hour) for delay in delays}) == len(delays)
