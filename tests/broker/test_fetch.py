"""Fetches: from several partitions, at once or when there is enough, and what ends their waiting."""

import errno
import random

import pytest

from duramen.base.errors import (
    FencedLeaderEpoch,
    LogDamaged,
    OffsetOutOfRange,
    StorageFailed,
    StreamNotFound,
    UnknownLeaderEpoch,
)
from duramen.base.ports import Lane
from duramen.broker.fetch import FetchResult, PartitionFetch
from duramen.broker.partition import Partition
from duramen.sim.broker import CallbackResult, ManualBroker

LANES: tuple[Lane, ...] = ("sync", "disk", "read")


@pytest.fixture
def hand(any_hand: ManualBroker) -> ManualBroker:
    """With each durability: what is asked and answered is the same."""
    return any_hand


def waiting_fetches(hand: ManualBroker) -> float:
    """What the gauge of waiting fetches says."""
    return hand.metrics.counter("duramen_fetches_waiting").value


def put(hand: ManualBroker, *values: bytes, partition: int = 0) -> None:
    """Append one batch of each value, and have all of it acknowledged."""
    for value in values:
        hand.produce("a", value, partition=partition)
    hand.settle()


def sizes(found: list[FetchResult]) -> list[int]:
    """Bytes that each partition gave."""
    return [0 if part.slice is None else len(part.slice) for part in found]


def test_answers_at_once_where_there_is_enough(hand: ManualBroker) -> None:
    put(hand, b"one", b"two")
    answer, _ = hand.fetch(("a", 0, 0), ("a", 1, 0), max_wait_ms=500)
    found = answer.value
    assert [record.value for record in hand.read(found[0].slice)] == [b"one", b"two"]
    assert (found[0].high_watermark, found[0].start_offset) == (2, 0)
    assert found[1] == FetchResult(None, None, 0, 0, 0)


def test_from_the_middle_of_a_batch_the_whole_batch_comes(hand: ManualBroker) -> None:
    hand.produce("a", b"one", b"two", b"three")
    hand.settle()
    answer, _ = hand.fetch(("a", 0, 2))
    assert [record.offset for record in hand.read(answer.value[0].slice)] == [0, 1, 2]


def test_what_is_not_synced_is_not_there(synced: ManualBroker) -> None:
    synced.produce("a", b"one")
    answer, _ = synced.fetch(("a", 0, 0))
    assert answer.value == [FetchResult(None, None, 0, 0, 0)]


@pytest.mark.parametrize("max_wait_ms", [0, -1])
def test_without_patience_the_answer_is_empty_at_once(hand: ManualBroker, max_wait_ms: int) -> None:
    answer, _ = hand.fetch(("a", 0, 0), max_wait_ms=max_wait_ms)
    assert answer.value == [FetchResult(None, None, 0, 0, 0)]
    assert waiting_fetches(hand) == 0


def test_min_bytes_are_counted_over_all_partitions(hand: ManualBroker) -> None:
    put(hand, b"x" * 100)
    first, _ = hand.fetch(("a", 0, 0))
    size = sizes(first.value)[0]
    answer, _ = hand.fetch(("a", 0, 0), ("a", 1, 0), ("a", 2, 0), min_bytes=3 * size, max_wait_ms=500)
    put(hand, b"x" * 100, partition=1)
    assert not answer.there
    assert waiting_fetches(hand) == 1
    put(hand, b"x" * 100, partition=2)
    assert sizes(answer.value) == [size, size, size]
    assert waiting_fetches(hand) == 0


def test_min_bytes_of_one_partition_that_grows(hand: ManualBroker) -> None:
    put(hand, b"x" * 100)
    first, _ = hand.fetch(("a", 0, 0))
    size = sizes(first.value)[0]
    answer, _ = hand.fetch(("a", 0, 0), min_bytes=3 * size, max_wait_ms=500)
    put(hand, b"x" * 100)
    assert not answer.there
    put(hand, b"x" * 100)
    assert sizes(answer.value) == [3 * size]


def test_after_max_wait_it_is_answered_with_what_there_is(hand: ManualBroker) -> None:
    put(hand, b"little")
    answer, _ = hand.fetch(("a", 0, 0), ("a", 1, 0), min_bytes=1 << 20, max_wait_ms=500)
    hand.advance(499)
    assert not answer.there
    hand.advance(1)
    assert [record.value for record in hand.read(answer.value[0].slice)] == [b"little"]
    assert waiting_fetches(hand) == 0
    assert not hand.broker.streams.get("a").partition(0).waiting


