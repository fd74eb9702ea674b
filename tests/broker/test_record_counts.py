"""The last N records of a log, whatever takes offsets between them: markers, what compaction removed, deletions."""

import random

import pytest

from duramen.broker.partition import Partition
from duramen.codec.batch import CONTROL, BatchInput, encode, header
from duramen.sim.broker import CallbackResult, ManualBroker

MARK = b"\0\0\0\1"
"""The key of a marker that commits."""


def last(hand: ManualBroker, partition: Partition, count: int) -> int:
    answer: CallbackResult[int] = CallbackResult()
    partition.find_last(count, answer)
    hand.settle()
    assert answer.error is None
    return int(answer.calls[0][0])


def offsets_of(hand: ManualBroker, partition: Partition, start: int) -> list[int]:
    """The offsets of all records from `start` on that are no markers."""
    found: list[int] = []
    offset = start
    while True:
        answer, _ = hand.fetch((partition.stream.name, 0, offset))
        hand.settle()
        slice_ = answer.value[0].slice
        if slice_ is None:
            return found
        records = hand.read(slice_)
        found += [record.offset for record in records if record.offset >= offset and record.key != MARK]
        offset = slice_.next_offset


def mark(hand: ManualBroker, partition: Partition) -> None:
    """Put a marker where a transaction would put it."""
    marker = encode([BatchInput(0, MARK, b"\0\0\0\0\0\0")], attributes=CONTROL, producer_id=1)
    hand.store.append(partition.log, marker, header(marker), partition.leader_epoch, None)
    hand.settle()


def written(hand: ManualBroker, name: str, seed: int) -> Partition:
    """Batches of one to nine records with one of twenty keys, a marker behind every third or so."""
    chance = random.Random(seed)
    partition = hand.broker.streams.get(name).partition(0)
    for _ in range(60):
        keys = [b"%d" % chance.randrange(20) for _ in range(chance.randint(1, 9))]
        partition.append(encode(BatchInput(hand.clock.wall_ms(), key, b"v") for key in keys), None)
        hand.settle()
        if chance.random() < 0.3:
            mark(hand, partition)
    return partition


@pytest.mark.parametrize("cold", [False, True], ids=["warm", "cold"])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_markers_and_holes_are_no_records(synced: ManualBroker, policy: str, cold: bool) -> None:
    synced.create("t", segment_bytes=600, cleanup_policy=policy, min_cleanable_dirty_ratio=0.0, max_compaction_lag_ms=1)
    partition = written(synced, "t", seed=3)
    synced.advance(120_000)
    synced.files.cold = cold
    whole = offsets_of(synced, partition, 0)
    assert (len(whole) < partition.log.end_offset / 2) == (policy == "compact")
    for before in (0, 17, partition.log.end_offset - 5):
        if before and policy == "delete":
            deleted: CallbackResult[int] = CallbackResult()
            partition.delete_before(before, deleted)
            synced.settle()
            assert deleted.value == before
        start = partition.log.start_offset
        offsets = offsets_of(synced, partition, start)
        end = partition.log.high_watermark
        assert last(synced, partition, 0) == end
        for count in [*range(1, 12), len(offsets) // 2, len(offsets)]:
            found = last(synced, partition, count)
            assert [offset for offset in offsets if offset >= found] == offsets[-count:]
        assert last(synced, partition, len(offsets) + 1) == last(synced, partition, 1 << 62) == start


def test_an_empty_log(synced: ManualBroker) -> None:
    synced.create("t")
    partition = synced.broker.streams.get("t").partition(0)
    assert last(synced, partition, 3) == 0
    mark(synced, partition)
    assert last(synced, partition, 3) == 0
