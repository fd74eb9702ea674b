"""The producers of a log."""

import pytest

from duramen.base.errors import OutOfOrderSequence, ProducerFenced
from duramen.codec.batch import BatchInput, check, encode
from duramen.storage.log.producers import ProducerTable


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
