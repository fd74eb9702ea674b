"""How large an answer may get: what does not fit is refused, and everything after it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.doors.kafka.request.response_size import ResponseBudget


def test_everything_after_what_does_not_fit_is_refused() -> None:
    room = ResponseBudget(1000)
    room.take({"a": "x" * 100, "b": [1, 2]})
    room.check()
    with pytest.raises(RequestInvalid, match="more than 1000 bytes"):
        room.take([b"y" * 700])
    with pytest.raises(RequestInvalid):
        room.check()
    with pytest.raises(RequestInvalid):
        room.take(None)


@given(st.recursive(st.none() | st.integers() | st.text() | st.binary(), st.lists, max_leaves=50))
def test_text_and_bytes_are_never_taken_for_less_than_they_are(part: object) -> None:
    def least(value: object) -> int:
        if isinstance(value, list):
            return sum(map(least, value))
        return len(value) if isinstance(value, str | bytes) else 1

    size = least(part)
    with pytest.raises(RequestInvalid):
        ResponseBudget(size - 1).take(part)
