"""Countdowns against a model: the set of open parts."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.base.countdown import Countdown, ErrorCountdown
from duramen.base.errors import DuramenError

OUTCOMES = st.lists(st.one_of(st.none(), st.builds(DuramenError, st.text(max_size=3))), max_size=8)


@given(st.integers(0, 4), st.lists(st.booleans(), max_size=30))
def test_the_callback_comes_once_when_the_last_part_ends(parts: int, steps: list[bool]) -> None:
    calls, open_, over = list[int](), parts, not parts
    countdown = Countdown(lambda: calls.append(step), parts)
    for step, adds in enumerate(steps):
        if adds and not over:
            countdown.add()
            open_ += 1
        elif not adds:
            countdown.count_down()
            open_ -= 1
        came = not over and not open_
        over = over or came
        assert (calls[-1:] == [step]) == came
    assert len(calls) == (over and bool(parts))


@given(OUTCOMES, st.data())
def test_the_callback_gets_the_first_error(outcomes: list[DuramenError | None], data: st.DataObject) -> None:
    told = list[DuramenError | None]()
    countdown = ErrorCountdown(told.append)
    late = list[DuramenError | None]()
    ended = list[DuramenError | None]()
    for outcome in outcomes:
        countdown.add()
        if data.draw(st.booleans()):
            ended.append(outcome)
            countdown.answer("an answer" if outcome is None else outcome)  # within the call that starts the part
        else:
            late.append(outcome)
    countdown.count_down()
    for outcome in data.draw(st.permutations(late)):
        assert not told
        ended.append(outcome)
        countdown.count_down(outcome)
    first = next((outcome for outcome in ended if outcome is not None), None)
    assert len(told) == 1
    assert told[0] is first
