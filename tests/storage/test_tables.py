"""The producers of a log."""

from typing import NamedTuple

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duramen.base.errors import DuramenError, OutOfOrderSequence, ProducerFenced
from duramen.codec.batch import BatchInput, Header, check, encode
from duramen.codec.sequences import FIRST_DERIVED_ID, derived_id
from duramen.storage.log.producers import ANY_ID, MOST_DERIVED, ProducerTable


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


def test_an_unknown_derived_id_begins_anywhere_and_forgetting_one_says_nothing_of_others() -> None:
    producers = ProducerTable()
    producers.add(check(batch(FIRST_DERIVED_ID + 1, 0, 7)), 5, 1000)
    assert producers.check(check(batch(FIRST_DERIVED_ID + 1, 0, 7))) == 5
    with pytest.raises(OutOfOrderSequence, match=r"^the producer writes sequence 9, not 8$"):
        producers.check(check(batch(FIRST_DERIVED_ID + 1, 0, 9)))
    producers.start_at(6)
    producers.replace(ProducerTable(), 6)
    producers.add(check(batch(FIRST_DERIVED_ID + 1, 0, 8)), 6, 1000)
    assert producers.expire(1001)
    assert (len(producers), producers.forgotten_id) == (0, -1)
    assert producers.check(check(batch(FIRST_DERIVED_ID + 1, 0, 8))) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(check(batch(3, 0, 9)))


@pytest.mark.parametrize("forgotten_id", [FIRST_DERIVED_ID, ANY_ID - 1, ANY_ID])
def test_an_id_that_was_never_allocated_is_not_forgotten(forgotten_id: int) -> None:
    producers = ProducerTable((), forgotten_id)  # as an older node notes derived ids
    assert producers.check(check(batch(3, 0, 9))) is None
    assert producers.bound_forgotten(2)
    assert not producers.bound_forgotten(2)
    assert producers.check(check(batch(2, 0, 9))) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(check(batch(3, 0, 9)))


def test_the_newest_derived_ids_are_kept_also_by_a_table_of_rows() -> None:
    producers, head = ProducerTable(), check(batch(FIRST_DERIVED_ID, 0, 0))
    producers.add(check(batch(1, 0, 0)), 0, 0)
    for number in range(MOST_DERIVED):
        producers.add(head._replace(producer_id=FIRST_DERIVED_ID + number), number, 0)
    producers.add(head._replace(base_sequence=1), MOST_DERIVED, 0)  # the first is the newest now
    producers.add(head._replace(producer_id=ANY_ID - 1), MOST_DERIVED + 1, 0)
    restored = ProducerTable(producers.rows())
    for table in (producers, restored):
        table.add(head._replace(producer_id=ANY_ID - 2), MOST_DERIVED + 2, 0)
        assert len(table) == MOST_DERIVED + 1
        assert table.has_written(1)
        assert [table.has_written(FIRST_DERIVED_ID + number) for number in range(4)] == [True, False, False, True]


@given(st.binary(min_size=8, max_size=16))
@example(b"\xff" * 8)
@example(b"\x3f" + b"\xff" * 7)
def test_derived_ids_are_neither_ids_of_producers_nor_the_one_that_stands_for_all(hashed: bytes) -> None:
    assert FIRST_DERIVED_ID <= derived_id(hashed) < ANY_ID


class Placed(NamedTuple):
    """A batch of a turn and its offset."""

    head: Header
    base_offset: int


WITHOUT = check(batch(-1, -1, -1))
COUNTS = (1, 1, 3, 1 << 24, 1 << 30, (1 << 31) - 1)
Drawn = tuple[int, int, int, int]
"""Producer, epoch, number of records, and the distance of the sequence from the next one."""
DRAWN = st.tuples(
    st.sampled_from((-1, 1, 1, 2)), st.sampled_from((0, 0, 0, 1)), st.sampled_from(COUNTS),
    st.sampled_from((0, 0, 0, 0, 1, -1, -5)),
)  # fmt: skip


def one_after_another(producers: ProducerTable, batches: list[Placed]) -> bool:
    """Append batches to the table; whether each is new and none is refused."""
    new = True
    for one in batches:
        if one.head.producer_id < 0:
            continue
        try:
            new = producers.check(one.head) is None and new
        except DuramenError:
            return False
        producers.add(one.head, one.base_offset, one.base_offset)
    return new


def placed(drawn: list[Drawn], sequences: dict[int, int]) -> list[Placed]:
    """Batches as drawn, behind those with which `sequences` came about."""
    found: list[Placed] = []
    for id_, epoch, count, distance in drawn:
        sequence = sequences.get(id_, 0) + distance & 0x7FFFFFFF
        sequences[id_] = sequence + count & 0x7FFFFFFF
        head = WITHOUT._replace(
            producer_id=id_, producer_epoch=epoch, base_sequence=sequence, last_offset_delta=count - 1, records=count
        )
        found.append(Placed(head, len(found)))
    return found


@given(st.lists(DRAWN, max_size=6), st.lists(DRAWN, max_size=12))
@example([(1, 0, 1 << 30, 0), (1, 0, 1 << 30, 0)], [(1, 0, 1 << 30, 0)])  # the sequences of a duplicate
@example([(1, 0, 1, 0)], [(1, 0, 1, 0), (2, 0, 1, 0)])
def test_batches_that_follow_are_added_together_as_one_after_another(before: list[Drawn], drawn: list[Drawn]) -> None:
    sequences: dict[int, int] = {}
    together, apart = ProducerTable(), ProducerTable()
    for one in placed(before, sequences):
        one_after_another(together, [one])
        one_after_another(apart, [one])
    batches = placed(drawn, sequences)
    rows = together.rows()
    follow = together.follow(batches)
    assert together.rows() == rows
    if follow:
        assert one_after_another(apart, batches)
        together.add_all(batches, len(batches) - 1)
        ours, theirs = ({row[0]: (row[1], row[3]) for row in table.rows()} for table in (together, apart))
        assert ours == theirs


def test_the_usual_batches_of_known_producers_follow() -> None:
    producers = ProducerTable()
    batches = placed([(1, 0, 1, 0), (2, 0, 3, 0), (1, 0, 1, 0), (-1, 0, 1, 0), (1, 0, 2, 0)], {})
    assert not producers.follow(batches), "the first batch of a producer is examined by itself"
    assert one_after_another(producers, batches[:2])
    assert producers.follow(batches[2:])
