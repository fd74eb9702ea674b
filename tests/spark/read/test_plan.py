"""How a limit is shared out, and how ranges are cut for tasks."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.client import TopicPartition
from duramen.spark.read.plan import Span, limited, split

ats = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5))
waiting = st.dictionaries(ats, st.tuples(st.integers(0, 1 << 40), st.integers(-5, 1000)), min_size=1)


@given(waiting, st.integers(1, 500))
def test_a_limit_is_kept_and_leaves_none_behind(there: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    begin = {at: first for at, (first, _) in there.items()}
    end = {at: first + count for at, (first, count) in there.items()}
    total = sum(max(0, count) for _, count in there.values())
    rounds = 0
    while any(begin[at] < end[at] for at in end):
        upto = limited(begin, end, most)
        taken = {at: max(0, upto[at] - begin[at]) for at in end}
        assert upto.keys() == end.keys()
        assert sum(taken.values()) == min(most, sum(max(0, end[at] - begin[at]) for at in end))
        for at, count in taken.items():
            left = max(0, end[at] - begin[at])
            assert count <= left
            # Everyone's share is what it has of the whole, give or take one.
            everything = sum(max(0, end[one] - begin[one]) for one in end)
            assert abs(count - min(most, everything) * left / everything) <= 1
        begin = {at: max(begin[at], upto[at]) for at in end}
        rounds += 1
    assert rounds == -(-total // most)


@given(
    st.dictionaries(ats, st.tuples(st.integers(0, 1 << 40), st.integers(-5, 10_000))),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 3000),
)
def test_ranges_are_cut_and_nothing_is_lost(
    there: dict[TopicPartition, tuple[int, int]], at_least: int | None, most: int | None
) -> None:
    spans: list[Span] = [(at, first, first + count) for at, (first, count) in there.items()]
    pieces = split(spans, at_least, most)
    total = sum(max(0, end - first) for _, first, end in spans)
    assert all(first < end for _, first, end in pieces)
    assert all(most is None or end - first <= most for _, first, end in pieces)
    assert at_least is None or len(pieces) >= min(at_least, total)
    for at, first, end in spans:
        mine = sorted((low, high) for one, low, high in pieces if one == at)
        edges = [low for low, _ in mine] + [high for _, high in mine[-1:]]
        assert [high for _, high in mine] == edges[1:]
        assert (edges[:1], edges[-1:]) == (([first], [end]) if first < end else ([], []))
