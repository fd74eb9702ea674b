"""Waiting for a record at a node that is alone: what it shows it has, in the epoch in which it was written."""

import pytest

from duramen.base.ids import Position
from duramen.replication.replication_wait import ANY_EPOCH, ReplicationWaitOutcome
from duramen.sim.broker import ManualBroker

_WAIT_MS = 1_000


def _wait(hand: ManualBroker, epoch: int, offset: int, wait_ms: int = _WAIT_MS) -> list[ReplicationWaitOutcome]:
    outcomes: list[ReplicationWaitOutcome] = []
    partition = hand.broker.streams.get("a").partition(0)
    hand.broker.wait_replicated(partition, Position(epoch, offset), wait_ms, outcomes.append)
    return outcomes


@pytest.fixture
def epochs(hand: ManualBroker) -> tuple[int, int]:
    """A record each of two processes, and the epochs of these."""
    found = []
    for value in (b"one", b"two"):
        hand.produce("a", value)
        hand.settle()
        found.append(hand.broker.streams.get("a").partition(0).leader_epoch)
        hand.restart()
    return found[0], found[1]


def test_what_is_there_is_told_at_once(hand: ManualBroker, epochs: tuple[int, int]) -> None:
    first, second = epochs
    assert first < second
    assert _wait(hand, first, 0) == _wait(hand, second, 1) == [ReplicationWaitOutcome.REACHED]
    assert _wait(hand, ANY_EPOCH, 0, 0) == _wait(hand, ANY_EPOCH, 1, 0) == [ReplicationWaitOutcome.REACHED]
    assert _wait(hand, second, 0) == _wait(hand, first, 1) == _wait(hand, first, 2) == [ReplicationWaitOutcome.CUT]


@pytest.mark.usefixtures("epochs")
@pytest.mark.parametrize("epoch", [ANY_EPOCH, None])
def test_what_comes_later_is_waited_for(hand: ManualBroker, epoch: int | None) -> None:
    present = hand.broker.streams.get("a").partition(0).leader_epoch
    waiting = _wait(hand, present if epoch is None else epoch, 2)
    assert waiting == []
    hand.produce("a", b"three")
    assert waiting == []
    hand.settle()
    assert waiting == [ReplicationWaitOutcome.REACHED]
    hand.advance(2 * _WAIT_MS)
    assert waiting == [ReplicationWaitOutcome.REACHED]


@pytest.mark.usefixtures("epochs")
def test_a_wait_ends(hand: ManualBroker) -> None:
    assert _wait(hand, ANY_EPOCH, 2, 0) == [ReplicationWaitOutcome.TIMED_OUT]
    waiting = _wait(hand, ANY_EPOCH, 2)
    hand.advance(_WAIT_MS - 1)
    assert waiting == []
    hand.advance(1)
    hand.produce("a", b"three")
    hand.settle()
    assert waiting == [ReplicationWaitOutcome.TIMED_OUT]
