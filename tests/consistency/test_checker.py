"""The checker finds what is planted, all of it, and nothing in sound histories."""

from collections.abc import Callable, Sequence
from typing import Final

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.consistency.checker import check, faults
from tests.consistency.graph import cycles
from tests.consistency.history import Op, Outcome, Poll, Recorder, Send
from tests.consistency.model import histories


def _send(process: int, *parts: tuple[int, int, int | None], outcome: Outcome = "ok") -> Op:
    return Op(process, outcome, tuple(Send(*part) for part in parts))


def _poll(process: int, *records: tuple[int, int], key: int = 0, outcome: Outcome = "ok", moved: bool = False) -> Op:
    return Op(process, outcome, (Poll(key, records),), moved)


_THREE: Final = [_send(1, (0, 10, 0)), _send(1, (0, 11, 1)), _send(2, (0, 12, 2))]
_ALL: Final = _poll(3, (0, 10), (1, 11), (2, 12))

_PLANTED: Final[Sequence[tuple[str, Sequence[Op]]]] = (
    ("lost-write", [*_THREE, _poll(3, (0, 10), (2, 12))]),
    ("unseen", [*_THREE, _poll(3, (0, 10), (1, 11))]),
    ("unseen", [_send(1, (0, 10, None))]),
    ("delivered-not-stored", [Op(1, "info", (Send(0, 10, None, delivered=True), Send(0, 11))), _poll(3, (0, 11))]),
    ("delivered-not-stored", [Op(1, "info", (Send(0, 10, 0, delivered=True),)), _poll(3, (0, 11), (1, 10))]),
    ("duplicate", [*_THREE, _ALL, _poll(4, (3, 10), key=0)]),
    ("duplicate", [_send(1, (0, 10, 0)), _poll(3, (5, 10))]),
    ("inconsistent-offsets", [*_THREE, _ALL, _poll(4, (1, 13))]),
    ("inconsistent-offsets", [_send(1, (0, 10, 0)), _send(2, (0, 11, 0)), _poll(3, (0, 10))]),
    ("G1a", [_send(1, (0, 10, 0), outcome="fail"), _poll(3, (0, 10))]),
    ("int-poll-skip", [*_THREE, _poll(3, (0, 10), (2, 12)), _ALL]),
    ("int-nonmonotonic-poll", [*_THREE, _poll(3, (1, 11), (0, 10)), _ALL]),
    ("int-nonmonotonic-poll", [*_THREE, _poll(3, (0, 10), (0, 10)), _ALL]),
    ("poll-skip", [*_THREE, _ALL, _poll(4, (0, 10)), _poll(4, (2, 12))]),
    ("nonmonotonic-poll", [*_THREE, _ALL, _poll(4, (1, 11)), _poll(4, (0, 10))]),
    ("int-nonmonotonic-send", [_send(1, (0, 11, 1), (0, 10, 0)), _poll(3, (0, 10), (1, 11))]),
    ("nonmonotonic-send", [_send(1, (0, 11, 1)), _send(1, (0, 10, 0)), _poll(3, (0, 10), (1, 11))]),
    ("int-send-skip", [_send(1, (0, 10, 0), (0, 12, 2)), _send(2, (0, 11, 1)), _ALL]),
    (
        "G0",
        [
            _send(1, (0, 1, 0), (1, 2, 1)), _send(2, (0, 3, 1), (1, 4, 0)),
            _poll(3, (0, 1), (1, 3)), _poll(3, (0, 4), (1, 2), key=1),
        ],
    ),
    (
        "G1c",
        [
            Op(1, "ok", (Send(0, 1, 0), Poll(1, ((0, 2),)))), Op(2, "ok", (Send(1, 2, 0), Poll(0, ((0, 1),)))),
        ],
    ),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "history"), _PLANTED)
def test_what_is_planted_is_found(kind: str, history: Sequence[Op]) -> None:
    assert kind in check(history)


@pytest.mark.parametrize(
    "history",
    [
        [*_THREE, _ALL],
        [*_THREE, _poll(3, (0, 10)), _poll(3, (1, 11), (2, 12))],
        [*_THREE, _ALL, _poll(3, (0, 10), moved=True)],  # the consumer was set back
        [*_THREE, _ALL, _poll(4, (0, 10), outcome="info"), _poll(4, (2, 12))],  # nobody knows where it stood
        [_send(1, (0, 10, None), outcome="info")],  # neither stored nor promised
        [_send(1, (0, 10, None), outcome="info"), _poll(3, (0, 10))],
        [_send(1, (0, 10, 0), outcome="fail")],
        [Op(1, "info", (Send(0, 10, 0, delivered=True), Send(0, 11))), _poll(3, (0, 10))],
        [_send(1, (0, 10, 0)), _send(1, (0, 11, 3)), _poll(2, (0, 10), (3, 11))],  # markers lie between
    ],
)
def test_sound_histories_by_hand(history: Sequence[Op]) -> None:
    assert check(history) == {}


@given(histories())
def test_histories_of_a_sound_log_are_sound(history: list[Op]) -> None:
    assert faults(history) == {}


# -- sound histories with one thing changed -----------------------------------------------------------


def _pick(history: list[Op], data: st.DataObject, kind: type[Send] | type[Poll], least: int = 1) -> tuple[int, int]:
    """The place of a part of an operation that is `ok`, polls with at least so many records."""
    places = [
        (at, number)
        for at, op in enumerate(history)
        if op.outcome == "ok"
        for number, part in enumerate(op.parts)
        if isinstance(part, kind) and (isinstance(part, Send) or len(part.records) >= least)
    ]
    assume(places)
    return data.draw(st.sampled_from(places))


