"""Groups are moved to other offsets, durably and only while nobody is in them."""

import pytest

from duramen.base.errors import DuramenError, GroupNotEmpty, GroupNotFound, StreamNotFound
from duramen.base.positions import At, Last, Position, Since
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.offset_resets import OffsetReset, PlannedOffsets
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.groups.values import JoinRequest, JoinResult
from duramen.sim.broker import CallbackResult, ManualBroker

_STRANGER = CommitMember("", None, -1)


def _join(hand: ManualBroker) -> None:
    joined: CallbackResult[JoinResult] = CallbackResult()
    request = JoinRequest("", None, "m", False, "client", "/host", 10_000, 10_000, "consumer", [("range", b"")])
    hand.broker.groups.join("g", request, joined)
    hand.advance(100)
    assert joined.value


def _reset(hand: ManualBroker, wish: OffsetReset) -> list[PlannedOffsets]:
    answer: CallbackResult[list[PlannedOffsets]] = CallbackResult()
    hand.broker.resets.reset(wish, answer)
    hand.settle()
    return answer.value


def _committed(hand: ManualBroker) -> dict[tuple[str, int], int]:
    return {(key.topic, key.partition): found.offset for key, found in hand.broker.groups.all_committed("g")}


@pytest.fixture
def moved(hand: ManualBroker) -> ManualBroker:
    """Ten records, one a second, in partition 0 of `a`, and a group that has committed 4 of them; `b` is another."""
    hand.create("b")
    for at in range(10):
        hand.produce("a", b"%d" % at)
        hand.advance(1000)
    ensured: CallbackResult[None] = CallbackResult()
    hand.broker.internal_streams.ensure_offsets(ensured)
    hand.settle()
    done: CallbackResult[object] = CallbackResult()
    hand.broker.groups.commit("g", _STRANGER, [(OffsetKey("g", "a", 0), CommittedOffset(4, -1, "", 0))], done)
    hand.settle()
    return hand


@pytest.mark.parametrize(
    ("to", "offset"),
    [("start", 0), ("end", 10), (At(3), 3), (At(99), 10), (Last(2), 8), (Last(99), 0), (Since(0), 0)],
)
def test_every_position(moved: ManualBroker, to: Position, offset: int) -> None:
    expected = [PlannedOffsets("a", 0, 4, offset), PlannedOffsets("a", 1, None, 0), PlannedOffsets("a", 2, None, 0)]
    assert _reset(moved, OffsetReset("g", to, dry_run=True)) == expected
    assert _committed(moved) == {("a", 0): 4}
    assert _reset(moved, OffsetReset("g", to)) == expected
    moved.crash()
    assert _committed(moved) == {("a", 0): offset, ("a", 1): 0, ("a", 2): 0}


def test_a_time_is_the_first_record_at_or_after_it(moved: ManualBroker) -> None:
    now_ms = moved.clock.wall_ms()
    before = 4
    for since_ms, after in ((now_ms - 3500, 7), (now_ms - 3000, 7), (now_ms, 10)):
        assert _reset(moved, OffsetReset("g", Since(since_ms), partition=0)) == [PlannedOffsets("a", 0, before, after)]
        before = after


def test_nothing_is_answered_before_it_is_durable(moved: ManualBroker) -> None:
    answer: CallbackResult[list[PlannedOffsets]] = CallbackResult()
    moved.broker.resets.reset(OffsetReset("g", "start"), answer)
    moved.worker.run_soon()
    assert not answer.there
    moved.crash()
    assert _committed(moved) == {("a", 0): 4}
    assert not answer.there


def test_some_streams_and_partitions(moved: ManualBroker) -> None:
    assert _reset(moved, OffsetReset("g", "end", ["b", "a"], 0)) == [
        PlannedOffsets("b", 0, None, 0),
        PlannedOffsets("a", 0, 4, 10),
    ]
    assert _reset(moved, OffsetReset("g", "start", partition=2)) == [PlannedOffsets("a", 2, None, 0)]
    assert _reset(moved, OffsetReset("new", "end", ["a"], 0)) == [PlannedOffsets("a", 0, None, 10)]
    assert moved.broker.groups.describe("new").group_id == "new"


@pytest.mark.parametrize(
    ("wish", "error"),
    [
        (OffsetReset("nobody", "start"), GroupNotFound),
        (OffsetReset("g", "start", ["nope"]), StreamNotFound),
        (OffsetReset("g", "start", ["a", "b"], 2), StreamNotFound),
        (OffsetReset("g", "start", partition=9), StreamNotFound),
    ],
)
def test_what_is_not_there(moved: ManualBroker, wish: OffsetReset, error: type[DuramenError]) -> None:
    with pytest.raises(error):
        _reset(moved, wish)
    assert _committed(moved) == {("a", 0): 4}


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_group_with_members_stays_where_it_is(moved: ManualBroker, dry_run: bool) -> None:
    _join(moved)
    with pytest.raises(GroupNotEmpty, match="has 1 members: stop them first"):
        _reset(moved, OffsetReset("g", "start", dry_run=dry_run))
    assert _committed(moved) == {("a", 0): 4}


def test_somebody_joins_while_times_are_looked_up(moved: ManualBroker) -> None:
    moved.files.cold = True
    moved.advance(5000)  # what was appended is in segments only
    answer: CallbackResult[list[PlannedOffsets]] = CallbackResult()
    moved.broker.resets.reset(OffsetReset("g", Since(moved.clock.wall_ms() - 8000), ["a"], 0), answer)
    assert not answer.there
    _join(moved)
    with pytest.raises(GroupNotEmpty):
        assert answer.value
    assert _committed(moved) == {("a", 0): 4}
