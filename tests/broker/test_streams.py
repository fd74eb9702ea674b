"""Streams with many partitions: they are made a few at a time, and are there when all of them are."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from duramen.base.errors import StreamNotFound
from duramen.broker.streams import Stream
from duramen.metadata.decisions import Definition
from duramen.sim.broker import CallbackResult, ManualBroker

_MANY = 1000


def create(hand: ManualBroker, *, idempotent: bool = False) -> CallbackResult[None]:
    """Ask for a large stream."""
    answer: CallbackResult[None] = CallbackResult()
    hand.broker.create_stream(Definition("large", _MANY), answer, idempotent=idempotent)
    return answer


def commit(hand: ManualBroker) -> None:
    """What was decided is durable, and nothing that follows from it soon has happened yet."""
    hand.worker.run_soon()
    hand.worker.start("sync")()
    assert hand.worker.actions


@pytest.fixture
def growing() -> tuple[ManualBroker, CallbackResult[None]]:
    """A broker with a stream that is being made."""
    hand = ManualBroker()
    hand.create("a")
    answer = create(hand)
    commit(hand)
    return hand, answer


Growing = tuple[ManualBroker, CallbackResult[None]]


def test_others_have_their_turn_while_a_large_stream_is_made(growing: Growing) -> None:
    hand, created = growing
    told: list[Stream] = []
    hand.broker.streams.listeners.append(told.append)
    between: list[int] = []
    while not created.there:
        assert hand.broker.streams.find("large") is None, "nobody sees a part of it"
        hand.worker.soon(lambda: between.append(len(list(hand.store.each_log()))))
        hand.worker.actions.popleft()()
        hand.worker.actions.popleft()()
    assert len(between) > 1
    assert max(two - one for one, two in pairwise(between)) < _MANY / 2
    assert created.value is None
    stream = hand.broker.streams.get("large")
    assert [partition.index for partition in stream.partitions] == list(range(_MANY))
    assert hand.broker.streams.find_id(stream.id) is stream
    assert told == [stream]
    hand.produce("large", b"x", partition=_MANY - 1)
    hand.settle()
    assert hand.values("large", _MANY - 1) == [b"x"]


def test_who_asks_for_the_same_waits_for_the_same(growing: Growing) -> None:
    hand, first = growing
    second = create(hand, idempotent=True)
    assert not second.there
    hand.settle()
    assert (first.value, second.value) == (None, None)


def test_a_stream_that_is_deleted_while_it_is_made_leaves_nothing(growing: Growing) -> None:
    hand, created = growing
    logs = len(list(hand.store.each_log()))
    deleted: CallbackResult[None] = CallbackResult()
    hand.broker.delete_stream("large", deleted)
    while not hand.worker.jobs["sync"]:
        hand.worker.actions.popleft()()
    hand.worker.start("sync")()
    assert deleted.value is None
    assert created.there
    again = create(hand)
    hand.settle()
    assert again.value is None
    assert len(hand.broker.streams.get("large").partitions) == _MANY
    hand.delete("large")
    assert hand.broker.streams.find("large") is None
    assert len(list(hand.store.each_log())) < logs
    assert hand.metrics.counter("duramen_streams").value == 1


def test_what_changes_while_it_is_made_counts_for_every_partition(growing: Growing) -> None:
    hand, created = growing
    configured: CallbackResult[None] = CallbackResult()
    grown: CallbackResult[None] = CallbackResult()
    hand.broker.configure_stream("large", {"segment.bytes": "200"}, configured)
    hand.broker.add_partitions("large", _MANY + 300, grown)
    hand.settle()
    assert (created.value, configured.value, grown.value) == (None, None, None)
    partitions = hand.broker.streams.get("large").partitions
    assert len(partitions) == _MANY + 300
    assert {partition.log.config.segment_bytes for partition in partitions} == {200}


def test_more_partitions_are_acknowledged_when_all_are_there() -> None:
    hand = ManualBroker()
    stream = hand.create("a")
    grown: CallbackResult[None] = CallbackResult()
    hand.broker.add_partitions("a", _MANY, grown)
    commit(hand)
    assert not grown.there
    assert 1 < len(stream.partitions) < _MANY
    hand.produce("a", b"x", partition=0)
    hand.settle()
    assert grown.value is None
    assert len(stream.partitions) == _MANY


@pytest.mark.parametrize("change", ["restart", "crash"])
def test_after_a_restart_it_is_whole(growing: Growing, change: str) -> None:
    hand, _ = growing
    again: Callable[[], None] = hand.restart if change == "restart" else hand.crash
    again()
    assert len(hand.broker.streams.get("large").partitions) == _MANY
    with pytest.raises(StreamNotFound):
        hand.broker.streams.get("other")
