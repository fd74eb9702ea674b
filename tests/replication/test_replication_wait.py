"""Waits for a record: there and safe, cut, or not known."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.base.ids import Position
from duramen.replication.history import ReplicaHistory
from duramen.replication.replication_wait import ANY_EPOCH, ReplicationWaitOutcome, ReplicationWaits, judge


def history_of(records: list[int], synced_offset: int) -> ReplicaHistory:
    history = ReplicaHistory((), 0, 0)
    for epoch in records:
        history.append(epoch, 1, 1)
    history.synced_offset = synced_offset
    return history


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8).map(sorted),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 6),
    st.integers(0, 9),
)
def test_what_became_of_a_record(records: list[int], shown: int, synced: int, epoch: int, offset: int) -> None:
    shown_offset, synced_offset = min(shown, len(records)), min(synced, len(records))
    committed = records[:shown_offset]
    outcome = judge(history_of(records, synced_offset), shown_offset, Position(epoch, offset))
    if offset < len(committed) and committed[offset] == epoch:
        assert outcome is (ReplicationWaitOutcome.REACHED if offset < synced_offset else None)
    elif offset < len(committed) or (committed and committed[-1] > epoch):
        assert outcome is ReplicationWaitOutcome.CUT
    else:
        assert outcome is None


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=8).map(sorted),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(0, 9),
)
def test_of_any_epoch_a_record_is_never_cut(records: list[int], shown: int, synced: int, offset: int) -> None:
    shown_offset, synced_offset = min(shown, len(records)), min(synced, len(records))
    outcome = judge(history_of(records, synced_offset), shown_offset, Position(ANY_EPOCH, offset))
    assert outcome is (ReplicationWaitOutcome.REACHED if offset < min(shown_offset, synced_offset) else None)


def test_whose_record_was_there_nobody_knows_when_it_is_deleted() -> None:
    history = history_of([1, 1, 2, 3], 4)
    history.start_at(2)
    assert judge(history, 4, Position(1, 0)) is ReplicationWaitOutcome.DELETED
    assert judge(history, 4, Position(2, 0)) is ReplicationWaitOutcome.DELETED
    assert judge(history, 4, Position(2, 2)) is ReplicationWaitOutcome.REACHED


def test_each_is_told_once() -> None:
    history, waits = history_of([1, 1, 2], 3), ReplicationWaits()
    waits.add(Position(1, 0), "there", 90)
    waits.add(Position(1, 2), "cut", 90)
    waits.add(Position(2, 7), "late", 50)
    waits.add(Position(2, 8), "later", 70)
    assert waits.deadline_ms == 50
    assert waits.settle(history, 3, 10) == [
        ("there", ReplicationWaitOutcome.REACHED),
        ("cut", ReplicationWaitOutcome.CUT),
    ]
    assert waits.settle(history, 3, 50) == [("late", ReplicationWaitOutcome.TIMED_OUT)]
    assert waits.deadline_ms == 70
    assert waits.settle(history, 3, 69) == []
