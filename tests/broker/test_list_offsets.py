"""How far partitions reach is asked of those that lead them: groups are reset and listed by that on any node."""

import pytest
from tests.broker.several import Several

from duramen.base.errors import DuramenError, NotLeader, RequestTimedOut
from duramen.base.positions import At, Last, Position, Since
from duramen.broker.list_offsets import FIND_BOUNDS, FindBounds, FoundBounds, ListOffsetsPartition, PartitionBounds
from duramen.codec.batch import BatchInput, check, encode
from duramen.coordinators.group.coordinator import CommitMember
from duramen.coordinators.group.listing import LIST_GROUPS, GroupRows, ListGroups
from duramen.coordinators.group.offset_resets import OffsetReset, PlannedOffsets
from duramen.groups.records import CommittedOffset, OffsetKey
from duramen.metadata.decisions import Definition
from duramen.metadata.partitions import PartitionState
from duramen.sim.broker import CallbackResult

RECORDS = 10
COMMITTED = 4
GROUP = "g"
HOME = 2
"""Who coordinates the group."""
LEADER = 3
"""Who alone holds what it reads."""


@pytest.fixture
def several() -> Several:
    """A stream of ten records, one a second, of which the group's coordinator holds nothing and has committed 4."""
    several = Several()
    several.ensure_offsets()
    created: CallbackResult[None] = CallbackResult()
    several.broker(1).create_stream(Definition("a", 1), created)
    several.settle()
    place = several.place("a")
    before = several.partitions[place]
    only = PartitionState((LEADER,), (LEADER,), LEADER, before.leader_epoch + 1, before.partition_epoch + 1)
    several.partitions[place] = only
    several.publish(place)
    several.advance(1000)
    partition = several.broker(LEADER).streams.get("a").partition(0)
    stored: list[int] = []
    for at in range(RECORDS):
        batch = encode([BatchInput(several.hands[LEADER].clock.wall_ms(), None, b"%d" % at)])
        partition.store(batch, check(batch), lambda offset, _: stored.append(offset))
        several.advance(1000)
    assert stored == [*range(RECORDS)]
    committed: CallbackResult[object] = CallbackResult()
    offset = (OffsetKey(GROUP, "a", 0), CommittedOffset(COMMITTED, -1, "", 0))
    several.broker(HOME).groups.commit(GROUP, CommitMember("", None, -1), [offset], committed)
    several.advance(1000)
    assert committed.value == [None]
    return several


def reset(several: Several, to: Position) -> list[PlannedOffsets]:
    """Where a dry run would have the group go on. Raises what it is refused with."""
    answer: CallbackResult[list[PlannedOffsets]] = CallbackResult()
    several.broker(HOME).resets.reset(OffsetReset(GROUP, to, dry_run=True), answer)
    several.settle()
    return answer.value


@pytest.mark.parametrize(("to", "offset"), [("start", 0), ("end", 10), (At(3), 3), (At(99), 10), (Last(2), 8)])
def test_a_group_goes_where_the_leader_says(several: Several, to: Position, offset: int) -> None:
    assert reset(several, to) == [PlannedOffsets("a", 0, COMMITTED, offset)]


def test_a_time_is_looked_up_by_the_leader(several: Several) -> None:
    now_ms = several.hands[LEADER].clock.wall_ms()
    for since_ms, after in ((0, 0), (now_ms - 4500, 7), (now_ms, RECORDS)):
        assert reset(several, Since(since_ms)) == [PlannedOffsets("a", 0, COMMITTED, after)]


def test_a_leader_that_does_not_answer_is_not_guessed_for(several: Several) -> None:
    several.cut = {LEADER}
    with pytest.raises(RequestTimedOut, match=f"node {LEADER}, the leader of the partition, does not respond"):
        reset(several, "end")
    place = several.place("a")
    several.partitions[place] = PartitionState((LEADER,), (LEADER,), None, 9, 9)
    with pytest.raises(NotLeader, match="partition 0 has no leader"):
        reset(several, "end")


def test_lists_tell_the_lag_that_the_leader_knows(several: Several) -> None:
    def lag() -> int | None:
        found: CallbackResult[GroupRows | DuramenError] = CallbackResult()
        several.broker(1).caller.call(HOME, LIST_GROUPS, ListGroups("", 10), found)
        several.settle()
        assert isinstance(found.value, GroupRows)
        (row,) = found.value.rows
        return row.lag_records

    assert lag() == RECORDS - COMMITTED
    several.cut = {LEADER}
    assert lag() is None


def test_the_time_of_the_first_record_that_is_lacked(several: Several) -> None:
    bounds = several.broker(HOME).bounds
    (stream,) = (state for name, state in several.state.streams.items() if name == "a")
    found: CallbackResult[list[PartitionBounds | DuramenError]] = CallbackResult()
    bounds.find([ListOffsetsPartition(stream.id.bytes, 0, offset=at) for at in (COMMITTED, RECORDS)], found)
    several.settle()
    first, last = found.value
    assert isinstance(first, PartitionBounds)
    assert isinstance(last, PartitionBounds)
    assert (first.start_offset, first.end_offset, last.timestamp_ms) == (0, RECORDS, -1)
    assert first.timestamp_ms > 0


def test_what_is_not_there_is_said_so(several: Several) -> None:
    wishes = [
        ListOffsetsPartition(bytes(16), 0),
        ListOffsetsPartition(b"short", 0),
        ListOffsetsPartition(several.state.streams["a"].id.bytes, 7),
    ]
    found: CallbackResult[FoundBounds | DuramenError] = CallbackResult()
    several.broker(1).caller.call(LEADER, FIND_BOUNDS, FindBounds(wishes), found)
    several.settle()
    assert isinstance(found.value, FoundBounds)
    assert [(bounds, refused is None) for bounds, refused in found.value.partitions] == [(None, False)] * 3
