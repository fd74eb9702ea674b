"""Whether a follower takes its log in bulk: where much is lacking, and not back and forth."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.broker.replicas.bulk import Bulk, BulkBytes
from duramen.replication.messages import Batch

BOUNDS = BulkBytes(begin=10_000, end=1_000)


def test_much_is_taken_in_bulk_until_little_is_lacking() -> None:
    bulk = Bulk(BOUNDS)
    said = [bulk.came([Batch(1, at, 10)], 1_000, 200) for at in range(0, 200, 10)]  # 100 bytes a record
    assert said == [at <= 190 for at in range(0, 200, 10)]
    assert not bulk.came([Batch(1, 195, 5)], 500, 200)
    assert not bulk.came([Batch(1, 200, 10)], 1_000, 290)  # little more has come meanwhile


def test_an_answer_without_batches_changes_nothing() -> None:
    bulk = Bulk(BOUNDS)
    assert not bulk.came([], 0, 1 << 40)
    assert bulk.came([Batch(1, 0)], 100, 1_000)
    assert bulk.came([], 0, 0)


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 1 << 30), st.integers(0, 1 << 62))
def test_whatever_a_leader_says_there_is_an_answer(records: int, first: int, size: int, high_watermark: int) -> None:
    bulk = Bulk(BOUNDS)
    lacking = (high_watermark - first) * size / records
    said = bulk.came([Batch(0, first, records)], size, high_watermark)
    assert said == (lacking >= BOUNDS.begin)
