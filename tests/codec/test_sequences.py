"""Sequence numbers of idempotent producers wrap around."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.codec.sequences import SEQUENCES, is_before

_SEQUENCE = st.integers(0, SEQUENCES - 1)


@given(_SEQUENCE, st.integers(1, SEQUENCES // 2 - 1))
def test_a_number_is_before_those_that_follow_it_also_over_the_end(sequence: int, distance: int) -> None:
    later = (sequence + distance) % SEQUENCES
    assert is_before(sequence, later)
    assert not is_before(later, sequence)


@given(_SEQUENCE)
def test_a_number_is_not_before_itself(sequence: int) -> None:
    assert not is_before(sequence, sequence)
