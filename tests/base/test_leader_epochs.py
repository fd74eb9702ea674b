"""The leader-epoch cache, and the rule for where two histories part, against logs written out record by record."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.ids import Position
from duramen.base.leader_epochs import NO_END, LeaderEpochCache, Takeover, diverging, truncation

RECORDS = st.lists(st.integers(0, 6), max_size=8).map(sorted)
"""The epoch of each record."""


def table(*rows: tuple[int, int, int]) -> LeaderEpochCache:
    return LeaderEpochCache(rows)


def test_an_offset_belongs_to_the_last_takeover_at_or_before_it() -> None:
    takeovers = table((1, 7, 0), (3, 8, 10), (4, 7, 15))
    assert [takeovers.epoch_at(offset) for offset in (0, 9, 10, 14, 15, 99)] == [1, 1, 3, 3, 4, 4]
    assert table((3, 1, 10)).epoch_at(9) == -1


def test_an_epoch_ends_where_the_next_begins() -> None:
    takeovers = table((1, 7, 0), (3, 8, 10), (4, 7, 15))
    assert takeovers.end_of(1, 20) == (1, 10)
    assert takeovers.end_of(2, 20) == (1, 10)
    assert takeovers.end_of(3, 20) == (3, 15)
    assert takeovers.end_of(4, 20) == (4, 20)
    assert takeovers.end_of(9, 20) == (4, 20)
    assert takeovers.end_of(0, 20) == (-1, -1)


def test_a_leader_that_restarts_and_a_follower_with_a_longer_history() -> None:
    # Node 1 led epoch 1 and wrote to 12; the follower had 10 when node 1 restarted as epoch 2.
    leader, follower = table((1, 1, 0), (2, 1, 10)), table((1, 1, 0))
    epoch, end = leader.end_of(follower.latest_epoch, 14)
    assert (epoch, end) == (1, 10)


def test_only_newer_epochs_enter() -> None:
    takeovers = table((3, 1, 5))
    with pytest.raises(ValueError, match="not newer"):
        takeovers.add(Takeover(3, 2, 9))


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 9)), max_size=8), st.integers(0, 60))
def test_a_cut_forgets_what_begins_at_or_after_it(steps: list[tuple[int, int]], end: int) -> None:
    takeovers, epoch, offset = LeaderEpochCache(), 0, 0
    for more_epochs, more_offsets in steps:
        epoch, offset = epoch + more_epochs, offset + more_offsets
        takeovers.add(Takeover(epoch, 1, offset))
    before = takeovers.rows()
    takeovers.cut(end)
    assert takeovers.rows() == [row for row in before if row[2] < end]


def cache_of(records: list[int]) -> LeaderEpochCache:
    return LeaderEpochCache([(epoch, 1, records.index(epoch)) for epoch in dict.fromkeys(records)])


@given(RECORDS, st.integers(0, 7))
def test_epochs_are_those_of_the_records(records: list[int], epoch: int) -> None:
    cache, end = cache_of(records), len(records)
    assert [cache.epoch_at(offset) for offset in range(end)] == records
    upto = [one for one in records if one <= epoch]
    assert cache.end_of(epoch, end) == ((upto[-1], len(upto)) if upto else NO_END)


@given(RECORDS, st.integers(0, 8))
def test_a_log_that_begins_later_knows_no_epochs_before(records: list[int], start: int) -> None:
    start = min(start, len(records))
    cache = cache_of(records)
    cache.start_at(start)
    assert [cache.epoch_at(offset) for offset in range(len(records))] == [-1] * start + records[start:]
    assert (cache.earliest_epoch, cache.latest_epoch) == (
        (records[start] if start < len(records) else records[-1], records[-1]) if records else (-1, -1)
    )


@given(RECORDS.filter(bool), RECORDS, RECORDS)
def test_cuts_end_where_the_histories_part(shared: list[int], leaders: list[int], followers: list[int]) -> None:
    """What two leaders order behind a shared beginning is of different epochs: here even ones and odd ones."""
    base = shared[-1]
    theirs = shared + [base + 2 * epoch + 2 for epoch in leaders]
    own = shared + [base + 2 * epoch + 1 for epoch in followers]
    leader = cache_of(theirs)
    rounds = 0
    while diverging(parting := leader.end_of(own[-1], len(theirs)), Position(own[-1], len(own))):
        offset = truncation(cache_of(own).end_of(parting.leader_epoch, len(own)), parting)
        assert len(shared) <= offset < len(own)
        del own[offset:]
        rounds += 1
        assert rounds <= len(followers)
    assert own == shared
