"""Records with old timestamps that retention deletes as soon as it looks: told once, and counted."""

import pytest

from duramen.codec.batch import BatchInput, check, encode
from duramen.sim.broker import ManualBroker

DAY_MS = 86_400_000
IN_2013_MS = 1_388_448_000_000
CHECK_MS = 300_000


def write(hand: ManualBroker, name: str, timestamp: int, records: int, partition: int = 0) -> None:
    """One batch of records of that time, and long enough for its copy."""
    log = hand.broker.streams.get(name).partition(partition).log
    batch = encode(BatchInput(timestamp, b"k", b"v") for _ in range(records))
    hand.store.append(log, batch, check(batch), hand.store.node_epoch, None)
    hand.advance(10_000)


@pytest.mark.parametrize("durability", ["sync", "os", "memory"])
def test_a_backfill_is_told_once_for_each_stream_and_counted_for_each_partition(durability: str) -> None:
    hand = ManualBroker()
    for name in ("flights", "other"):
        hand.create(name, partitions=2, durability=durability)
    write(hand, "flights", IN_2013_MS, 7)
    hand.advance(CHECK_MS)
    (told,) = hand.reports
    assert told.startswith(
        "retention deletes records of stream flights that have just been written: 7 of partition 0, the newest with the"
        " timestamp 2013-12-31T00:00:00Z, are older than retention.ms=604800000 allows."
    )
    write(hand, "flights", IN_2013_MS - 1, 2)
    write(hand, "flights", IN_2013_MS + 1, 3, partition=1)
    hand.advance(CHECK_MS)
    assert hand.reports == [told]
    logs = [partition.log for partition in hand.broker.streams.get("flights").partitions]
    assert [log.late for log in logs] == [(9, IN_2013_MS), (3, IN_2013_MS + 1)]
    assert [log.start_offset for log in logs] == [9, 3]
    write(hand, "other", IN_2013_MS, 1, partition=1)
    hand.advance(CHECK_MS)
    assert len(hand.reports) == 2
    assert "stream other that have just been written: 1 of partition 1" in hand.reports[1]


def test_records_that_have_aged_here_are_deleted_without_a_word() -> None:
    hand = ManualBroker()
    log = hand.create("flights").partition(0).log
    write(hand, "flights", hand.clock.wall_ms(), 4)
    hand.clock.advance(6 * DAY_MS)
    write(hand, "flights", hand.clock.wall_ms() - 6 * DAY_MS, 4)
    hand.clock.advance(2 * DAY_MS)
    hand.advance(CHECK_MS)
    assert (log.start_offset, log.end_offset) == (8, 8)
    assert (hand.reports, log.late.records) == ([], 0)


def test_old_records_that_a_restart_finds_are_not_taken_for_new_ones() -> None:
    hand = ManualBroker()
    hand.create("flights")
    write(hand, "flights", hand.clock.wall_ms(), 4)
    hand.stop()
    hand.clock.advance(30 * DAY_MS)
    hand.start()
    hand.advance(CHECK_MS)
    log = hand.broker.streams.get("flights").partition(0).log
    assert log.start_offset == 4
    assert (hand.reports, log.late.records) == ([], 0)
