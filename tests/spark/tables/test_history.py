"""Ends that a table has had: few enough, spread over all of it, and reads end at them."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from duramen.spark.tables.history import Ends, from_text, next_ends, to_text, with_ends

STEPS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 50)), max_size=300)


def grown(steps: list[tuple[int, int]]) -> list[Ends]:
    history: list[Ends] = []
    ends: dict[int, int] = {}
    for partition, count in steps:
        ends = {**ends, partition: ends.get(partition, 0) + count}
        history = with_ends(history, ends)
    return history


@given(STEPS)
def test_the_newest_is_there_and_they_rise(steps: list[tuple[int, int]]) -> None:
    history = grown(steps)
    assert len(history) == min(len(steps), 64)
    assert not steps or sum(history[-1].values()) == sum(count for _, count in steps)
    for one, other in pairwise(history):
        assert one != other
        assert all(other[partition] >= end for partition, end in one.items())
    assert from_text(to_text(history)) == history


def test_they_are_spread_over_all_that_the_table_has() -> None:
    sums = [one[0] for one in grown([(0, 10)] * 2000)]
    gaps = [after - before for before, after in zip([0, *sums], sums, strict=False)]
    assert max(gaps) <= 20_000 // 20


def test_many_partitions_have_fewer_of_them() -> None:
    history: list[Ends] = []
    for turn in range(20):
        history = with_ends(history, dict.fromkeys(range(500), turn))
    assert len(history) == 4


@given(STEPS, st.dictionaries(st.integers(0, 2), st.integers(0, 400), min_size=1), st.none() | st.integers(1, 300))
def test_a_read_goes_on_to_one_of_them(steps: list[tuple[int, int]], begin: Ends, most: int | None) -> None:
    history = grown(steps)
    found = next_ends(history, begin, most)
    ahead = [one for one in history if any(one.get(at, 0) > offset for at, offset in begin.items())]
    if found is None:
        assert not ahead
        return
    assert found in ahead
    if most is None:
        assert found == ahead[-1]
    else:
        counts = [sum(max(0, one.get(at, 0) - offset) for at, offset in begin.items()) for one in ahead]
        assert counts[ahead.index(found)] <= most or found == ahead[0]


def test_it_goes_no_further_than_it_may_unless_it_has_to() -> None:
    history: list[Ends] = [{0: 10}, {0: 20}, {0: 30}]
    assert next_ends(history, {0: 0}, upto={0: 25}) == {0: 20}
    assert next_ends(history, {0: 20}, upto={0: 25}) == {0: 30}
    assert next_ends(history, {0: 30}, upto={0: 25}) is None
