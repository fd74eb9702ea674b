"""Times in which NATS was not listened to, as a broker keeps and shows them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.broker.gaps import OpenGap
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionId
from duramen.metadata.state import Gap
from duramen.sim.broker import CallbackResult, ManualBroker

_CAUSES = ("restart", "reconnect", "slow consumer")


def _create(hand: ManualBroker, name: str, *subjects: str) -> int:
    """Creates a stream a second from now; returns when that was."""
    hand.advance(1000)
    created: CallbackResult[None] = CallbackResult()
    hand.broker.create_stream(Definition(name, 1, {}, subjects), created)
    hand.settle()
    assert created.value is None
    return hand.broker.streams.get(name).state.created_at_ms


def _pass(hand: ManualBroker, length_ms: int, cause: str) -> Gap:
    """A gap begins now and ends `length_ms` later."""
    gaps, start_ms = hand.broker.gaps, hand.clock.wall_ms()
    gaps.begin(start_ms, cause)
    hand.advance(length_ms)
    gaps.end(hand.clock.wall_ms())
    hand.settle()
    return Gap(start_ms, start_ms + length_ms, cause)


def test_a_gap_is_kept_with_its_start_end_and_cause(hand: ManualBroker) -> None:
    _create(hand, "s", "x.>")
    _create(hand, "unbound")
    first, second = _pass(hand, 1500, "reconnect"), _pass(hand, 500, "slow consumer")
    third = _pass(hand, 1000, "reconnect")
    for _ in range(2):
        streams, metrics = hand.broker.streams, hand.metrics
        assert hand.broker.gaps.of(streams.get("s")) == (3, 3000, (first, second, third), None)
        assert hand.broker.gaps.of(streams.get("unbound")) == (0, 0, (), None)
        assert metrics.counter("duramen_nats_gaps_total", "s").value == 3
        assert metrics.counter("duramen_nats_gap_seconds_total", "s").value == 3
        for gap in (second, third):
            start = metrics.counter("duramen_nats_last_gap_start_seconds", "s", gap.cause).value
            end = metrics.counter("duramen_nats_last_gap_end_seconds", "s", gap.cause).value
            assert (start, end) == (gap.start_ms / 1000, gap.end_ms / 1000)
        hand.stop()
        hand.start()


def test_the_gap_there_is_now_is_shown_and_more_may_become_known_of_it(hand: ManualBroker) -> None:
    _create(hand, "s", "x")
    start_ms = hand.clock.wall_ms()
    gaps = hand.broker.gaps
    gaps.blame("nothing is wrong")
    gaps.begin(start_ms, "reconnect")
    gaps.begin(start_ms + 5, "one that is open goes on")
    assert gaps.of(hand.broker.streams.get("s")).open == OpenGap(start_ms, "reconnect")
    gaps.blame("server restart")
    created_ms = _create(hand, "later", "y")
    assert gaps.of(hand.broker.streams.get("later")).open == OpenGap(created_ms, "server restart")
    hand.advance(1000)
    gaps.end(hand.clock.wall_ms())
    hand.settle()
    assert gaps.of(hand.broker.streams.get("s")).recent == (Gap(start_ms, hand.clock.wall_ms(), "server restart"),)
    assert gaps.of(hand.broker.streams.get("later")).recent == (
        Gap(created_ms, hand.clock.wall_ms(), "server restart"),
    )


def test_gaps_of_partitions_are_their_streams_alone(hand: ManualBroker) -> None:
    _create(hand, "s", "x")
    _create(hand, "other", "y")
    gaps, streams, now_ms = hand.broker.gaps, hand.broker.streams, hand.clock.wall_ms()
    first, second = (PartitionId(streams.get("s").id, index) for index in range(2))
    gaps.begin_in(first, now_ms, "leader change")
    gaps.begin_in(first, now_ms + 5, "one that is open goes on")
    gaps.begin_in(second, now_ms + 10, "leader change")
    assert gaps.of(streams.get("s")).open == OpenGap(now_ms, "leader change")
    assert gaps.of(streams.get("other")).open is None
    gaps.end_in([first, second], now_ms + 100)
    gaps.end_in([first], now_ms + 200)
    gaps.begin_in(second, now_ms + 300, "reconnect")
    gaps.blame("server restart")
    gaps.end_in([second], now_ms + 400)
    for _ in range(2):
        hand.settle()
        expected = (Gap(now_ms, now_ms + 100, "leader change"), Gap(now_ms + 300, now_ms + 400, "server restart"))
        assert gaps.of(streams.get("s")) == (2, 200, expected, None)
        assert gaps.of(streams.get("other")) == (0, 0, (), None)
        hand.stop()
        hand.start()
        gaps, streams = hand.broker.gaps, hand.broker.streams


def test_a_gap_of_a_partition_that_cannot_be_kept_is_shown(hand: ManualBroker) -> None:
    _create(hand, "s", "x")
    _create(hand, "other", "y")
    gaps, streams, now_ms = hand.broker.gaps, hand.broker.streams, hand.clock.wall_ms()
    place = PartitionId(streams.get("s").id, 0)
    hand.broker.stop(lambda _: None)  # it takes no decisions any more
    gaps.begin_in(place, now_ms, "leader change")
    gaps.end_in([place], now_ms + 1)
    assert gaps.of(streams.get("s")).recent == (Gap(now_ms, now_ms + 1, "leader change"),)
    assert gaps.of(streams.get("other")).recent == ()


@pytest.mark.parametrize("length_ms", [0, -5])
def test_what_took_no_time_is_no_gap(hand: ManualBroker, length_ms: int) -> None:
    _create(hand, "s", "x")
    gaps = hand.broker.gaps
    gaps.end(hand.clock.wall_ms())
    gaps.begin(hand.clock.wall_ms(), "reconnect")
    gaps.end(hand.clock.wall_ms() + length_ms)
    hand.settle()
    assert gaps.of(hand.broker.streams.get("s")) == (0, 0, (), None)


def test_a_gap_that_cannot_be_kept_is_shown_and_kept_later(hand: ManualBroker) -> None:
    _create(hand, "s", "x")
    gaps, stream = hand.broker.gaps, hand.broker.streams.get("s")
    hand.broker.stop(lambda _: None)  # it takes no decisions any more
    gap = _pass(hand, 1000, "reconnect")
    assert gaps.of(stream) == (1, 1000, (gap,), None)
    assert hand.metrics.counter("duramen_nats_gaps_total", "s").value == 0


@given(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(_CAUSES)), max_size=12))
def test_against_a_list(found: list[tuple[int, int, str]]) -> None:
    hand = ManualBroker()
    _create(hand, "s", "x")
    kept = []
    for before_ms, length_ms, cause in found:
        hand.advance(before_ms)
        kept.append(_pass(hand, length_ms, cause))
    shown = hand.broker.gaps.of(hand.broker.streams.get("s"))
    assert shown == (len(kept), sum(gap.end_ms - gap.start_ms for gap in kept), tuple(kept), None)
