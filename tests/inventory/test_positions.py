"""Positions of the inventory as text: what is accepted fits into the numbers of the log and of requests to nodes."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.inventory.positions import split_position

EPOCHS = st.integers(-(1 << 31), (1 << 31) - 1)
OFFSETS = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.tuples(EPOCHS, OFFSETS)))
def test_a_text_gives_back_its_numbers(positions: list[tuple[int, int]]) -> None:
    assert split_position(",".join(f"{epoch}.{offset}" for epoch, offset in positions)) == positions
    assert split_position(",".join(f"{offset}" for _, offset in positions)) == [(0, offset) for _, offset in positions]


@given(st.text("0123456789.,-\u0661 ", max_size=60) | st.text(max_size=20))
def test_what_is_accepted_fits(text: str) -> None:
    with suppress(RequestInvalid):
        for epoch, offset in split_position(text):
            assert -(1 << 31) <= epoch < 1 << 31
            assert -(1 << 63) <= offset < 1 << 63


@pytest.mark.parametrize("text", [",", "1,", ".1", "1.", "--1", "1.1.1", "\u0661", f"{1 << 63}", f"{1 << 31}.1", "x"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(RequestInvalid):
        split_position(text)
