"""The two tiers of a stream: of any span each offset is in exactly one part, and what is in none is said."""

from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from duramen.spark.read.tiering import TIERS, Extent, Tier, TieredSpan

NUMBERS = st.integers(0, 12)
RANGES = st.tuples(NUMBERS, NUMBERS).map(lambda two: (min(two), max(two)))


def test_the_names_are_the_type() -> None:
    assert get_args(Tier) == TIERS


@given(
    tier=st.sampled_from(TIERS), hot=RANGES, cold=RANGES | st.none(), span=RANGES, prefer_hot=st.booleans(),
)  # fmt: skip
def test_each_offset_is_read_once_where_it_is(
    tier: Tier, hot: tuple[int, int], cold: tuple[int, int] | None, span: tuple[int, int], prefer_hot: bool
) -> None:
    extent = Extent(tier, hot, cold)
    cut = extent.cut(*span, prefer_hot=prefer_hot)
    parts = [range(*cut.cold), range(*cut.hot), *(range(*one) for one in cut.lost)]
    assert sorted(offset for part in parts for offset in part) == list(range(*span))
    if cold is not None:
        assert set(range(*cut.cold)) <= set(range(*cold))
    if tier == "cold":
        assert not range(*cut.hot)
        assert set(range(*span)) & set(range(*(cold or (0, 0)))) == set(range(*cut.cold))
    if tier == "all" and cold is not None:
        there = set(range(*cold)) | set(range(hot[0], 99))
        lost = {offset for one in cut.lost for offset in range(*one)}
        assert not lost & there


def test_a_stream_goes_on_in_the_log_where_that_has_all_of_it() -> None:
    extent = Extent("all", (50, 100), (0, 80))
    assert extent.cut(50, 90, prefer_hot=True) == TieredSpan((50, 50), (50, 90), ())
    assert extent.cut(49, 90, prefer_hot=True) == TieredSpan((49, 80), (80, 90), ())
    assert extent.cut(50, 90) == TieredSpan((50, 80), (80, 90), ())
    assert (extent.earliest, extent.latest) == (0, 100)


def test_what_retention_took_before_the_table_had_it_is_lost() -> None:
    assert Extent("all", (50, 100), (10, 30)).cut(0, 100) == TieredSpan((10, 30), (50, 100), ((0, 10), (30, 50)))
    assert Extent("all", (50, 100), (10, 80)).log_first().cut(20, 90) == TieredSpan((20, 50), (50, 90), ())
    assert Extent("all", (5, 100), (10, 80)).log_first().cut(5, 90) == TieredSpan((5, 5), (5, 90), ())
    assert Extent("cold", (50, 100), (10, 80)).log_first().cut(20, 90).cold == (20, 80)
    assert Extent("cold", (50, 100), (10, 30)).cut(10, 40) == TieredSpan((10, 30), (40, 40), ((30, 40),))
