"""Deadlines against a model: a sorted list."""

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from duramen.base.deadlines import Alarm, Deadlines


@given(
    st.lists(st.tuples(st.integers(0, 100), st.booleans()), max_size=200), st.lists(st.integers(0, 110), max_size=20)
)
def test_fire_in_order_and_never_when_cancelled(wanted: list[tuple[int, bool]], times: list[int]) -> None:
    deadlines, fired = Deadlines(), list[int]()
    for number, (at_ms, cancelled) in enumerate(wanted):
        deadline = deadlines.at(at_ms, partial(fired.append, number))
        if cancelled:
            deadline.cancel()
    model = sorted((at_ms, number) for number, (at_ms, cancelled) in enumerate(wanted) if not cancelled)
    for now_ms in sorted(times):
        deadlines.fire(now_ms)
        assert fired == [number for at_ms, number in model if at_ms <= now_ms]
        left = [at_ms for at_ms, _ in model if at_ms > now_ms]
        assert deadlines.next_ms() == (left[0] if left else None)


def test_what_an_action_registers_for_now_is_done_too() -> None:
    deadlines, fired = Deadlines(), list[str]()

    def first() -> None:
        fired.append("first")
        deadlines.at(5, lambda: fired.append("second"))

    deadlines.at(5, first)
    deadlines.fire(5)
    assert fired == ["first", "second"]


def test_no_more_at_once_than_is_said() -> None:
    deadlines, fired = Deadlines(), list[int]()
    for number in range(5):
        deadlines.at(number, partial(fired.append, number))
    deadlines.at(0, lambda: None).cancel()
    deadlines.fire(3, 3)
    assert fired == [0, 1, 2]
    assert deadlines.next_ms() == 3
    deadlines.fire(3, 3)
    assert fired == [0, 1, 2, 3]


def test_an_earlier_one_is_told_of() -> None:
    deadlines, told = Deadlines(), list[int | None]()
    deadlines.on_earlier = lambda: told.append(deadlines.next_ms())
    for at_ms in (50, 60, 40):
        deadlines.at(at_ms, lambda: None)
    assert told == [50, 40]


def test_cancelled_ones_do_not_stay_in_memory() -> None:
    deadlines = Deadlines()
    for at_ms in range(10_000):
        deadlines.at(1_000_000 + at_ms, lambda: None).cancel()
    assert len(deadlines) < 200


@given(st.lists(st.tuples(st.integers(0, 20), st.none() | st.integers(0, 60)), max_size=60))
def test_an_alarm_is_never_late_and_never_goes_off_unasked(moves: list[tuple[int, int | None]]) -> None:
    """As a group uses it: at each time it is told what is next, and goes off at that time at the latest."""
    deadlines, now_ms, due_ms, rung = Deadlines(), 0, list[int | None]([None]), list[int]()

    def ring() -> None:
        # Too early: it is asked for the next time.
        if due_ms[0] is not None and due_ms[0] <= now_ms:
            rung.append(now_ms)
            due_ms[0] = None
        assert alarm.move(due_ms[0]) is (due_ms[0] is not None)

    alarm = Alarm(deadlines, ring)
    for passed_ms, wait_ms in moves:
        now_ms += passed_ms
        expected = due_ms[0] is not None and due_ms[0] <= now_ms
        before = len(rung)
        deadlines.fire(now_ms)
        assert len(rung) - before == int(expected)
        due_ms[0] = None if wait_ms is None else now_ms + wait_ms
        alarm.move(due_ms[0])
        next_ms = deadlines.next_ms()
        assert (next_ms is None) == (due_ms[0] is None)
        assert next_ms is None or due_ms[0] is None or next_ms <= due_ms[0]