def _with(history: list[Op], at: tuple[int, int], part: Send | Poll) -> list[Op]:
    op = history[at[0]]
    parts = (*op.parts[: at[1]], part, *op.parts[at[1] + 1 :])
    return [*history[: at[0]], op._replace(parts=parts), *history[at[0] + 1 :]]


def _poll_at(history: list[Op], at: tuple[int, int]) -> Poll:
    part = history[at[0]].parts[at[1]]
    assert isinstance(part, Poll)
    return part


def _lose(history: list[Op], data: st.DataObject) -> tuple[list[Op], set[str]]:
    """A value that was acknowledged is in no poll."""
    at = _pick(history, data, Send)
    lost = history[at[0]].parts[at[1]]
    assert isinstance(lost, Send)

    def without(part: Send | Poll) -> Send | Poll:
        if isinstance(part, Send) or part.key != lost.key:
            return part
        return Poll(part.key, tuple(record for record in part.records if record[1] != lost.value))

    return [op._replace(parts=tuple(map(without, op.parts))) for op in history], {"lost-write", "unseen"}


def _move(history: list[Op], data: st.DataObject) -> tuple[list[Op], set[str]]:
    """A polled value has another offset in one poll."""
    at = _pick(history, data, Poll)
    poll = _poll_at(history, at)
    number = data.draw(st.integers(0, len(poll.records) - 1))
    records = list(poll.records)
    records[number] = (records[number][0] + 1000, records[number][1])
    everywhere = [place for place in _everything(history) if place == (poll.key, poll.records[number][1])]
    assume(len(everywhere) > 1)
    return _with(history, at, Poll(poll.key, tuple(records))), {"duplicate"}


def _everything(history: list[Op]) -> list[tuple[int, int]]:
    polled = [
        (part.key, value) for op in history for part in op.parts if isinstance(part, Poll) for _, value in part.records
    ]
    sent = [
        (part.key, part.value)
        for op in history
        if op.outcome == "ok"
        for part in op.parts
        if isinstance(part, Send)
    ]  # fmt: skip
    return polled + sent


def _replace(history: list[Op], data: st.DataObject) -> tuple[list[Op], set[str]]:
    """One poll shows another value at an offset."""
    at = _pick(history, data, Poll)
    poll = _poll_at(history, at)
    number = data.draw(st.integers(0, len(poll.records) - 1))
    assume(_everything(history).count((poll.key, poll.records[number][1])) > 1)
    records = list(poll.records)
    records[number] = (records[number][0], 1 << 40)
    return _with(history, at, Poll(poll.key, tuple(records))), {"inconsistent-offsets"}


def _abort(history: list[Op], data: st.DataObject) -> tuple[list[Op], set[str]]:
    """An operation whose value was polled failed."""
    at = _pick(history, data, Send)
    part = history[at[0]].parts[at[1]]
    assert isinstance(part, Send)
    polled = {place for op in history for place in _polled(op)}
    assume((part.key, part.value) in polled)
    return [*history[: at[0]], history[at[0]]._replace(outcome="fail"), *history[at[0] + 1 :]], {"G1a"}


def _polled(op: Op) -> list[tuple[int, int]]:
    return [(part.key, value) for part in op.parts if isinstance(part, Poll) for _, value in part.records]


def _leave_out(history: list[Op], data: st.DataObject) -> tuple[list[Op], set[str]]:
    """A poll lacks a value in its middle."""
    at = _pick(history, data, Poll, 3)
    poll = _poll_at(history, at)
    number = data.draw(st.integers(1, len(poll.records) - 2))
    assume(_everything(history).count((poll.key, poll.records[number][1])) > 1)
    return _with(history, at, Poll(poll.key, poll.records[:number] + poll.records[number + 1 :])), {"int-poll-skip"}


def _turn(history: list[Op], data: st.DataObject) -> tuple[list[Op], set[str]]:
    """A poll has its values the other way round."""
    at = _pick(history, data, Poll, 2)
    poll = _poll_at(history, at)
    return _with(history, at, Poll(poll.key, poll.records[::-1])), {"int-nonmonotonic-poll"}


@pytest.mark.parametrize("plant", [_lose, _move, _replace, _abort, _leave_out, _turn])
@given(st.data())
def test_a_sound_history_with_one_fault_is_not_sound(
    plant: Callable[[list[Op], st.DataObject], tuple[list[Op], set[str]]], data: st.DataObject
) -> None:
    changed, kinds = plant(data.draw(histories()), data)
    assert kinds & set(check(changed))


@given(st.dictionaries(st.integers(0, 8), st.sets(st.integers(0, 8)), max_size=9))
def test_cycles_are_what_reaches_itself(edges: dict[int, set[int]]) -> None:
    def reached(start: int) -> set[int]:
        found: set[int] = set()
        left = [start]
        while left:
            new = edges.get(left.pop(), set()) - found
            found |= new
            left += new
        return found

    mutual = {
        (one, other) for one in range(9) for other in range(9) if one != other and other in reached(one)
        and one in reached(other)
    }  # fmt: skip
    assert {(one, other) for group in cycles(edges) for one in group for other in group if one != other} == mutual


def test_the_recorder_keeps_what_never_ended_as_unknown() -> None:
    recorder = Recorder()
    recorder.invoke(1, [Send(0, 1)])
    recorder.invoke(2, [Send(0, 2)])
    recorder.complete(2, "ok", [Send(0, 2, 0)])
    assert [(op.process, op.outcome, op.parts) for op in recorder.history()] == [
        (2, "ok", (Send(0, 2, 0),)), (1, "info", (Send(0, 1),)),
    ]  # fmt: skip
