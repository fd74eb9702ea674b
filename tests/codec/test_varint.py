"""Varints against Kafka clients' own, and against bytes nobody wrote on purpose."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.untyped import untyped

from duramen.codec.varint import encode_uvarint, encode_varint, read_uvarint, read_varint, varint_size

SIGNED = st.integers(-(1 << 63), (1 << 63) - 1)
UNSIGNED = st.integers(0, (1 << 64) - 1)

kafka_python = untyped("kafka.record.util")


@given(SIGNED)
def test_signed_round_trip_and_size(value: int) -> None:
    encoded = encode_varint(value)
    assert read_varint(encoded, 0) == (value, len(encoded))
    assert varint_size(value) == len(encoded)


@given(UNSIGNED, st.binary(max_size=3), st.binary(max_size=3))
def test_unsigned_round_trip_in_the_middle_of_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_uvarint(value)
    assert read_uvarint(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@given(SIGNED)
def test_same_bytes_as_kafka_python(value: int) -> None:
    theirs = bytearray()
    kafka_python.encode_varint(value, theirs.append)
    assert encode_varint(value) == theirs
    assert kafka_python.decode_varint(memoryview(theirs))[0] == value


@given(st.binary(max_size=12))
def test_any_bytes_give_64_bits_or_a_value_error(data: bytes) -> None:
    try:
        value, position = read_uvarint(data, 0)
    except ValueError:
        return
    assert 0 <= value < 1 << 64
    assert 1 <= position <= min(10, len(data))
    signed, _ = read_varint(data, 0)
    assert -(1 << 63) <= signed < 1 << 63


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 9, b"\xff" * 9 + b"\x02", b"\x80" * 10 + b"\x01"])
def test_cut_off_or_too_long(data: bytes) -> None:
    with pytest.raises(ValueError, match="varint"):
        read_uvarint(data, 0)
