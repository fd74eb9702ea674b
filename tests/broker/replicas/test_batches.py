"""Batches as other replicas send them: whole, in order, and without the holes that compaction left."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.base.errors import BatchCorrupt
from duramen.base.ids import Position
from duramen.base.leader_epochs import Takeover
from duramen.broker.replicas.batches import bytes_of, empty, follow_up
from duramen.codec.batch import BatchInput, encode, header, records


def batch(offset: int, epoch: int, count: int = 1) -> bytearray:
    return encode([BatchInput(1, None, b"v")] * count, base_offset=offset, leader_epoch=epoch)


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), min_size=1, max_size=6),
    st.integers(0, 100),
    st.integers(0, 60),
)
def test_batches_follow_each_other_whatever_lies_between(
    parts: list[tuple[int, int]], start: int, cut_off: int
) -> None:
    data, offset = bytearray(), start
    for hole, count in parts:
        data += batch(offset + hole, 4, count)
        offset += hole + count
    found = follow_up(Position(4, start), (), bytes(data) + bytes(batch(offset, 4))[:cut_off])
    at = start
    for one in found:
        head = header(bytes_of(one))
        assert (one.first_offset, one.epoch) == (at, 4) == (head.base_offset, head.leader_epoch)
        assert one.records == head.last_offset_delta + 1
        at += one.records
    assert at == offset
    assert sum(len(list(records(bytes_of(one)))) for one in found) == sum(count for _, count in parts)


def test_a_hole_is_of_the_epochs_that_the_leader_has_there() -> None:
    found = follow_up(Position(2, 10), (Takeover(3, 1, 12), Takeover(5, 2, 14)), bytes(batch(16, 5)))
    assert [(one.epoch, one.first_offset, one.records) for one in found] == [
        (2, 10, 2),
        (3, 12, 2),
        (5, 14, 2),
        (5, 16, 1),
    ]


def test_very_large_holes_are_several_batches() -> None:
    found = list(empty(0, (1 << 31) + 5, -1))
    assert len(found) == 3
    assert sum(one.records for one in found) == (1 << 31) + 5


def test_what_is_damaged_is_refused() -> None:
    good = bytes(batch(3, 1))
    for at in (17, 30, len(good) - 1):
        bad = bytearray(good)
        bad[at] ^= 1
        with pytest.raises(BatchCorrupt):
            follow_up(Position(1, 3), (), bytes(bad))
    with pytest.raises(BatchCorrupt):
        follow_up(Position(1, 4), (), good)
    assert follow_up(Position(1, 3), (), b"") == ()
