"""What retention lets go: by age, size and count, against a model that looks at records one by one."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.storage.planning.floors import Floor, compaction_bound
from duramen.storage.planning.retention import Late, RetentionLimits, RetentionSegmentFacts, late, new_start


def committed(bound: int) -> list[Floor]:
    return [Floor("high watermark", bound)]


LIMIT = st.integers(-1, 60)


@st.composite
def segments(draw: st.DrawFn) -> list[RetentionSegmentFacts]:
    at, found = draw(st.integers(0, 5)), []
    for _ in range(draw(st.integers(0, 6))):
        count = draw(st.integers(1, 8))
        found.append(RetentionSegmentFacts(at, at + count, draw(st.integers(1, 30)), draw(st.integers(-1, 100))))
        at += count
    return found


@given(segments(), LIMIT, LIMIT, LIMIT, st.integers(0, 60), st.integers(0, 120))
def test_against_a_model(
    found: list[RetentionSegmentFacts], ms: int, size: int, count: int, bound: int, now_ms: int
) -> None:
    start_offset = found[0].base_offset if found else 0
    start = new_start(found, RetentionLimits(ms, size, count), committed(bound), start_offset, now_ms)
    kept = list(found)
    while kept and kept[0].end_offset <= bound:
        first, rest = kept[0], kept[1:]
        old = ms >= 0 and first.max_timestamp >= 0 and first.max_timestamp < now_ms - ms
        heavy = bool(rest) and size >= 0 and sum(segment.size for segment in rest) >= size
        many = bool(rest) and count >= 0 and rest[-1].end_offset - rest[0].base_offset >= count
        if not (old or heavy or many):
            break
        kept = rest
    expected = kept[0].base_offset if kept else (found[-1].end_offset if found else start_offset)
    assert start == max(start_offset, expected if expected <= bound or not found else start_offset)


@given(segments(), LIMIT, LIMIT, LIMIT, st.integers(0, 40), st.integers(1, 4), st.integers(0, 120))
def test_what_is_held_goes_where_there_is_many_times_as_much(
    found: list[RetentionSegmentFacts], ms: int, size: int, count: int, held_from: int, multiple: int, now_ms: int
) -> None:
    start_offset, bound = (found[0].base_offset, found[-1].end_offset) if found else (0, 0)
    near, far = RetentionLimits(ms, size, count), RetentionLimits(ms * multiple, size * multiple, count * multiple)
    held = [*committed(bound), Floor("table", held_from, compaction=False, multiple=multiple)]
    start = new_start(found, near, held, start_offset, now_ms)
    free = max((one.end_offset for one in found if one.end_offset <= held_from), default=start_offset)
    last = new_start(found, near, committed(bound), start_offset, now_ms)
    rest = [one for one in found if one.base_offset >= free]
    assert start == (last if last < free else new_start(rest, far, committed(bound), free, now_ms))


def test_the_last_segment_goes_by_age_but_never_by_size() -> None:
    only = [RetentionSegmentFacts(0, 10, 1000, 5)]
    assert new_start(only, RetentionLimits(ms=10), committed(10), 0, 100) == 10
    assert new_start(only, RetentionLimits(bytes=0, records=0), committed(10), 0, 100) == 0


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    found = [RetentionSegmentFacts(0, 10, 5, 1), RetentionSegmentFacts(10, 20, 5, 1)]
    assert new_start(found, RetentionLimits(ms=0), committed(15), 0, 100) == 10
    assert new_start(found, RetentionLimits(ms=0), committed(9), 0, 100) == 0


def test_of_several_floors_the_lowest_counts_and_one_that_holds_compaction_only_does_not() -> None:
    found = [RetentionSegmentFacts(at, at + 10, 5, 1) for at in (0, 10, 20)]
    transaction = Floor("open transaction", 5, retention=False)
    for lease, start in ((25, 20), (15, 10), (3, 0)):
        floors = [*committed(30), transaction, Floor("lease", lease)]
        assert new_start(found, RetentionLimits(ms=0), floors, 0, 100) == start
        assert compaction_bound(floors) == min(5, lease)


def test_records_without_a_timestamp_do_not_age() -> None:
    assert new_start([RetentionSegmentFacts(0, 10, 5, -1)], RetentionLimits(ms=0), committed(10), 0, 100) == 0


def test_what_was_too_old_when_it_was_written_is_counted() -> None:
    found = [
        RetentionSegmentFacts(0, 4, 10, max_timestamp=5, begun_ms=1000),  # too old as it came
        RetentionSegmentFacts(4, 6, 10, max_timestamp=700, begun_ms=1000),  # has aged here
        RetentionSegmentFacts(6, 9, 10, max_timestamp=300, begun_ms=-1),  # nobody knows when it came
        RetentionSegmentFacts(9, 10, 10, max_timestamp=-1, begun_ms=1000),  # does not age
        RetentionSegmentFacts(10, 13, 10, max_timestamp=7, begun_ms=2000),
        RetentionSegmentFacts(13, 14, 10, max_timestamp=9, begun_ms=2000),  # is kept
    ]
    assert late(found, RetentionLimits(ms=500), 1, 13) == Late(6, 7)
    assert late(found, RetentionLimits(ms=500), 1, 4) == Late(3, 5)
    assert late(found, RetentionLimits(ms=-1), 0, 13) == Late(0, -1)
