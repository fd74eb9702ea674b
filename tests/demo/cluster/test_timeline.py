from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from duramen.demo.cluster.timeline import NOBODY, Band, Sight, Timeline, TimelineLayout

_ALL = frozenset({1, 2, 3})


def _sight(at_s: float, leaders: Sequence[int], controller: int = 1, in_sync: frozenset[int] = _ALL) -> Sight:
    return Sight(at_s, controller, tuple(TimelineLayout(leader, 0, in_sync) for leader in leaders))


def _told() -> Timeline:
    """Node 1 is killed after 2 s, is missed after 3, and is back after 6."""
    timeline = Timeline([1, 2, 3])
    timeline.see(_sight(0, [1, 2]))
    timeline.happen(2, 1, "killed", gone=True)
    timeline.see(_sight(3, [2, 2], 2, frozenset({2, 3})))
    timeline.happen(5, 1, "started again", gone=False)
    timeline.see(_sight(6, [2, 2], 2))
    for at_s, count in ((0.0, 0), (1.0, 10), (2.0, 20), (2.5, 20), (3.5, 20), (4.0, 40), (8.0, 80)):
        timeline.count(at_s, count)
    return timeline


def test_bands_reach_from_one_change_to_the_next() -> None:
    timeline = _told()
    assert timeline.partitions == 2
    assert timeline.leaders(0) == [Band(0, 3, 1), Band(3, 8, 2)]
    assert timeline.leaders(1) == [Band(0, 8, 2)]
    assert timeline.controllers() == [Band(0, 3, 1), Band(3, 8, 2)]
    assert timeline.out_of_sync(0, 1) == [Band(3, 6, 1)]
    assert timeline.out_of_sync(0, 2) == []
    assert timeline.gone(1) == [Band(2, 5, 1)]
    assert timeline.gone(2) == []


def test_times_that_matter() -> None:
    timeline = _told()
    assert timeline.lead_elsewhere_s(1, 2) == 1
    assert timeline.lead_elsewhere_s(2, 2) is None
    assert timeline.whole_s(5) == 1
    assert timeline.whole_s(7) is None
    assert timeline.pause_s(1, 4) == 2
    assert timeline.pause_s(2, 3.5) == 1.5


def test_the_story_is_told_in_order() -> None:
    assert _told().story() == [
        (2, "node 1 killed"),
        (3, "node 2 leads the controller"),
        (3, "node 2 leads partition 0"),
        (3, "node 1 is out of sync with partitions 0, 1"),
        (5, "node 1 started again"),
        (6, "node 1 is in sync with partitions 0, 1"),
    ]


def test_nobody_leads_for_a_while() -> None:
    timeline = Timeline([1, 2, 3])
    for at_s, leader in ((0, 1), (1, NOBODY), (2, 3)):
        timeline.see(_sight(at_s, [leader], controller=NOBODY))
    timeline.count(4, 0)
    assert timeline.leaders(0) == [Band(0, 1, 1), Band(2, 4, 3)]
    assert timeline.controllers() == []


def test_of_nothing() -> None:
    timeline = Timeline([1])
    assert (timeline.partitions, timeline.story(), timeline.rates(1), timeline.pause_s(0, 1)) == (0, [], [], 0)


@given(st.lists(st.tuples(st.floats(0.01, 2), st.integers(0, 1000)), min_size=1, max_size=50), st.floats(0.01, 3))
def test_rates_add_up_to_what_was_acknowledged(steps: list[tuple[float, int]], width_s: float) -> None:
    timeline = Timeline([1])
    at_s, count = 0.0, 0
    timeline.count(at_s, count)
    for step_s, more in steps:
        at_s, count = at_s + step_s, count + more
        timeline.count(at_s, count)
    rates = timeline.rates(width_s)
    begun_s = total = 0.0
    for middle_s, rate in rates:
        end_s = 2 * middle_s - begun_s
        assert end_s - begun_s >= width_s * 0.999
        total += rate * (end_s - begun_s)
        begun_s = end_s
    assert total <= count + 1e-3


@given(st.lists(st.tuples(st.floats(0.01, 2), st.integers(-1, 3)), max_size=30))
def test_bands_of_one_thing_do_not_overlap(steps: list[tuple[float, int]]) -> None:
    timeline = Timeline([1, 2, 3])
    at_s = 0.0
    for step_s, leader in steps:
        at_s += step_s
        timeline.see(_sight(at_s, [leader]))
    bands = timeline.leaders(0)
    assert all(one.begin_s < one.end_s for one in bands)
    assert all(one.end_s <= other.begin_s for one, other in pairwise(bands))
    assert all(one.node != NOBODY for one in bands)
