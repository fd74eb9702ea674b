"""Keys on whole columns go where each of them goes alone."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from duramen.codec import partitioner
from duramen.spark.write.partitioner import NO_KEY, murmur2, partitions_of, split

keys = st.lists(st.none() | st.binary(max_size=40), max_size=30)


@given(keys, st.integers(1, 50), st.integers(0, 5))
def test_every_key_is_where_every_client_has_it(found: list[bytes | None], count: int, skipped: int) -> None:
    column = pa.array(found, pa.binary())
    column = column.slice(min(skipped, len(found)), max(0, len(found) - skipped))
    expected = [NO_KEY if key is None else partitioner.partition_of(key, count) for key in found[skipped:]]
    assert partitions_of(column, count).tolist() == expected


@given(st.lists(st.binary(max_size=300) | st.integers(1020, 1030).map(bytes), max_size=8))
def test_the_hash_is_kafkas(found: list[bytes]) -> None:
    assert murmur2(pa.array(found, pa.binary())).tolist() == [partitioner.murmur2(key) for key in found]


@given(st.lists(st.integers(0, 4), max_size=40))
def test_rows_are_split_in_their_order(partitions: list[int]) -> None:
    rows = pa.RecordBatch.from_arrays([pa.array(range(len(partitions)), pa.int64())], names=["at"])
    found = split(rows, np.array(partitions, np.int32))
    assert {at: part.column("at").to_pylist() for at, part in found} == {
        at: [row for row, where in enumerate(partitions) if where == at] for at in set(partitions)
    }
    assert len(found) == len(set(partitions))
