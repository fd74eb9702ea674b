"""The partitioner agrees with Kafka's clients; tests/client compares it with librdkafka's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.codec.partitioner import murmur2, partition_for_key


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_hashes_that_kafkas_own_tests_expect(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@given(st.binary(max_size=40), st.integers(1, 1000))
def test_partitions_are_there(key: bytes, partitions: int) -> None:
    assert 0 <= partition_for_key(key, partitions) < partitions
