"""The takeover table and the producers of a log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import OutOfOrderSequence, ProducerFenced
from duramen.base.leader_epochs import LeaderEpochCache, Takeover
from duramen.codec.batch import BatchInput, check, encode
from duramen.storage.log.producers import ProducerTable


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


def test_the_tables_own_example_a_leader_that_restarts_and_a_follower_with_a_longer_history() -> None:
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


def batch(producer_id: int, epoch: int, sequence: int, count: int = 1) -> bytearray:
    return encode(
        [BatchInput(0, None, b"x")] * count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence
    )


def test_a_repetition_of_one_of_the_last_five_batches_gets_its_first_offset() -> None:
    producers = ProducerTable()
    for number in range(8):
        head = check(batch(1, 0, number * 2, 2))
        assert producers.check(head) is None
        producers.add(head, 100 + number * 2, 0)
    for number in range(3, 8):
        assert producers.check(check(batch(1, 0, number * 2, 2))) == 100 + number * 2
    with pytest.raises(OutOfOrderSequence):
        producers.check(check(batch(1, 0, 0, 2)))


def test_sequences_follow_each_other_and_wrap() -> None:
    producers = ProducerTable()
    last = check(batch(1, 0, 2**31 - 1))
    producers.add(last, 5, 0)
    with pytest.raises(OutOfOrderSequence):
        producers.check(check(batch(1, 0, 1)))
    assert producers.check(check(batch(1, 0, 0))) is None


def test_epochs_fence_and_begin_at_zero() -> None:
    producers = ProducerTable()
    producers.add(check(batch(1, 3, 0)), 5, 0)
    with pytest.raises(ProducerFenced):
        producers.check(check(batch(1, 2, 1)))
    with pytest.raises(OutOfOrderSequence):
        producers.check(check(batch(1, 4, 1)))
    assert producers.check(check(batch(1, 4, 0))) is None


def test_producers_that_write_nothing_for_long_are_forgotten_and_rows_restore_the_rest() -> None:
    producers = ProducerTable()
    producers.add(check(batch(1, 0, 0)), 5, 1000)
    producers.add(check(batch(2, 0, 0)), 6, 2000)
    assert producers.expire(1500)
    assert not producers.expire(1500)
    restored = ProducerTable(producers.rows(), producers.forgotten_id)
    assert len(restored) == 1
    assert restored.check(check(batch(2, 0, 0))) == 6
    assert restored.check(check(batch(1, 0, 9))) is None
    with pytest.raises(OutOfOrderSequence):
        restored.check(check(batch(3, 0, 9)))


def test_a_producer_that_is_not_known_begins_at_zero_unless_it_may_have_been_forgotten() -> None:
    producers = ProducerTable(forgotten_id=7)
    assert producers.check(check(batch(7, 0, 5))) is None
    assert producers.check(check(batch(8, 0, 0))) is None
    with pytest.raises(OutOfOrderSequence, match="producer 8 has written nothing here"):
        producers.check(check(batch(8, 0, 5)))
    with pytest.raises(OutOfOrderSequence):
        producers.check(check(batch(8, 3, 1)))


def test_who_wrote_only_before_the_start_may_be_forgotten() -> None:
    producers = ProducerTable()
    producers.add(check(batch(1, 0, 0, 2)), 0, 0)
    producers.add(check(batch(2, 0, 0, 2)), 2, 0)
    producers.add(check(batch(1, 0, 2, 2)), 4, 0)
    producers.start_at(2)
    assert producers.forgotten_id == -1
    producers.start_at(4)
    assert producers.forgotten_id == 2
    producers.start_at(5)  # within the last batch
    assert producers.forgotten_id == 2
    assert producers.check(check(batch(1, 0, 4))) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(check(batch(1, 0, 5)))


def test_a_cut_forgets_nobody_whose_batches_it_takes() -> None:
    producers, left = ProducerTable(), ProducerTable()
    for producer_id, base_offset in ((1, 0), (2, 1), (3, 2)):
        producers.add(check(batch(producer_id, 0, 0)), base_offset, 0)
    left.add(check(batch(1, 0, 0)), 0, 0)
    producers.replace(left, 2)  # and that of producer 2 is damaged
    assert producers.forgotten_id == 2
    with pytest.raises(OutOfOrderSequence):
        producers.check(check(batch(3, 0, 1)))
    assert producers.check(check(batch(3, 0, 0))) is None
