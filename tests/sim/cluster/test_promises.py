"""What clients of a cluster were promised of transactions and offsets of groups: what breaks it is told."""

import pytest

from duramen.codec.batch import TRANSACTIONAL, BatchInput, batches, encode, header, stamp
from duramen.codec.markers import encode_marker
from duramen.groups.records import OffsetKey
from duramen.sim.checkers.transaction import SimulatedTransaction
from duramen.sim.cluster.checkers.history import Page, SentBatch
from duramen.sim.cluster.checkers.offsets import Bookmark, Bookmarks
from duramen.sim.machine.trace import BrokenPromise

PRODUCER = 7


def sent(number: int, transaction: SimulatedTransaction, offset: int) -> SentBatch:
    data = encode(
        [BatchInput(0, None, b"%d" % number)], attributes=TRANSACTIONAL, producer_id=PRODUCER, producer_epoch=0,
        base_sequence=number,
    )  # fmt: skip
    stamp(data, offset, 0)
    return SentBatch(
        number, bytes(data), header(data).crc, 1, acks_all=True, producer_id=PRODUCER, sequence=number,
        transaction=transaction,
    )  # fmt: skip


def marker(offset: int, *, commit: bool) -> bytes:
    data = encode_marker(PRODUCER, 0, commit=commit, coordinator_epoch=0, now_ms=0)
    stamp(data, offset, 0)
    return bytes(data)


def fate(transaction: SimulatedTransaction) -> str:
    return transaction.fate


def page_of(batch: SentBatch) -> Page:
    page = Page("a partition")
    page.sent(batch)
    page.acknowledged_at(batch, 0)
    return page


def test_a_committed_transaction_is_read() -> None:
    transaction = SimulatedTransaction(1)
    batch = sent(1, transaction, 0)
    page = page_of(batch)
    transaction.fate = "ending"
    page.read_committed(batch.data, ())
    assert fate(transaction) == "committed"
    assert page.whole(0, batch.data + marker(1, commit=True)) == 1


def test_what_is_open_or_was_aborted_is_not_read_as_committed() -> None:
    batch = sent(1, SimulatedTransaction(1), 0)
    with pytest.raises(BrokenPromise, match="which is open, is read as committed"):
        page_of(batch).read_committed(batch.data, ())
    page_of(batch).read_committed(batch.data, [(PRODUCER, 0)])
    with pytest.raises(BrokenPromise, match="which is aborted, is read as committed"):
        page_of(batch).read_committed(batch.data, ())


def test_a_transaction_is_committed_in_all_its_partitions_or_in_none() -> None:
    transaction = SimulatedTransaction(1)
    transaction.fate = "ending"
    here, there = sent(1, transaction, 0), sent(2, transaction, 0)
    page_of(here).whole(0, here.data + marker(1, commit=True))
    with pytest.raises(BrokenPromise, match="which is committed, is left out"):
        page_of(there).whole(0, there.data + marker(1, commit=False))


def test_a_marker_is_between_the_batches_that_are_read() -> None:
    transaction = SimulatedTransaction(1)
    transaction.fate = "ending"
    batch = sent(1, transaction, 0)
    data = batch.data + marker(1, commit=True)
    assert page_of(batch).read(0, data) == 2
    assert len(list(batches(data))) == 2


def test_an_offset_that_was_acknowledged_or_read_does_not_fall() -> None:
    bookmark = Bookmark("an offset")
    bookmark.read(-1, newest=True)
    assert [bookmark.sent() for _ in range(3)] == [0, 1, 2]
    bookmark.acknowledged(0)
    bookmark.read(1, newest=True)
    bookmark.read(0, newest=False)
    with pytest.raises(BrokenPromise, match="an offset falls from 1 to 0"):
        bookmark.read(0, newest=True)
    with pytest.raises(BrokenPromise, match="which nobody has committed"):
        bookmark.read(3, newest=True)


def test_an_offset_counts_with_its_transaction() -> None:
    bookmark, transaction = Bookmark("an offset"), SimulatedTransaction(1)
    offset = bookmark.sent(transaction)
    with pytest.raises(BrokenPromise, match="which is open, is read as committed"):
        bookmark.read(offset, newest=True)
    transaction.fate = "ending"
    bookmark.read(offset, newest=True)
    assert fate(transaction) == "committed"


def test_each_group_and_partition_has_a_bookmark_of_its_own() -> None:
    bookmarks = Bookmarks()
    one, other = OffsetKey("g", "a", 0), OffsetKey("g", "a", 1)
    assert bookmarks.of(one) is bookmarks.of(one) is not bookmarks.of(other)
    assert bookmarks.keys() == [one, other]
