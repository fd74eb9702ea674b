"""Kafka's partition rule, against another client's implementation of it."""

import importlib

from hypothesis import given
from hypothesis import strategies as st

from duramen.codec.partitioner import murmur2, partition_of

reference = importlib.import_module("aiokafka.partitioner").murmur2


@given(st.binary(max_size=100), st.integers(1, 1000))
def test_agrees_with_another_implementation(key: bytes, partitions: int) -> None:
    expected = reference(bytearray(key))
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_of(memoryview(key), partitions) == (expected & 0x7FFFFFFF) % partitions


def test_values_that_kafkas_own_tests_name() -> None:
    assert murmur2(b"21") == -973932308 & 0xFFFFFFFF
    assert murmur2(b"a-little-bit-longer-string") == -1486304829 & 0xFFFFFFFF
