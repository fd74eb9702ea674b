"""What the layers buy: a whole broker, from produce to a lapsed session, moved step by step by the test.

No event loop, no thread, no socket, no file and no clock of the machine take part. What waits in the broker
is a job, an action or a deadline; here each of them happens when the test says so, and not before.
"""

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from duramen.base.errors import UnknownMember
from duramen.coordinators.group.coordinator import CommitMember
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.values import GroupState, JoinRequest, JoinResult, SyncRequest, SyncResult
from duramen.sim.broker import CallbackResult, ManualBroker


@pytest.fixture
def nothing_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever of this thread reaches for an event loop, a thread, a socket, a file or a clock fails.

    Threads that earlier tests of the same process left, such as PySpark's, go on as they were.
    """
    mine = threading.get_ident()

    def forbidden(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if threading.get_ident() == mine:
                raise AssertionError("the machine was touched")
            return original(*args, **options)

        return call

    for owner, name in (
        (asyncio, "new_event_loop"),
        (threading.Thread, "start"),
        (socket, "socket"),
        (os, "open"),
        (os, "urandom"),
        (time, "time_ns"),
        (time, "monotonic_ns"),
        (time, "sleep"),
    ):
        monkeypatch.setattr(owner, name, forbidden(getattr(owner, name)))


def produce_sync_and_fetch(hand: ManualBroker) -> None:
    broker, worker = hand.broker, hand.worker

    # A consumer asks for records where there are none, and is willing to wait for half a second.
    waiting, _ = hand.fetch(("flights", 0, 0), ("flights", 1, 0), min_bytes=1, max_wait_ms=500)
    assert not waiting.there
    assert broker.next_deadline_ms() is not None

    # A producer's batch is taken, but not acknowledged, and nobody sees it: it is written nowhere yet.
    first = hand.produce("flights", b"AA 1", b"AA 2")
    partition = broker.streams.get("flights").partition(0)
    assert (partition.log.end_offset, partition.log.high_watermark) == (2, 0)
    assert not first.there

    # "Soon": what came in one turn is written to the write-ahead log at once, and a sync is asked for.
    worker.run_soon()
    assert not first.there
    assert len(worker.jobs["sync"]) == 1

    # The sync runs. What is appended while it does is not covered by it: it waits for the next one.
    deliver = worker.start("sync")
    second = hand.produce("flights", b"AA 3")
    deliver()
    assert first.value == 0
    assert not second.there
    assert partition.log.high_watermark == 2

    # The rise of the high watermark has answered the consumer, well before its deadline and behind the producer.
    found = waiting.value

    # One more sync acknowledges the rest, which comes too late for that answer.
    assert worker.step("sync")
    assert second.value == 2
    assert [record.value for record in hand.read(found[0].slice)] == [b"AA 1", b"AA 2"]
    assert found[1].slice is None

    # Caught up, the consumer waits again; this time nothing comes, and after half a second it is told so.
    waiting, _ = hand.fetch(("flights", 0, 3), max_wait_ms=500)
    hand.advance(499)
    assert not waiting.there
    hand.advance(1)
    assert waiting.value[0].slice is None


def join_and_sync(hand: ManualBroker) -> None:
    broker, worker = hand.broker, hand.worker

    # Two members join a group. Its coordinator holds the first rebalance open for three seconds for more of them.
    ready: CallbackResult[None] = CallbackResult()
    broker.internal_streams.ensure_offsets(ready)
    hand.settle()
    assert ready.value is None

    def joining(name: str) -> CallbackResult[JoinResult]:
        answer: CallbackResult[JoinResult] = CallbackResult()
        request = JoinRequest("", None, name, False, name, "/here", 10_000, 60_000, "consumer", [("range", b"flights")])
        broker.groups.join("airlines", request, answer)
        return answer

    leader, follower = joining("a"), joining("b")
    hand.advance(2999)
    assert not leader.there
    hand.advance(3001)
    assert leader.value.leader_id == leader.value.member_id == "a"
    assert [member.member_id for member in leader.value.members] == ["a", "b"]
    assert (follower.value.generation, follower.value.members) == (1, ())

    # The leader brings the assignment; both get theirs once it is durable, and not a sync earlier.
    def syncing(name: str, *assignments: tuple[str, bytes]) -> CallbackResult[SyncResult]:
        answer: CallbackResult[SyncResult] = CallbackResult()
        broker.groups.sync("airlines", SyncRequest(name, None, 1, None, None, assignments), answer)
        return answer

    mine, others = syncing("b"), syncing("a", ("a", b"partition 0"), ("b", b"partition 1"))
    worker.run_soon()
    assert not mine.there
    hand.settle()
    assert (mine.value.assignment, others.value.assignment) == (b"partition 1", b"partition 0")
    assert broker.groups.describe("airlines").state is GroupState.STABLE


def commit(hand: ManualBroker, key: OffsetKey, offset: CommittedOffset) -> None:
    broker = hand.broker

    # A commit, too, is acknowledged when it is on disk.
    committed: CallbackResult[list[None]] = CallbackResult()
    broker.groups.commit("airlines", CommitMember("a", None, 1), [(key, offset)], committed)
    assert broker.groups.committed(key) is None
    hand.settle()
    assert committed.value == [None]
    assert broker.groups.committed(key) == offset


def let_a_session_lapse(hand: ManualBroker) -> None:
    broker = hand.broker

    # One of the two keeps sending signs of life. The session of the other lapses after ten seconds of silence.
    def heartbeat(name: str) -> BaseException | None:
        answer: CallbackResult[None] = CallbackResult()
        broker.groups.heartbeat("airlines", CommitMember(name, None, 1), answer)
        return answer.error

    for _ in range(3):
        hand.advance(3000)
        assert heartbeat("a") is None
    hand.advance(1000)
    assert broker.groups.describe("airlines").state is GroupState.PREPARING
    assert isinstance(heartbeat("b"), UnknownMember)


@pytest.mark.usefixtures("nothing_of_the_machine")
def test_produce_sync_fetch_join_and_a_session_that_lapses() -> None:
    hand = ManualBroker({"group.initial.rebalance.delay.ms": 3000})
    hand.create("flights", partitions=2)
    produce_sync_and_fetch(hand)
    join_and_sync(hand)
    key, offset = OffsetKey("airlines", "flights", 0), CommittedOffset(3, 1, "", hand.clock.wall_ms())
    commit(hand, key, offset)
    let_a_session_lapse(hand)

    # The power fails. Everything that was acknowledged is there afterwards: records, group and offsets.
    hand.crash()
    assert hand.values("flights") == [b"AA 1", b"AA 2", b"AA 3"]
    assert hand.broker.groups.committed(key) == offset
    assert hand.broker.groups.describe("airlines").snapshot.generation == 1


@pytest.mark.usefixtures("nothing_of_the_machine")
def test_what_is_forbidden_here_is_seen() -> None:
    with pytest.raises(AssertionError, match="the machine was touched"):
        time.sleep(0)
