"""What a reader of what is committed may see of a transaction, and how it finds that out."""

import pytest

from duramen.codec.batch import TRANSACTIONAL, BatchInput, encode
from duramen.codec.markers import encode_marker
from duramen.sim.checkers.transaction import SimulatedTransaction, decided
from duramen.sim.machine.trace import BrokenPromise


def batch(offset: int, producer_id: int, attributes: int = TRANSACTIONAL) -> bytes:
    new = [BatchInput(0, None, b"%d" % offset)]
    return bytes(encode(new, base_offset=offset, attributes=attributes, producer_id=producer_id, producer_epoch=0,
                        base_sequence=0))  # fmt: skip


def marker(offset: int, producer_id: int, *, commit: bool) -> bytes:
    found = encode_marker(producer_id, 0, commit=commit, coordinator_epoch=1, now_ms=0)
    found[:8] = offset.to_bytes(8, "big")
    return bytes(found)


def test_a_transaction_that_was_aborted_is_left_out_up_to_its_marker() -> None:
    data = [
        batch(0, 7), batch(1, 8), marker(2, 7, commit=False), batch(3, 7), marker(4, 8, commit=True),
        marker(5, 7, commit=True), batch(6, -1, 0),
    ]  # fmt: skip
    found = list(decided(b"".join(data), [(7, 0)]))
    assert found == [(data[0], False), (data[1], True), (data[3], True)]


@pytest.mark.parametrize("fate", ["open", "aborted"])
def test_what_is_not_committed_may_not_be_read(fate: str) -> None:
    transaction = SimulatedTransaction(1)
    if fate == "aborted":
        transaction.seen("a-0", committed=False)
    with pytest.raises(BrokenPromise, match=fate):
        transaction.seen("a-0", committed=True)


def test_all_partitions_have_to_agree_on_one_that_was_ending() -> None:
    transaction = SimulatedTransaction(1)
    transaction.fate = "ending"
    transaction.seen("a-0", committed=True)
    with pytest.raises(BrokenPromise, match="committed, is left out"):
        transaction.seen("a-1", committed=False)
