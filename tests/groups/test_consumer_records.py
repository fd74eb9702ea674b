"""Records of groups of the consumer protocol: byte for byte what Apache Kafka 4.4 writes and reads."""

import contextlib
from random import Random
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.groups.consumers import CONFIG, Driver, Someone

from duramen.base.errors import BatchCorrupt
from duramen.groups.consumer_records import (
    Key,
    RecordKind,
    decode_assignment,
    decode_key,
    decode_member,
    decode_metadata,
    decode_pattern,
    decode_places,
    decode_target_epoch,
    encode_assignment,
    encode_key,
    encode_member,
    encode_metadata,
    encode_pattern,
    encode_places,
    encode_target_epoch,
)
from duramen.groups.consumer_table import ConsumerTable
from duramen.groups.consumer_values import ClassicSide, ConsumerMember, MemberState

TOPIC = UUID(int=7)
MEMBER = ConsumerMember("m", "i", None, "c", "/h", frozenset({"a", "b"}), "x.*", 500, "range")
CLASSIC = MEMBER._replace(classic=ClassicSide(10, (("range", b"\1\2"),)))
HOLDING = MEMBER._replace(
    epoch=6, previous_epoch=5, state=MemberState.UNREVOKED, assigned=frozenset({(TOPIC, 0), (TOPIC, 2)}),
    revoking=frozenset({(TOPIC, 1)}),
)  # fmt: skip
ID = "0000000000000000" + "0000000000000007"

# Made with Apache Kafka's own classes (MessageUtil.toVersionPrefixedBytes, group-coordinator 4.4.0).
GROUP = "000000000005010008fffffffffffffff7"
OF_MEMBER = "00000269000263032f68030261026204782e2a000001f40672616e676500"
OF_CLASSIC = OF_MEMBER[:-2] + "010011010000000a020672616e67650301020000"
TARGET_EPOCH = "00000000000600"
TARGET = "000002" + ID + "0300000000000000020000"
ASSIGNMENT = "0000000000060000000501" + "02" + ID + "03000000000000000200" + "02" + ID + "02000000010000"
WITH_EPOCHS = "0000000000060000000500" + "02" + ID + "030000000000000002" + "0100090300000004000000050100"
PATTERN = "000003026102620000000000000000000000000000000000"


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (encode_metadata(5, -9), GROUP),
        (encode_member(MEMBER), OF_MEMBER),
        (encode_member(CLASSIC), OF_CLASSIC),
        (encode_target_epoch(6, 0), TARGET_EPOCH),
        (encode_places({(TOPIC, 2), (TOPIC, 0)}), TARGET),
        (encode_assignment(HOLDING), ASSIGNMENT),
        (encode_pattern(["b", "a"], 0), PATTERN),
        (encode_key(Key(RecordKind.GROUP, "g")), "0003" + "000167"),
        (encode_key(Key(RecordKind.MEMBER, "g", "m")), "0005" + "000167" + "00016d"),
        (encode_key(Key(RecordKind.PATTERN, "g", "x.*")), "0010" + "000167" + "0003782e2a"),
    ],
)
def test_they_are_written_as_kafka_writes_them(ours: bytes, theirs: str) -> None:
    assert ours.hex() == theirs


def test_what_kafka_writes_is_read() -> None:
    read = bytes.fromhex
    assert decode_metadata(read(GROUP)) == (5, -9)
    assert decode_member("m", read(OF_MEMBER)) == MEMBER
    assert decode_member("m", read(OF_CLASSIC)) == CLASSIC
    assert decode_target_epoch(read(TARGET_EPOCH)) == 6
    assert decode_places(read(TARGET)) == {(TOPIC, 0), (TOPIC, 2)}
    assert decode_assignment(MEMBER, read(ASSIGNMENT)) == HOLDING
    newer = decode_assignment(MEMBER, read(WITH_EPOCHS))
    since = {(TOPIC, 0): 4, (TOPIC, 2): 5}
    assert newer == HOLDING._replace(state=MemberState.STABLE, revoking=frozenset(), since=since)
    assert encode_assignment(newer).hex() == WITH_EPOCHS
    assert decode_pattern(read(PATTERN)) == {"a", "b"}


@pytest.mark.parametrize("key", [Key(kind, "grüße", "n" if kind in (5, 7, 8, 16) else "") for kind in RecordKind])
def test_keys_are_read_as_they_were_written(key: Key) -> None:
    assert decode_key(encode_key(key)) == key


def test_keys_of_other_kinds_of_groups_are_left_alone() -> None:
    assert decode_key(b"\0\x0b\0\x01g") is None


def test_a_state_that_is_not_known_yet() -> None:
    data = bytearray.fromhex(ASSIGNMENT)
    data[10] = 9
    assert decode_assignment(MEMBER, bytes(data)).state is MemberState.UNKNOWN


@given(st.binary(max_size=80))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    for decode in (decode_key, decode_metadata, decode_target_epoch, decode_places, decode_pattern):
        with contextlib.suppress(BatchCorrupt):
            decode(data)
    with contextlib.suppress(BatchCorrupt):
        decode_member("m", data)
    with contextlib.suppress(BatchCorrupt):
        decode_assignment(MEMBER, data)


@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_a_table_is_the_same_in_whatever_order_its_records_come(random: Random, members: int) -> None:
    driver = Driver(CONFIG, a=5, b=2)
    for number in range(members):
        Someone(driver, f"m{number}", "a", instance=f"i{number}", pattern="b.*").join()
    records = list(driver.stored.items())
    random.shuffle(records)
    table = ConsumerTable("g")
    for key, value in records:
        table.replay(key, value)
    ours = driver.group.table
    assert (table.members, table.target, table.patterns) == (ours.members, ours.target, ours.patterns)
    assert (table.epoch, table.target_epoch, table.metadata_hash) == (ours.epoch, ours.target_epoch, ours.metadata_hash)
    assert [table.owner(place) for place in ours.target_of("m0")] == ["m0"] * len(ours.target_of("m0"))
