"""Whether a follower takes its log in bulk: where much is lacking, and not back and forth."""

from hypothesis import given
from hypothesis import strategies as st

from duramen.broker.replicas.bulk import BulkBytes
from duramen.replication.messages import ReplicaBatch

BOUNDS = BulkBytes(begin=10_000, end=1_000)


def test_much_is_taken_in_bulk_until_little_is_lacking() -> None:
    bulk = False
    said = []
    for at in range(0, 200, 10):  # 100 bytes a record
        bulk = BOUNDS.is_much([ReplicaBatch(1, at, 10)], 1_000, 200, bulk=bulk)
        said.append(bulk)
    assert said == [at <= 190 for at in range(0, 200, 10)]
    bulk = BOUNDS.is_much([ReplicaBatch(1, 195, 5)], 500, 200, bulk=bulk)
    assert not bulk
    assert not BOUNDS.is_much([ReplicaBatch(1, 200, 10)], 1_000, 290, bulk=bulk)  # little more has come meanwhile


def test_an_answer_without_batches_changes_nothing() -> None:
    assert not BOUNDS.is_much([], 0, 1 << 40, bulk=False)
    assert BOUNDS.is_much([ReplicaBatch(1, 0)], 100, 1_000, bulk=False)
    assert BOUNDS.is_much([], 0, 0, bulk=True)


@given(st.integers(1, 1 << 40), st.integers(0, 1 << 40), st.integers(1, 1 << 30), st.integers(0, 1 << 62))
def test_whatever_a_leader_says_there_is_an_answer(records: int, first: int, size: int, high_watermark: int) -> None:
    lacking = (high_watermark - first) * size / records
    said = BOUNDS.is_much([ReplicaBatch(0, first, records)], size, high_watermark, bulk=False)
    assert said == (lacking >= BOUNDS.begin)
