"""When messages are due."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.bench.load.schedule import Schedule


def test_messages_are_due_at_the_rate() -> None:
    schedule = Schedule(50.0, 30.0)
    assert schedule.messages == 1500
    assert [schedule.due_ns(index) for index in (0, 1, 50)] == [0, 20_000_000, 1_000_000_000]


@given(st.floats(0.1, 100_000), st.floats(0.1, 100))
def test_there_is_a_message_and_none_is_due_after_the_end(rate_hz: float, duration_s: float) -> None:
    schedule = Schedule(rate_hz, duration_s)
    assert schedule.messages >= 1
    assert schedule.due_ns(schedule.messages - 1) <= duration_s * 1e9
