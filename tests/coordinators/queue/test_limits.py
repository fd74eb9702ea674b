"""Limits of the shards of a space: beyond them nothing is put into any queue, and everything else goes on."""

from typing import Any

import pytest
from tests.coordinators.queue.spaces import NAMES, SPACE, Space

from duramen.base.errors import ConfigInvalid, QueueSpaceFull
from duramen.base.ids import Position
from duramen.codec.batch import BatchInput, encode
from duramen.codec.partitioner import partition_of
from duramen.queues.machine import Delete, Edit, Empty, Replace
from duramen.queues.operations import NewEntry
from duramen.queues.totals import ShardTotals
from duramen.service.queues import Enqueued
from duramen.sim.broker import CallbackResult

NAME = NAMES[0]
SHARD = partition_of(NAME, 2)


def totals(space: Space) -> ShardTotals | None:
    return space.totals().shards[SHARD]


def put_batch(space: Space, *values: bytes) -> Enqueued:
    answer: CallbackResult[Enqueued] = CallbackResult()
    space.requests.enqueue_batch(space.stream, encode([BatchInput(0, NAME, value) for value in values]), answer)
    space.hand.settle()
    return answer.value


def test_a_full_shard_takes_no_entries_until_there_is_room() -> None:
    space = Space(queue_shard_max_entries=3)
    other = next(name for name in NAMES if partition_of(name, 2) != SHARD)
    first, second = space.put((NAME, b"one"), (NAME, b"two"))
    with pytest.raises(
        QueueSpaceFull, match=r"shard \d of the queue space mail has 2 entries; 2 more would exceed its limit of 3 "
    ):
        space.put((NAME, b"three"), (NAME, b"four"))
    space.put((NAME, b"three"))
    assert isinstance(put_batch(space, b"four").error, QueueSpaceFull)
    assert isinstance(space.produce([BatchInput(0, NAME, b"four")], SHARD), QueueSpaceFull)
    space.put((other, b"elsewhere"))
    space.submit(NAME, Edit, [(first, None, b"1")])
    space.submit(NAME, Replace, second, [NewEntry(b"2"), NewEntry(b"3")])
    assert space.values(NAME) == [b"1", b"2", b"3"]
    space.submit(NAME, Delete, [(first, None)])
    assert put_batch(space, b"four").error is None
    leased = space.lease(NAME, most=2)
    with pytest.raises(QueueSpaceFull):
        space.put((NAME, b"five"))
    assert space.ack(*leased) == {}
    space.put((NAME, b"five"), (NAME, b"six"))
    space.submit(NAME, Empty, "purge")
    assert totals(space) == ShardTotals(0, 0)


@pytest.mark.parametrize("limits", [{"queue_shard_max_entries": 5}, {"queue_shard_max_bytes": 600}])
def test_batches_of_a_producer_that_are_not_applied_yet_count(limits: dict[str, int]) -> None:
    space = Space(**limits)
    for _ in range(2):
        answers = [CallbackResult[Any]() for _ in range(40)]
        for answer in answers:
            space.stream.partition(SHARD).append(encode([BatchInput(0, NAME, b"x" * 40)]), answer)
        space.hand.settle()
        stored = [answer for answer in answers if answer.calls[-1][-1] is None]
        assert 1 <= len(stored) <= 6  # the last one may exceed the limit of bytes
        assert len(space.values(NAME)) == len(stored)
        space.submit(NAME, Empty, "purge")
    assert totals(space) == ShardTotals(0, 0)


