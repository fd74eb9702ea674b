"""Records of `__consumer_offsets`: round trips, and the bytes that kafka-python's types make of the same values."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.untyped import untyped

from duramen.base.errors import BatchCorrupt
from duramen.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    OtherKey,
    decode_group,
    decode_key,
    decode_offset,
    encode_group,
    encode_key,
    encode_offset,
    partition_for,
)
from duramen.groups.values import GroupSnapshot, MemberSnapshot

types = untyped("kafka.protocol.old.types")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
CONTENT = st.binary(max_size=20)
KEYS = st.one_of(st.builds(OffsetKey, TEXT, TEXT, INT32), st.builds(GroupKey, TEXT))
OFFSETS = st.builds(CommittedOffset, INT64, INT32, TEXT, INT64)
MEMBERS = st.builds(MemberSnapshot, TEXT, st.none() | TEXT, TEXT, TEXT, INT32, INT32, CONTENT, CONTENT)
GROUPS = st.builds(
    GroupSnapshot, INT32, TEXT, st.none() | TEXT, st.none() | TEXT, st.lists(MEMBERS, max_size=3).map(tuple)
)

OFFSET_KEY = types.Schema(
    ("version", types.Int16), ("group", types.String()), ("topic", types.String()), ("partition", types.Int32)
)
GROUP_KEY = types.Schema(("version", types.Int16), ("group", types.String()))
OFFSET_VALUE = types.Schema(
    ("version", types.Int16),
    ("offset", types.Int64),
    ("leader_epoch", types.Int32),
    ("metadata", types.String()),
    ("commit_timestamp", types.Int64),
)
GROUP_VALUE = types.Schema(
    ("version", types.Int16),
    ("protocol_type", types.String()),
    ("generation", types.Int32),
    ("protocol", types.String()),
    ("leader", types.String()),
    ("current_state_timestamp", types.Int64),
    (
        "members",
        types.Array(
            ("member_id", types.String()),
            ("group_instance_id", types.String()),
            ("client_id", types.String()),
            ("client_host", types.String()),
            ("rebalance_timeout", types.Int32),
            ("session_timeout", types.Int32),
            ("subscription", types.Bytes),
            ("assignment", types.Bytes),
        ),
    ),
)


@given(KEYS)
def test_keys(key: OffsetKey | GroupKey) -> None:
    encoded = encode_key(key)
    assert decode_key(encoded) == key
    if isinstance(key, OffsetKey):
        assert encoded == OFFSET_KEY.encode((1, *key))
        assert decode_key(b"\0\0" + encoded[2:]) == key
    else:
        assert encoded == GROUP_KEY.encode((2, key.group))


@given(OFFSETS)
def test_offsets(committed: CommittedOffset) -> None:
    encoded = encode_offset(committed)
    assert decode_offset(encoded) == committed
    assert encoded == OFFSET_VALUE.encode((3, *committed))


@given(GROUPS, INT64)
def test_groups(snapshot: GroupSnapshot, written_ms: int) -> None:
    encoded = encode_group(snapshot, written_ms)
    assert decode_group(encoded) == (snapshot, written_ms)
    generation, protocol_type, protocol, leader, members = snapshot
    rows = [
        (
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            member.rebalance_timeout_ms,
            member.session_timeout_ms,
            member.subscription,
            member.assignment,
        )
        for member in members
    ]
    assert encoded == GROUP_VALUE.encode((3, protocol_type, generation, protocol, leader, written_ms, rows))


def test_kinds_of_keys_that_are_not_known_are_left_alone() -> None:
    assert decode_key(b"\0\x11\0\x01g") is None


@pytest.mark.parametrize("version", range(3, 17))
def test_keys_of_other_kinds_of_groups_name_their_group_first(version: int) -> None:
    data = b"\0" + bytes((version,)) + b"\0\x01gwhat is the kind's own"
    key = decode_key(data)
    assert key == OtherKey("g", data)
    assert encode_key(OtherKey("g", data)) == data


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_key, decode_offset, decode_group):
        with contextlib.suppress(BatchCorrupt):
            decode(data)


@pytest.mark.parametrize(
    ("group", "hashed"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99_162_322),
        ("hello world", 1_794_106_052),
        ("Hello World", -862_545_276),
        ("polygenelubricants", -(1 << 31)),  # has no absolute value in 32 bits
        ("\U0001f600", 1_772_899),  # two UTF-16 units
    ],
)
def test_the_partition_is_java_s_hash(group: str, hashed: int) -> None:
    assert partition_for(group, 50) == (0 if hashed == -(1 << 31) else abs(hashed) % 50)


@given(TEXT, st.integers(1, 100))
def test_the_partition_is_in_range(group: str, partitions: int) -> None:
    assert 0 <= partition_for(group, partitions) < partitions
