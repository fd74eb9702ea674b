"""Records of `__transaction_state`: round trips, Kafka's own bytes, damage."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import BatchCorrupt
from duramen.transactions.records import decode_key, decode_value, encode_key, encode_value
from duramen.transactions.values import PartitionName, TransactionalId, TransactionState

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.integers(-1, (1 << 63) - 1)
TRANSACTIONS = st.builds(
    TransactionalId,
    id=TEXT,
    producer_id=st.integers(0, (1 << 63) - 1),
    epoch=st.integers(0, 32767),
    last_epoch=st.just(-1),
    previous_producer_id=IDS,
    next_producer_id=IDS,
    timeout_ms=st.integers(1, (1 << 31) - 1),
    state=st.sampled_from(TransactionState),
    partitions=st.frozensets(st.builds(PartitionName, TEXT, st.integers(0, 1 << 20)), max_size=8),
    started_ms=st.integers(-1, 1 << 45),
    updated_ms=st.integers(-1, 1 << 45),
    version=st.sampled_from([0, 2]),
    sequence=IDS,
)


@given(TRANSACTIONS)
def test_round_trip(one: TransactionalId) -> None:
    stored = one if one.state is not TransactionState.EMPTY else one._replace(partitions=frozenset())
    assert decode_key(encode_key(one.id)) == one.id
    assert decode_value(one.id, encode_value(stored)) == stored


def test_the_bytes_are_kafka_s() -> None:
    one = TransactionalId(
        "t", 7, 3, previous_producer_id=7, timeout_ms=60_000, state=TransactionState.ONGOING,
        partitions=frozenset([PartitionName("topic", 1), PartitionName("topic", 0)]), started_ms=5, updated_ms=9,
        version=2,
    )  # fmt: skip
    assert encode_key("t") == b"\0\0\0\x01t"
    assert encode_value(one) == (
        struct.pack(">hqhib", 1, 7, 3, 60_000, 1)
        + b"\x02\x06topic\x03" + struct.pack(">ii", 0, 1) + b"\0"
        + struct.pack(">qq", 9, 5)
        + b"\x02" + b"\x00\x08" + struct.pack(">q", 7) + b"\x02\x02\0\x02"
    )  # fmt: skip
    old = struct.pack(">hqhib", 0, 7, 3, 60_000, 1) + struct.pack(">ih", 1, 5) + b"topic" + struct.pack(">iii", 2, 0, 1)
    assert decode_value("t", old + struct.pack(">qq", 9, 5)) == one._replace(previous_producer_id=-1, version=0)
    assert encode_value(TransactionalId("t", 7, 3))[17:18] == b"\0", "no list where there is nothing"


def test_a_key_of_a_later_version_is_passed_over() -> None:
    assert decode_key(b"\0\x01\0\x01t") is None


@given(TRANSACTIONS, st.data())
def test_damage_is_named(one: TransactionalId, data: st.DataObject) -> None:
    whole = encode_value(one)
    with pytest.raises(BatchCorrupt):
        decode_value(one.id, whole[: data.draw(st.integers(0, len(whole) - 1))])
    place = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:place] + bytes([whole[place] ^ data.draw(st.integers(1, 255))]) + whole[place + 1 :]
    with contextlib.suppress(BatchCorrupt):
        decode_value(one.id, changed)


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0\x05t", b"\0\0\xff\xff"])
def test_a_damaged_key(key: bytes) -> None:
    with pytest.raises(BatchCorrupt):
        decode_key(key)