def test_max_bytes_hold_for_all_but_the_first_batch(hand: ManualBroker) -> None:
    for partition in range(3):
        put(hand, b"x" * 1000, b"y" * 1000, partition=partition)
    wanted = [("a", partition, 0) for partition in range(3)]
    whole, _ = hand.fetch(*wanted)
    size = sizes(whole.value)[0]
    half = size // 2
    for max_bytes, expected in (
        (1, [half, 0, 0]),
        (half, [half, 0, 0]),
        (half + 1, [half, 0, 0]),
        (size, [size, 0, 0]),
        (size + half, [size, half, 0]),
        (3 * size, [size, size, size]),
    ):
        answer, _ = hand.fetch(*wanted, max_bytes=max_bytes)
        assert sizes(answer.value) == expected


def test_a_partition_s_own_bound_lets_one_batch_through(hand: ManualBroker) -> None:
    for partition in range(2):
        put(hand, b"x" * 1000, b"y" * 1000, partition=partition)
    answer, _ = hand.fetch(("a", 0, 0), ("a", 1, 0), partition_bytes=10)
    first, second = sizes(answer.value)
    assert 1000 < first < 2000, "the very first batch may exceed its bound"
    assert second == 0, "no other may"


def test_a_large_batch_behind_a_small_answer_waits_for_the_next(hand: ManualBroker) -> None:
    put(hand, b"small")
    put(hand, b"x" * 5000, partition=1)
    answer, _ = hand.fetch(("a", 0, 0), ("a", 1, 0), max_bytes=1000)
    assert sizes(answer.value)[1] == 0
    alone, _ = hand.fetch(("a", 1, 0), ("a", 0, 0), max_bytes=1000)
    assert sizes(alone.value)[0] > 5000


@pytest.mark.parametrize("offset", [-1, 3, 1 << 40])
def test_an_offset_that_is_not_there_ends_the_waiting(hand: ManualBroker, offset: int) -> None:
    put(hand, b"one", b"two")
    answer, _ = hand.fetch(("a", 1, 0), ("a", 0, offset), max_wait_ms=500)
    assert isinstance(answer.value[1].error, OffsetOutOfRange)
    assert (answer.value[1].high_watermark, answer.value[1].start_offset) == (2, 0)


def test_the_end_is_no_error(hand: ManualBroker) -> None:
    put(hand, b"one")
    answer, _ = hand.fetch(("a", 0, 1), max_wait_ms=500)
    assert not answer.there
    put(hand, b"two")
    assert [record.offset for record in hand.read(answer.value[0].slice)] == [1]


def test_a_partition_that_is_not_there(hand: ManualBroker) -> None:
    answer: CallbackResult[list[FetchResult]] = CallbackResult()
    why = StreamNotFound("no such topic")
    hand.broker.fetches.fetch(
        [PartitionFetch(None, 0, 100, error=why)], min_bytes=1, max_bytes=100, max_wait_ms=500, done=answer
    )
    assert answer.value == [FetchResult(None, why, -1, -1, -1)]


@pytest.mark.parametrize(("ahead", "error"), [(-1, FencedLeaderEpoch), (1, UnknownLeaderEpoch)])
def test_leader_epochs(hand: ManualBroker, ahead: int, error: type[Exception]) -> None:
    partition = hand.broker.streams.get("a").partition(0)
    answer: CallbackResult[list[FetchResult]] = CallbackResult()
    wanted = PartitionFetch(partition, 0, 100, partition.leader_epoch + ahead)
    hand.broker.fetches.fetch([wanted], min_bytes=1, max_bytes=100, max_wait_ms=500, done=answer)
    assert isinstance(answer.value[0].error, error)


def test_a_stream_that_is_deleted_ends_the_waiting(hand: ManualBroker) -> None:
    put(hand, b"kept")
    answer, _ = hand.fetch(("a", 1, 0), min_bytes=1, max_wait_ms=500)
    hand.delete("a")
    assert isinstance(answer.value[0].error, StreamNotFound)
    assert waiting_fetches(hand) == 0


def test_a_slice_of_what_was_in_memory_is_read_after_it_was_copied(synced: ManualBroker) -> None:
    """A consumer that reads slowly: the segment had no file yet when its answer began."""
    put(synced, b"one", b"two")
    answer, _ = synced.fetch(("a", 0, 0))
    synced.advance(2000)
    assert synced.broker.streams.get("a").partition(0).log.active.copied
    assert [record.value for record in synced.read(answer.value[0].slice)] == [b"one", b"two"]


def test_a_slice_in_hand_outlives_its_stream(hand: ManualBroker) -> None:
    put(hand, b"one", b"two")
    hand.advance(2000)  # copied into the segment
    answer, _ = hand.fetch(("a", 0, 0))
    hand.delete("a")
    assert [record.value for record in hand.read(answer.value[0].slice)] == [b"one", b"two"]