@pytest.mark.parametrize("limits", [{"queue_shard_max_entries": 5}, {"queue_shard_max_bytes": 600}])
def test_requests_in_flight_together_count_and_so_do_those_that_fail(limits: dict[str, int]) -> None:
    space = Space(**limits)
    for _ in range(2):
        answers = [CallbackResult[Enqueued]() for _ in range(40)]
        produced = CallbackResult[Any]()
        for at, answer in enumerate(answers):
            space.requests.enqueue(space.stream, [(NAME, NewEntry(b"x" * 40))], answer)
            if at == 1:
                space.stream.partition(SHARD).append(encode([BatchInput(0, NAME, b"x" * 40)]), produced)
        space.hand.settle()
        stored = [answer for answer in answers if answer.value.error is None]
        assert produced.calls[-1][-1] is None
        assert 1 <= len(stored) <= 5
        assert all(isinstance(answer.value.error, QueueSpaceFull) for answer in answers if answer not in stored)
        assert len(space.values(NAME)) == len(stored) + 1
        space.submit(NAME, Empty, "purge")
    state = space.stream.partition(SHARD).state
    assert state is not None
    assert (state.accepted_records, state.accepted_bytes) == (0, 0)
    failed = CallbackResult[Enqueued]()
    space.requests.enqueue(space.stream, [(NAME, NewEntry(b"x"))], failed)
    assert state.accepted_records == 1
    space.hand.delete(SPACE)
    assert failed.value.error is not None
    assert (state.accepted_records, state.accepted_bytes) == (0, 0)


def test_the_size_of_a_shard_is_what_its_queues_have_also_after_a_restart() -> None:
    space = Space(queue_shard_max_bytes=500)
    [first] = space.put((NAME, NewEntry(b"x" * 400, b"key", ((b"a", b"b"),))))
    assert totals(space) == ShardTotals(1, 64 + 400 + 3 + 2)
    space.put((NAME, b"x" * 100))
    for _ in range(2):
        with pytest.raises(QueueSpaceFull, match=r"has 633 bytes, and its limit is 500 \(queue.shard.max.bytes\)"):
            space.put((NAME, b""))
        space.hand.restart()
        space.hand.settle()
    space.submit(NAME, Edit, [(first, None, b"")])
    space.put((NAME, b""))
    assert totals(space) == ShardTotals(3, 64 * 3 + 5 + 100)
    assert totals(space) == ShardTotals(*space.count(NAME)[0][:2])


def test_a_repeated_request_is_answered_although_the_shard_is_full() -> None:
    space = Space(queue_shard_max_entries=1)
    first = space.put((NAME, b"one"), request="a")
    assert space.put((NAME, b"one"), request="a") == first
    stored = space.produce([BatchInput(0, NAME, b"two")], SHARD, producer_id=7, producer_epoch=0, base_sequence=0)
    assert isinstance(stored, QueueSpaceFull)
    space.submit(NAME, Empty, "purge")
    for _ in range(2):
        batch = [BatchInput(0, NAME, b"two")]
        assert space.produce(batch, SHARD, producer_id=8, producer_epoch=0, base_sequence=0) is None
    assert space.values(NAME) == [b"two"]


@pytest.mark.parametrize("delay_ms", [399, 400, 401])
def test_an_entry_that_is_returned_until_it_expires_counts_no_longer(delay_ms: int) -> None:
    space = Space(queue_shard_max_entries=1)
    space.put((NAME, NewEntry(b"short", ttl_ms=500)))
    space.hand.advance(100)
    assert space.ack(*space.lease(NAME), release_ms=delay_ms) == {}
    for _ in range(5):
        space.hand.advance(500)
    assert totals(space) == ShardTotals(0, 0)
    space.put((NAME, b"next"))


def test_dead_letters_move_within_a_full_shard() -> None:
    dead = next(name for name in NAMES[1:] if partition_of(name, 2) == SHARD)
    space = Space(queue_dead_letter_queue=dead.decode(), queue_delivery_count_limit=1, queue_shard_max_entries=1)
    space.put((NAME, b"bad"))
    space.lease(NAME, lease_ms=10)
    space.hand.advance(20)
    space.lease(NAME)
    space.hand.settle()
    assert space.values(dead) == [b"bad"]
    assert space.values(NAME) == []


def test_limits_can_be_raised_and_are_of_queue_spaces() -> None:
    space = Space(queue_shard_max_entries=0)
    with pytest.raises(QueueSpaceFull):
        space.put((NAME, b"one"))
    answer: CallbackResult[None] = CallbackResult()
    space.hand.broker.configure_stream("mail", {"queue.shard.max.entries": "1"}, answer)
    space.hand.settle()
    assert answer.value is None
    assert isinstance(space.put((NAME, b"one"))[0], Position)
    with pytest.raises(ConfigInvalid, match=r"queue\.shard\.max\.entries is for streams of kind=queues"):
        space.hand.create("logs", 1, queue_shard_max_entries=1)
