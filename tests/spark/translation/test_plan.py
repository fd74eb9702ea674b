"""What goes into a table next: nothing twice, nothing left out, in pieces that are bounded."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RecordsLost
from duramen.client.transaction_states import EndedAt, MarkedUpTo
from duramen.spark.read.splits import ReadSplit
from duramen.spark.tables.port import TableSpan
from duramen.spark.translation.plan import PIECE_BYTES, Filled, RoundPiece, RoundPlan, piece_records
from duramen.spark.translation.plan import plan as plan_round

BOUNDS = st.dictionaries(
    st.integers(0, 5),
    st.tuples(st.integers(0, 500), st.integers(0, 5000)).map(lambda two: (two[0], two[0] + two[1])),
    max_size=6,
)


def plan(ends: dict[int, int], bounds: dict[int, tuple[int, int]], **more: Any) -> RoundPlan:
    """Of a stream without transactions."""
    marked = {at: MarkedUpTo(end, [], []) for at, (_, end) in bounds.items()}
    return plan_round(Filled(ends, {}, {}), bounds, marked, **more)


@given(bounds=BOUNDS, data=st.data(), piece=st.integers(1, 1000), slots=st.integers(1, 8), whole=st.booleans())
def test_rounds_go_to_the_end_in_bounded_pieces(
    bounds: dict[int, tuple[int, int]], data: st.DataObject, piece: int, slots: int, whole: bool
) -> None:
    ends = {at: data.draw(st.integers(first, end)) for at, (first, end) in bounds.items() if data.draw(st.booleans())}
    read: dict[int, list[TableSpan]] = {at: [] for at in bounds}
    where = dict(ends)
    for _ in range(10_000):
        made = plan(where, bounds, piece=piece, slots=slots, whole=whole)
        assert {span.partition: span.begin for span in made.spans}.items() <= (
            {at: where.get(at, first) for at, (first, _) in bounds.items()}.items()
        )
        pieces = sorted(one.span for task in made.tasks for one in task)
        for task in made.tasks:
            assert sum(one.span.end - one.span.begin for one in task) <= piece
        if whole:
            assert len({one.partition for one in pieces}) == len(pieces)
        for one in pieces:
            read[one.partition].append(one)
        for span in made.spans:
            parts = [one for one in pieces if one.partition == span.partition]
            assert (parts[0].begin, parts[-1].end) == (span.begin, span.end)
            where[span.partition] = span.end
        assert made.behind == any(where.get(at, first) < end for at, (first, end) in bounds.items())
        if not made.spans:
            break
    for at, (first, end) in bounds.items():
        covered = [offset for one in read[at] for offset in (one.begin, one.end)]
        if covered:
            assert (covered[0], covered[-1]) == (ends.get(at, first), end)
            assert covered[1:-1:2] == covered[2:-1:2]
        else:
            assert ends.get(at, first) == end


def test_what_is_gone_before_it_was_in_the_table_stops_it_unless_it_is_skipped() -> None:
    with pytest.raises(RecordsLost, match=r"partition 1: the records 5 to 19 are gone from the log \(retention\)"):
        plan({1: 5}, {1: (20, 30)}, piece=100, slots=1)
    made = plan({1: 5}, {1: (20, 30)}, piece=100, slots=1, skip_lost=True)
    assert made.spans == [TableSpan(1, 5, 30)]
    assert made.tasks == [[RoundPiece(TableSpan(1, 20, 30), None, 20)]]
    assert made.lost == [TableSpan(1, 5, 20)]
    emptied = plan({1: 5}, {1: (20, 20)}, piece=100, slots=1, skip_lost=True)
    assert (emptied.spans, emptied.tasks, emptied.behind) == ([TableSpan(1, 5, 20)], [], False)


def test_a_log_that_ends_before_its_table_lost_records() -> None:
    with pytest.raises(RecordsLost, match="partition 0 ends at 4, and its table has records up to 9"):
        plan({0: 9}, {0: (0, 4)}, piece=100, slots=1, skip_lost=True)


def test_no_task_is_idle_while_another_has_two_pieces() -> None:
    made = plan({}, dict.fromkeys(range(4), (0, 300)), piece=1000, slots=2)
    assert [[one.span for one in task] for task in made.tasks] == [
        [TableSpan(0, 0, 300), TableSpan(1, 0, 300)],
        [TableSpan(2, 0, 300), TableSpan(3, 0, 300)],
    ]
    small = plan({}, dict.fromkeys(range(4), (0, 30)), piece=1000, slots=4)
    assert [len(task) for task in small.tasks] == [4]


def test_pieces_have_about_the_same_bytes_whatever_the_records_are() -> None:
    assert piece_records(100.0) == PIECE_BYTES // 100
    assert piece_records(10_000_000.0) == 1000
    assert piece_records(1.0) == 16_000_000
    assert piece_records(None) == PIECE_BYTES // 1024


def marked(whole: bool, most: int, **state: dict[int, int]) -> RoundPlan:
    """Of two partitions: transaction 1 has markers at 4 and 6, transaction 2 at 8 and 9; a third is open."""
    found = {
        0: MarkedUpTo(20, [(9, 11)], [EndedAt(4, 7, 1, 1, True), EndedAt(8, 8, 2, 2, True)]),
        1: MarkedUpTo(10, [], [EndedAt(6, 7, 0, 1, True), EndedAt(9, 8, 3, 2, True)]),
    }
    filled = Filled(**{"ends": {}, "begins": {}, "floors": {}} | state)
    return plan_round(filled, {0: (0, 20), 1: (0, 10)}, found, piece=most, slots=1, whole=whole)


def test_a_round_has_each_transaction_wholly_or_not() -> None:
    assert marked(False, 100).spans == [TableSpan(0, 0, 20), TableSpan(1, 0, 10)]
    made = marked(False, 12)
    assert made.spans == [TableSpan(0, 0, 4), TableSpan(1, 0, 6)], "six of each partition would have one marker of two"
    assert made.behind
    made = marked(False, 8, ends={0: 4, 1: 6})
    assert made.spans == [TableSpan(0, 4, 8), TableSpan(1, 6, 9)]
    made = marked(False, 2, ends={0: 4, 1: 6})
    assert made.spans == [TableSpan(0, 4, 5), TableSpan(1, 6, 7)]


def test_tasks_begin_where_the_transactions_do_that_end_in_their_piece() -> None:
    [[first, second]] = marked(False, 10, ends={0: 4, 1: 6}).tasks
    assert first == RoundPiece(TableSpan(0, 4, 9), ReadSplit(1), 4)
    assert second == RoundPiece(TableSpan(1, 6, 10), ReadSplit(0), 6)
    [[first], [second]] = marked(True, 10, ends={0: 4, 1: 6}).tasks
    assert first == RoundPiece(TableSpan(0, 4, 14), ReadSplit(1), 1), (
        "what was applied already tells what comes too late"
    )
    assert second == RoundPiece(TableSpan(1, 6, 10), ReadSplit(0), 0)


def test_transactions_that_began_before_the_table_are_left_out_and_of_older_tables_what_they_have() -> None:
    [[first, second]] = marked(False, 100, begins={0: 0, 1: 1}).tasks
    assert (first.share, second.share) == (ReadSplit(0, 0, (4,)), ReadSplit(0, 0, (6,)))
    [[first, second]] = marked(True, 100, begins={0: 0, 1: 1}).tasks
    assert (first.share, second.share) == (ReadSplit(0), ReadSplit(0, 1))
    [[first, second]] = marked(False, 100, ends={0: 3, 1: 2}, floors={0: 3, 1: 2}).tasks
    assert (first.share, second.share) == (ReadSplit(3, 3), ReadSplit(2, 2))