def test_a_stream_made_anew_is_another(hand: ManualBroker) -> None:
    put(hand, b"old")
    old = hand.broker.streams.get("a")
    hand.delete("a")
    new = hand.create("a", partitions=3)
    assert new.id != old.id
    assert hand.values("a") == []
    answer: CallbackResult[list[FetchResult]] = CallbackResult()
    wanted = PartitionFetch(old.partition(0), 0, 100)
    hand.broker.fetches.fetch([wanted], min_bytes=1, max_bytes=100, max_wait_ms=500, done=answer)
    assert isinstance(answer.value[0].error, StreamNotFound)


def test_who_goes_away_leaves_nothing_behind(hand: ManualBroker) -> None:
    answer, fetcher = hand.fetch(("a", 0, 0), ("a", 1, 0), max_wait_ms=1 << 31)
    fetcher.cancel()
    assert waiting_fetches(hand) == 0
    assert not hand.broker.streams.get("a").partition(0).waiting
    put(hand, b"one")
    hand.advance(1000)
    assert not answer.there


def test_the_same_partition_twice(hand: ManualBroker) -> None:
    answer, _ = hand.fetch(("a", 0, 0), ("a", 0, 0), min_bytes=1, max_wait_ms=500)
    put(hand, b"one")
    assert [[record.offset for record in hand.read(part.slice)] for part in answer.value] == [[0], [0]]


def test_many_rises_at_once_are_looked_at_once(hand: ManualBroker) -> None:
    answer, _ = hand.fetch(*(("a", partition, 0) for partition in range(3)), max_wait_ms=500)
    for partition in range(3):
        hand.produce("a", b"x", partition=partition)
    hand.settle()
    assert all(sizes(answer.value))


# -- where the disk has to be waited for ---------------------------------------------------------------


def cold(hand: ManualBroker, batches: int = 50) -> None:
    """Many batches in the segment, none of them in memory."""
    for number in range(batches):
        hand.produce("a", b"%d " % number * 1000)
        hand.settle()
    hand.restart()
    hand.files.cold = True


def test_a_cold_read_waits_for_the_disk_and_not_for_max_wait(synced: ManualBroker) -> None:
    cold(synced)
    answer, _ = synced.fetch(("a", 0, 40), max_wait_ms=500)
    assert not answer.there
    synced.settle()
    assert synced.read(answer.value[0].slice)[0].offset == 40


def test_max_wait_that_ends_during_a_cold_read_ends_it_after_that(synced: ManualBroker) -> None:
    cold(synced)
    answer, _ = synced.fetch(("a", 0, 40), min_bytes=1 << 30, max_wait_ms=500)
    synced.clock.advance(500)
    synced.broker.fire()
    assert not answer.there
    synced.settle()
    assert synced.read(answer.value[0].slice)[0].offset == 40


def test_who_goes_away_during_a_cold_read(synced: ManualBroker) -> None:
    cold(synced)
    answer, fetcher = synced.fetch(("a", 0, 40), max_wait_ms=500)
    fetcher.cancel()
    synced.settle()
    synced.advance(1000)
    assert not answer.there


def test_a_disk_that_fails_is_told(synced: ManualBroker) -> None:
    cold(synced)

    def fail(call: str, _: str, size: int) -> int:
        if call == "read":
            raise OSError(errno.EIO, "the disk")
        return size

    synced.files.interfere = fail
    answer, _ = synced.fetch(("a", 1, 0), ("a", 0, 40), max_wait_ms=500)
    synced.settle()
    assert isinstance(answer.value[1].error, StorageFailed)
    synced.files.interfere = None
    again, _ = synced.fetch(("a", 0, 40))
    synced.settle()
    assert synced.read(again.value[0].slice)[0].offset == 40


def test_damage_is_told_and_what_lies_around_it_is_read(synced: ManualBroker) -> None:
    cold(synced)
    log = synced.broker.streams.get("a").partition(0).log
    synced.files.corrupt(f"{log.segments[0].path}.log", 100)
    answer, _ = synced.fetch(("a", 0, 0))
    synced.settle()
    found = answer.value[0]
    if found.error is None:
        with pytest.raises(LogDamaged):
            synced.read(found.slice)
        again, _ = synced.fetch(("a", 0, 0))
        synced.settle()
        found = again.value[0]
    assert isinstance(found.error, LogDamaged)
    after, _ = synced.fetch(("a", 0, 1))
    synced.settle()
    assert synced.read(after.value[0].slice)[0].offset == 1


