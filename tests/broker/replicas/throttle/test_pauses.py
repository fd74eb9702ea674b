"""All leaders pause in the same moments."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.broker.replicas.throttle.throttle import PAUSE_MS, PERIOD_MS, SETTLED_MS, pause_left_ms, settled


@given(st.integers(0, 1 << 45))
def test_a_pause_is_as_long_as_is_said_wherever_one_looks(wall_ms: int) -> None:
    left_ms = pause_left_ms(wall_ms)
    assert 0 <= left_ms <= PAUSE_MS
    assert pause_left_ms(wall_ms + left_ms) == 0
    assert sum(pause_left_ms(wall_ms + after) > 0 for after in range(0, PERIOD_MS, 100)) == PAUSE_MS // 100


@given(st.integers(0, 1 << 45))
def test_only_the_later_part_of_a_pause_is_settled(wall_ms: int) -> None:
    assert settled(wall_ms) == (0 < pause_left_ms(wall_ms) <= PAUSE_MS - SETTLED_MS)
