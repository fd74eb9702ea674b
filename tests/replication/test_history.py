"""Where two histories part, against logs written out record by record."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.base.ids import Position
from duramen.replication.history import ReplicaHistory

epochs = st.lists(st.integers(0, 6), max_size=8).map(sorted)


def history_of(records: list[int]) -> ReplicaHistory:
    history = ReplicaHistory((), 0, 0)
    for epoch in records:
        history.append(epoch, 1, 1)
    history.synced_offset = 0
    return history


def end_of(records: list[int]) -> Position:
    return Position(records[-1] if records else -1, len(records))


@given(epochs, epochs, epochs)
def test_the_follower_ends_where_the_histories_part(
    shared: list[int], leaders: list[int], followers: list[int]
) -> None:
    """What two leaders order behind a shared beginning is of different epochs: here even ones and odd ones."""
    base = shared[-1] if shared else 0
    leader = shared + [base + 2 * epoch + 2 for epoch in leaders]
    follower = shared + [base + 2 * epoch + 1 for epoch in followers]
    log, own = history_of(leader), history_of(follower)
    if not log.knows(own.end):
        # Not even the first record is the same.
        assert not shared
        return
    rounds = 0
    while (parting := log.parting(own.end)) is not None:
        place = own.meeting(parting)
        assert len(shared) <= place < own.end_offset
        own.cut(place)
        rounds += 1
        assert rounds <= len(followers)
    assert own.end == end_of(shared)
    assert log.holds(own.end)


@given(epochs, st.integers(0, 8), st.integers(0, 6))
def test_a_sync_counts_for_the_history_that_it_was_of(records: list[int], offset: int, epoch: int) -> None:
    history = history_of(records)
    known = 0 < offset <= len(records) and records[offset - 1] == epoch
    assert history.synced(Position(epoch, offset)) == known
    assert history.synced_offset == (offset if known else 0)
    assert not history.synced(Position(epoch, offset))


@given(epochs, st.integers(0, 8), epochs)
def test_a_cut_log_is_the_shorter_one(records: list[int], at: int, more: list[int]) -> None:
    place = min(at, len(records))
    history = history_of(records)
    history.synced(history.end)
    history.cut(place)
    assert history.end == end_of(records[:place])
    assert history.synced_offset == place
    left = records[:place]
    grown = [(left[-1] if left else 0) + epoch for epoch in more]
    for epoch in grown:
        history.append(epoch, 2, 1)
    assert [history.epoch_at(offset) for offset in range(history.end_offset)] == left + grown


def test_what_began_anew_is_on_disk_when_that_is_synced() -> None:
    history = history_of([1, 1, 2])
    history.synced(history.end)
    history.restart(9, 2)
    assert history.end == Position(-1, 9)
    assert history.synced_offset == 2
    assert not history.synced(Position(2, 3))
    assert history.synced(Position(-1, 9))
    assert history.synced_offset == 9


def test_a_log_without_records_parts_from_none_that_reaches_to_it() -> None:
    log = history_of([3, 3, 3])
    log.start_at(2)
    assert log.holds(Position(-1, 2))
    assert log.holds(Position(-1, 3))
    assert not log.holds(Position(-1, 1))
    assert not log.holds(Position(-1, 4))


def test_nobody_knows_what_an_epoch_before_the_first_had() -> None:
    log = ReplicaHistory([(5, 1, 10)], 10, 14)
    assert not log.knows(Position(4, 10))
    assert not log.knows(Position(4, 12))
    assert not log.knows(Position(5, 9))
    assert log.holds(Position(5, 11))


def test_what_is_before_the_start_is_not_known_any_more() -> None:
    log = history_of([1, 1, 2, 2, 4])
    log.start_at(3)
    assert [log.epoch_at(offset) for offset in range(5)] == [-1, -1, -1, 2, 4]
    assert log.holds(Position(2, 3))
    assert not log.holds(Position(1, 3))
    log.start_at(5)
    assert log.end == Position(4, 5)
    assert log.holds(Position(4, 5))
