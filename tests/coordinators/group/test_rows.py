"""What records of `__consumer_offsets` make of rows, beside a model that knows the whole log."""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import pytest

from duramen.base.errors import DuramenError
from duramen.base.ports import StateRows
from duramen.codec.batch import DecodedRecord
from duramen.codec.markers import COMMIT
from duramen.coordinators.group.rows import OffsetRows, changes
from duramen.coordinators.runtime.batches import CommittedBatch
from duramen.groups.records import (
    CommittedOffset,
    GroupKey,
    OffsetKey,
    OtherKey,
    encode_group,
    encode_key,
    encode_offset,
)
from duramen.groups.values import GroupSnapshot

KEYS = [OffsetKey(group, topic, index) for group in ("g", "gg") for topic in ("a", "b") for index in (0, 1)]
ABORT = 0
PRODUCERS = (7, 8, 1 << 40)


class Rows(StateRows):
    """A sorted map."""

    def __init__(self) -> None:
        self.found: dict[bytes, bytes] = {}

    def get(self, key: bytes) -> bytes | None:
        return self.found.get(key)

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return [self.found.get(key) for key in keys]

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted((key, value) for key, value in self.found.items() if first <= key < end))

    def change(self, made: Mapping[bytes, bytes | None]) -> None:
        for key, value in made.items():
            if value is None:
                self.found.pop(key, None)
            else:
                self.found[key] = value


class Sent(NamedTuple):
    """A record of the log."""

    offset: int
    key: OffsetKey
    value: int | None
    producer_id: int | None


class Model:
    """All that was sent; of what counts, the record that is furthest on in the log."""

    def __init__(self) -> None:
        self.log: list[Sent] = []
        self.counting: list[Sent] = []
        self.open: dict[int, list[Sent]] = {producer_id: [] for producer_id in PRODUCERS}

    def newest(self, key: OffsetKey) -> Sent | None:
        return max((sent for sent in self.counting if sent.key == key), key=lambda sent: sent.offset, default=None)

    def unstable(self, key: OffsetKey) -> bool:
        newest = self.newest(key)
        after = -1 if newest is None else newest.offset
        return any(sent.key == key and sent.offset > after for held in self.open.values() for sent in held)


def no_loss(first: int, last: int, error: DuramenError) -> None:
    raise AssertionError((first, last, error))


def record(offset: int, key: OffsetKey | GroupKey, value: bytes | None) -> DecodedRecord:
    return DecodedRecord(offset, 0, encode_key(key), value, ())


def encoded(offset: int) -> bytes:
    return encode_offset(CommittedOffset(offset, 1, "m", 5))


def drawn(model: Model, draw: random.Random, offset: int) -> CommittedBatch:
    """A batch that comes next, which the model takes in."""
    producer_id = draw.choice((None, *PRODUCERS))
    if producer_id is not None and draw.random() < 0.4:
        commit = draw.random() < 0.6
        held, model.open[producer_id] = model.open[producer_id], []
        model.counting += held if commit else []
        return CommittedBatch([], producer_id, transactional=True, marker=COMMIT if commit else ABORT)
    sent = []
    for at in range(draw.randrange(1, 4)):
        value = draw.randrange(1000) if producer_id is not None or draw.random() < 0.8 else None
        sent.append(Sent(offset + at, draw.choice(KEYS), value, producer_id))
    (model.counting if producer_id is None else model.open[producer_id]).extend(sent)
    some = [record(one.offset, one.key, None if one.value is None else encoded(one.value)) for one in sent]
    return CommittedBatch(some, -1 if producer_id is None else producer_id, transactional=producer_id is not None)


@pytest.mark.parametrize("seed", range(20))
def test_rows_are_what_the_newest_record_that_counts_says(seed: int) -> None:
    draw, model, rows, offset = random.Random(seed), Model(), Rows(), 0
    there = list[OffsetKey]()
    for _ in range(60):
        batches = []
        for _ in range(draw.randrange(1, 4)):
            batches.append(drawn(model, draw, offset))
            offset += max(1, len(batches[-1].records))
        rows.change(changes(batches, rows, no_loss))
        found = OffsetRows(rows)
        for key in KEYS:
            newest, committed = model.newest(key), found.offset(key)
            assert (None if committed is None else committed.offset) == (None if newest is None else newest.value)
            assert found.unstable(key) == model.unstable(key)
        for group in ("g", "gg"):
            assert found.unstable_of(group) == {key for key in KEYS if key.group == group and model.unstable(key)}
        there = sorted(key for key in KEYS if found.offset(key) is not None)
        assert list(found.each_key()) == [key for group in ("g", "gg") for key, _ in found.of_group(group)]
        assert sorted(found.each_key()) == there
        assert sorted(found.each_with_offsets()) == sorted({key.group for key in there})
    for producer_id in PRODUCERS:
        rows.change(changes([CommittedBatch([], producer_id, transactional=True, marker=ABORT)], rows, no_loss))
    assert len(rows.found) == len(there)  # nothing is left of what was held


def test_groups_and_records_of_other_kinds_are_found_by_their_group() -> None:
    rows = Rows()
    other = b"\x00\x03\x00\x01g"
    classic = encode_group(GroupSnapshot(3, "consumer", None, None, ()), 77)
    some = [
        record(0, GroupKey("g"), classic),
        DecodedRecord(1, 0, other, b"x", ()),
        DecodedRecord(2, 0, b"\x00\x63", b"of a later version", ()),
        record(3, GroupKey("gone"), classic),
        record(4, GroupKey("gone"), None),
    ]
    rows.change(changes([CommittedBatch(some)], rows, no_loss))
    found = OffsetRows(rows)
    stored = found.group("g")
    assert stored is not None
    assert (stored[0].generation, stored[1]) == (3, 77)
    assert list(found.each_classic()) == ["g"]
    assert list(found.each_other()) == ["g"]
    assert list(found.records_of("g")) == [(other, b"x")]
    assert found.value(OtherKey("g", other)) == b"x"
    assert found.group("gone") is None


def test_a_record_that_cannot_be_read_is_told_and_the_rest_is_taken_in() -> None:
    rows, lost = Rows(), list[tuple[int, int]]()
    some = [record(5, KEYS[0], b"\x00"), record(6, KEYS[1], encoded(9))]
    made = changes([CommittedBatch(some)], rows, lambda first, last, _: lost.append((first, last)))
    rows.change(made)
    assert lost == [(5, 5)]
    committed = OffsetRows(rows).offset(KEYS[1])
    assert committed is not None
    assert committed.offset == 9