def looked_at(hand: ManualBroker, *, at_once: bool) -> list[tuple[object, ...]]:
    """What fetches of every offset, epoch and isolation find; without `at_once` each is a read."""
    partition = hand.broker.streams.get("a").partition(0)
    found: list[tuple[object, ...]] = []
    with pytest.MonkeyPatch.context() as patch:
        if not at_once:
            patch.setattr(Partition, "is_read", lambda *_: False)
        for offset in range(-1, partition.log.end_offset + 2):
            for ahead in (None, -1, 0, 1):
                epoch = -1 if ahead is None else partition.leader_epoch + ahead
                for isolation in (0, 1):
                    answer: CallbackResult[list[FetchResult]] = CallbackResult()
                    wanted = PartitionFetch(partition, offset, 1000, epoch, isolation=isolation)
                    hand.broker.fetches.fetch([wanted], min_bytes=1, max_bytes=1000, max_wait_ms=0, done=answer)
                    part = answer.value[0]
                    found.append((type(part.error), str(part.error), part.size, *part[2:]))
    return found


@pytest.mark.parametrize("state", ["written", "not synced", "start moved", "records lost", "deleted"])
def test_a_partition_without_new_records_is_told_like_one_that_is_read(hand: ManualBroker, state: str) -> None:
    put(hand, b"one", b"two", b"three")
    partition = hand.broker.streams.get("a").partition(0)
    if state == "not synced":
        hand.produce("a", b"four")
    elif state == "start moved":
        partition.delete_before(2, lambda *_: None)
        hand.settle()
    elif state == "records lost":
        partition.log.damage.append((2, 5))
    elif state == "deleted":
        partition.stream.deleted = True
    ended = partition.is_read(partition.log.high_watermark, -1)
    assert ended == (state in ("written", "not synced", "start moved"))
    assert looked_at(hand, at_once=True) == looked_at(hand, at_once=False)


# -- anything at any time ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_every_fetch_is_answered_once_and_rightly(seed: int) -> None:
    """Fetches of all kinds between appends, deletions, time and cold reads, jobs run in any order."""
    chance = random.Random(seed)
    hand = ManualBroker()
    hand.create("a", partitions=3)
    hand.files.cold = chance.random() < 0.5
    fetches: list[tuple[int, int, int, int, CallbackResult[list[FetchResult]]]] = []
    for _ in range(120):
        match chance.randrange(6):
            case 0 | 1:
                hand.produce("a", *[b"v"] * chance.randint(1, 4), partition=chance.randrange(3))
            case 2:
                partition, ahead = chance.randrange(3), chance.randrange(3)
                offset = max(0, hand.broker.streams.get("a").partition(partition).log.high_watermark + ahead - 2)
                min_bytes, wait_ms = chance.choice((1, 300)), chance.choice((0, 50, 5000))
                other = (partition + 1) % 3
                answer, fetcher = hand.fetch(
                    ("a", partition, offset), ("a", other, 0), min_bytes=min_bytes, max_wait_ms=wait_ms
                )
                if chance.random() < 0.1:
                    fetcher.cancel()
                else:
                    fetches.append((partition, offset, min_bytes, hand.clock.monotonic_ms() + wait_ms, answer))
            case 3:
                hand.advance(chance.choice((1, 60, 2000)))
            case 4:
                hand.worker.run_soon()
                lane = chance.choice(LANES)
                if hand.worker.jobs[lane]:
                    hand.worker.step(lane)
            case _:
                hand.settle()
    hand.advance(6000)
    for partition, offset, _, _, answer in fetches:
        found = answer.value[0]
        if isinstance(found.error, OffsetOutOfRange):
            continue
        assert found.error is None
        if found.slice is not None:
            records = hand.read(found.slice)
            assert records[0].offset <= offset <= records[-1].offset, partition
    assert waiting_fetches(hand) == 0


def test_a_partition_that_changes_twice_while_the_disk_is_waited_for_gives_what_it_has() -> None:
    hand = ManualBroker()
    hand.create("a")
    put(hand, b"one")
    hand.advance(60_000)  # its bytes are in the file
    hand.files.cold = True
    answer, _ = hand.fetch(("a", 0, 0), min_bytes=1 << 20, max_bytes=1, max_wait_ms=500)
    hand.settle()
    hand.produce("a", b"two")
    hand.worker.run_soon()
    while not hand.worker.jobs["read"]:  # what the next look waits for
        assert hand.worker.step("sync")
    hand.produce("a", b"three")
    hand.worker.run_soon()
    assert hand.worker.step("sync")
    hand.settle()
    hand.advance(500)
    assert [record.value for record in hand.read(answer.value[0].slice)] == [b"one"]
