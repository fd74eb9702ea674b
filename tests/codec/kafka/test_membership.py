"""Subscriptions and assignments. The group's tests have them read by other clients."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import RequestInvalid
from duramen.codec.kafka.membership import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

NAMES = st.text("abc-_.0", min_size=1, max_size=20)


@given(st.lists(NAMES))
def test_subscriptions_go_around(topics: list[str]) -> None:
    assert decode_subscription(encode_subscription(topics)) == topics


@given(st.dictionaries(NAMES, st.lists(st.integers(0, 1 << 20))))
def test_assignments_go_around(partitions: dict[str, list[int]]) -> None:
    assert decode_assignment(encode_assignment(partitions)) == partitions


def test_bytes_as_the_protocol_has_them() -> None:
    assert encode_subscription(["ab"]).hex(" ") == "00 00 00 00 00 01 00 02 61 62 ff ff ff ff"
    assert encode_assignment({"a": [3]}).hex(" ") == "00 00 00 00 00 01 00 01 61 00 00 00 01 00 00 00 03 ff ff ff ff"
    assert decode_assignment(b"") == {}


def test_newer_versions_are_read() -> None:
    owned = bytes.fromhex("00000000 ffffffff")
    assert decode_subscription(b"\0\3" + encode_subscription(["t"])[2:] + owned) == ["t"]


@given(st.binary(max_size=60))
def test_noise_is_refused_or_read(data: bytes) -> None:
    for decode in (decode_subscription, decode_assignment):
        with contextlib.suppress(RequestInvalid):
            decode(data)


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff" + encode_subscription(["t"])[2:], b"\0\0\0\0\0\1"])
def test_what_cannot_be_is_refused(data: bytes) -> None:
    with pytest.raises(RequestInvalid):
        decode_subscription(data)
