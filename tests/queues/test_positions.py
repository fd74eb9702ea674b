"""Positions and leases as text: what is accepted is a pair of numbers that the log and the wire can have."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.base.ids import Position
from duramen.queues.leases import Lease, lease_text, parse_lease
from duramen.queues.positions import LARGEST_OFFSET, parse_position, position_text

EPOCHS = st.integers(0, (1 << 31) - 1)
NUMBERS = st.integers(0, LARGEST_OFFSET - 1)


@given(EPOCHS, NUMBERS)
def test_a_text_gives_back_its_numbers(epoch: int, number: int) -> None:
    assert parse_position(position_text(Position(epoch, number))) == Position(epoch, number)
    assert parse_lease(lease_text(Lease(epoch, number))) == Lease(epoch, number)


@given(
    st.from_regex(r"[0-9]{1,50}\.[0-9]{1,50}", fullmatch=True)
    | st.text(max_size=50)
    | st.text("0123456789.-+\u0661 ", max_size=50)
)
def test_what_is_accepted_has_one_form_and_fits(text: str) -> None:
    for parse in (parse_position, parse_lease):
        with suppress(RequestInvalid):
            epoch, number = parse(text)
            assert f"{epoch}.{number}" == text
            assert epoch < 1 << 31
            assert number < LARGEST_OFFSET


@pytest.mark.parametrize("text", ["", "1", "1.", ".1", "01.1", "1.01", "-1.1", "1.-1", "1.1.1", "\u0661.1",
                                  f"{1 << 31}.1", f"1.{LARGEST_OFFSET}", f"1.{10**30}"])  # fmt: skip
def test_other_texts_are_refused(text: str) -> None:
    for parse in (parse_position, parse_lease):
        with pytest.raises(RequestInvalid):
            parse(text)
