"""Commit sequences rise, whatever the clock does, and are not given twice."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.transactions.sequences import CommitSequences

CLOCK = st.integers(0, 1 << 41)


@given(st.lists(st.tuples(CLOCK, st.integers(0, 49), st.booleans()), max_size=50))
def test_they_rise(steps: list[tuple[int, int, bool]]) -> None:
    """Over restarts too, which know of a sequence what is in their log."""
    sequences = CommitSequences()
    given_before = -1
    for now_ms, partition, restarts in steps:
        if restarts:
            sequences = CommitSequences()
            sequences.saw(given_before)
        one = sequences.following(now_ms, partition)
        assert given_before < one < 1 << 63
        given_before = one


@given(CLOCK)
def test_two_coordinators_never_give_the_same(now_ms: int) -> None:
    assert len({CommitSequences().following(now_ms, partition) for partition in range(50)}) == 50


def test_a_sequence_tells_when_it_was_decided() -> None:
    assert CommitSequences().following(1_700_000_000_000, 7) == (1_700_000_000_000_000 << 12) + 7
