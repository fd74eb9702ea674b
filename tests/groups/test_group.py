"""The classic protocol's rules, one by one."""

import pytest
from tests.groups.driver import Driver

from duramen.base.errors import (
    GroupFull,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdRequired,
    RebalanceInProgress,
    StorageFailed,
    UnknownMember,
)
from duramen.groups.group import FOLLOWING
from duramen.groups.values import GroupState

# -- joining ---------------------------------------------------------------------------------------


def test_one_member_joins_syncs_and_is_stable() -> None:
    drive = Driver()
    joined = drive.join(protocols=[("range", b"topics")]).joined
    assert (joined.generation, joined.protocol_type, joined.protocol) == (1, "consumer", "range")
    assert joined.leader_id == joined.member_id
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"topics")]
    assert drive.state() is GroupState.COMPLETING
    assert drive.sync(joined.member_id, assignments={joined.member_id: b"all"}).assigned == b"all"
    assert drive.state() is GroupState.STABLE


def test_two_step_join() -> None:
    """KIP-394: who has no id gets one and joins again with it; until then the group does not know it."""
    drive = Driver()
    first = drive.join(id_required=True)
    assert first.refused is MemberIdRequired
    assert isinstance(first.result, MemberIdRequired)
    given = first.result.member_id
    assert drive.state() is GroupState.EMPTY
    assert drive.heartbeat(given, 0) is UnknownMember
    assert drive.join(given).joined.member_id == given


def test_an_id_that_was_never_used_lapses_with_the_session_timeout() -> None:
    drive = Driver()
    first = drive.join(id_required=True, session_ms=500)
    assert isinstance(first.result, MemberIdRequired)
    drive.advance(500)
    assert drive.group.untouched
    assert drive.join(first.result.member_id).refused is UnknownMember


@pytest.mark.parametrize("how", ["it lapses", "it leaves"])
def test_an_id_that_was_never_used_does_not_disturb_a_stable_group(how: str) -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    first = drive.join(id_required=True, session_ms=500)
    assert isinstance(first.result, MemberIdRequired)
    if how == "it lapses":
        drive.advance(500)
    else:
        assert drive.leave(first.result.member_id) is None
    assert drive.state() is GroupState.STABLE
    assert drive.heartbeat(known) is None


@pytest.mark.parametrize("how", ["it lapses", "it leaves", "it joins"])
def test_a_rebalance_waits_for_ids_that_were_given_out(how: str) -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    first = drive.join(id_required=True, session_ms=500)
    assert isinstance(first.result, MemberIdRequired)
    drive.join()
    again = drive.join(known)
    assert again.result is None
    if how == "it lapses":
        drive.advance(500)
    elif how == "it leaves":
        drive.leave(first.result.member_id)
    else:
        drive.join(first.result.member_id)
    assert again.joined.generation == 2


def test_a_second_member_makes_the_first_one_join_again() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    second = drive.join()
    assert second.result is None
    assert drive.heartbeat(known) is RebalanceInProgress
    assert drive.join(known).joined.generation == 2
    assert second.joined.generation == 2
    assert second.joined.leader_id == known
    assert second.joined.members == ()


def test_a_join_that_is_repeated_is_answered_again() -> None:
    """The answer was lost on the way: neither a new member nor a new generation comes of it."""
    drive = Driver()
    first, second = drive.stable(None, None)
    generation = drive.group.generation
    again = drive.join(second)
    assert (again.joined.generation, again.joined.leader_id) == (generation, first)
    assert drive.state() is GroupState.STABLE


def test_a_join_repeated_before_the_assignment_is_answered_again() -> None:
    drive = Driver()
    leader = drive.join().joined.member_id
    assert drive.state() is GroupState.COMPLETING
    again = drive.join(leader).joined
    assert (again.generation, len(again.members)) == (1, 1)
    assert drive.state() is GroupState.COMPLETING


def test_the_leader_joins_again_to_assign_anew() -> None:
    drive = Driver()
    leader, follower = drive.stable(None, None)
    drive.join(leader)
    assert drive.state() is GroupState.PREPARING
    assert drive.heartbeat(follower) is RebalanceInProgress


def test_a_member_that_wants_something_else_starts_a_rebalance() -> None:
    drive = Driver()
    _, follower = drive.stable(None, None)
    drive.join(follower, protocols=[("range", b"other topics")])
    assert drive.state() is GroupState.PREPARING


def test_a_second_join_of_a_waiting_member_answers_the_first() -> None:
    drive = Driver()
    (_,) = drive.stable(None)
    first = drive.join()
    waiting = [member.id for member in drive.group.members if member.joining is not None]
    assert waiting[0]
    second = drive.join(waiting[0])
    assert first.refused is RebalanceInProgress
    assert second.result is None


@pytest.mark.parametrize("member_id", ["nobody", "m-99"])
def test_an_unknown_id_is_refused(member_id: str) -> None:
    drive = Driver()
    drive.stable(None)
    assert drive.join(member_id).refused is UnknownMember
    assert drive.sync(member_id).refused is UnknownMember
    assert drive.heartbeat(member_id) is UnknownMember
    assert drive.commit(member_id) is UnknownMember
    assert drive.leave(member_id) is UnknownMember


def test_group_max_size() -> None:
    drive = Driver(max_size=2)
    first, second = drive.stable(None, None)
    assert drive.join().refused is GroupFull
    assert drive.join(id_required=True).refused is GroupFull
    assert drive.join(instance="new").refused is GroupFull
    assert drive.join(second).joined.member_id == second
    assert drive.leave(first) is None
    third = drive.join()
    drive.join(second)
    assert third.joined.generation == drive.group.generation


def test_group_max_size_counts_again_when_an_id_is_used() -> None:
    drive = Driver(max_size=1)
    first = drive.join(id_required=True)
    assert isinstance(first.result, MemberIdRequired)
    drive.join()
    assert drive.join(first.result.member_id).refused is GroupFull


# -- protocols -------------------------------------------------------------------------------------


def test_protocols_have_to_be_named() -> None:
    drive = Driver()
    assert drive.join(protocols=[]).refused is InconsistentProtocol
    assert drive.join(protocol_type="").refused is InconsistentProtocol


def test_another_protocol_type_or_no_common_protocol_is_refused() -> None:
    drive = Driver()
    drive.stable(None)
    assert drive.join(protocol_type="connect").refused is InconsistentProtocol
    assert drive.join(protocols=[("sticky", b"")]).refused is InconsistentProtocol


def test_a_member_that_is_alone_may_change_its_protocols() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    assert drive.join(known, protocols=[("sticky", b"")]).joined.protocol == "sticky"


def test_the_protocol_that_most_prefer_of_those_that_all_know() -> None:
    drive = Driver()
    first = drive.join(protocols=[("a", b""), ("b", b""), ("c", b"")]).joined.member_id
    drive.join(protocols=[("c", b"2"), ("b", b"2")])
    drive.join(protocols=[("c", b"3"), ("b", b"3"), ("a", b"3")])
    joined = drive.join(first, protocols=[("a", b"1"), ("b", b"1"), ("c", b"1")]).joined
    assert joined.protocol == "c"
    assert [member.metadata for member in joined.members] == [b"1", b"2", b"3"]


def test_a_sync_that_names_other_protocols_is_refused() -> None:
    drive = Driver()
    known = drive.join().joined.member_id
    assert drive.sync(known, protocol_type="connect").refused is InconsistentProtocol
    assert drive.sync(known, protocol="sticky").refused is InconsistentProtocol
    assert drive.sync(known, protocol_type="consumer", protocol="range").result is not None


# -- the first rebalance ---------------------------------------------------------------------------


def test_an_empty_group_waits_for_more_members() -> None:
    """KIP-134: nobody is answered before the delay is over, although everybody there has joined."""
    drive = Driver(initial_delay_ms=300)
    first = drive.join()
    drive.advance(299)
    assert first.result is None
    drive.advance(1)
    assert first.joined.generation == 1


def test_the_delay_is_extended_while_members_come_but_not_beyond_the_rebalance_timeout() -> None:
    drive = Driver(initial_delay_ms=300)
    first = drive.join(rebalance_ms=1000)
    for _ in range(3):
        drive.advance(299)
        drive.join(rebalance_ms=1000)
        drive.advance(1)
        assert first.result is None
    drive.advance(99)
    assert first.result is None
    drive.advance(1)
    assert len(first.joined.members) == 4


def test_the_delay_holds_for_the_first_rebalance_only() -> None:
    drive = Driver(initial_delay_ms=300)
    first = drive.join()
    drive.advance(300)
    drive.sync(first.joined.member_id, assignments={})
    second = drive.join()
    drive.join(first.joined.member_id)
    assert second.joined.generation == 2


def test_who_leaves_during_the_delay_does_not_end_it() -> None:
    drive = Driver(initial_delay_ms=300)
    first = drive.join()
    second = drive.join()
    gone = [member.id for member in drive.group.members][1]
    drive.leave(gone)
    assert second.refused is UnknownMember
    assert first.result is None
    drive.advance(300)
    drive.advance(300)
    assert len(first.joined.members) == 1


# -- assigning -------------------------------------------------------------------------------------


def test_assignments_are_given_when_they_are_stored_and_no_earlier() -> None:
    drive = Driver()
    leader, follower = drive.stable(None, None)
    drive.join(leader)
    drive.join(follower)
    drive.hold_stores = True
    early = drive.sync(follower)
    leads = drive.sync(leader, assignments={leader: b"1", follower: b"2"})
    late = drive.join(follower)
    assert (early.result, leads.result) == (None, None)
    assert late.joined.generation == drive.group.generation
    drive.store()
    assert (early.assigned, leads.assigned) == (b"2", b"1")
    assert drive.sync(follower).assigned == b"2"


def test_an_assignment_that_could_not_be_stored_begins_a_rebalance() -> None:
    drive = Driver()
    leader, follower = drive.stable(None, None)
    drive.join(leader)
    drive.join(follower)
    drive.hold_stores = True
    asked = drive.sync(follower), drive.sync(leader, assignments={})
    drive.store(fail=True)
    assert [request.refused for request in asked] == [StorageFailed, StorageFailed]
    assert drive.state() is GroupState.PREPARING


def test_a_rebalance_that_begins_while_the_assignment_is_stored_wins() -> None:
    drive = Driver()
    leader = drive.join().joined.member_id
    drive.hold_stores = True
    asked = drive.sync(leader, assignments={leader: b"old"})
    drive.join()
    assert asked.refused is RebalanceInProgress
    drive.store()
    assert drive.state() is GroupState.PREPARING
    assert drive.group.members.known(leader, None).assignment == b""


def test_who_is_not_assigned_anything_gets_nothing() -> None:
    drive = Driver()
    leader, follower = drive.stable(None, None)
    drive.join(leader)
    drive.join(follower)
    drive.sync(leader, assignments={leader: b"all", "a stranger": b"?"})
    assert drive.sync(follower).assigned == b""


def test_generations_that_are_over() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    assert drive.sync(known, generation=0).refused is IllegalGeneration
    assert drive.heartbeat(known, generation=2) is IllegalGeneration
    assert drive.commit(known, generation=0) is IllegalGeneration


def test_a_sync_during_a_rebalance() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    drive.join()
    assert drive.sync(known).refused is RebalanceInProgress


# -- time ------------------------------------------------------------------------------------------


def test_a_session_lapses_without_signs_of_life() -> None:
    drive = Driver()
    first, second = drive.stable(None, None)
    for _ in range(4):
        drive.advance(900)
        assert drive.heartbeat(first) in (None, RebalanceInProgress)
    assert [member.id for member in drive.group.members] == [first]
    assert drive.heartbeat(second) is UnknownMember
    assert drive.join(first).joined.generation == drive.group.generation


def test_commits_and_syncs_are_signs_of_life_too() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    for act in (drive.commit, drive.sync, drive.heartbeat) * 2:
        drive.advance(999)
        act(known)
    assert [member.id for member in drive.group.members] == [known]


def test_the_last_session_that_lapses_empties_the_group() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    drive.advance(1000)
    assert drive.state() is GroupState.EMPTY
    assert (drive.group.generation, drive.group.leader_id, drive.group.protocol) == (2, None, None)
    assert drive.stored == drive.group.snapshot()
    assert drive.join(known).refused is UnknownMember
    assert drive.join().joined.generation == 3


def test_who_does_not_join_again_in_time_is_out() -> None:
    drive = Driver()
    first, second = drive.stable(None, None)
    newcomer = drive.join()
    for _ in range(5):
        drive.advance(500)
        drive.heartbeat(first)
        drive.heartbeat(second)
    drive.join(first)
    drive.advance(499)
    drive.heartbeat(second)
    assert newcomer.result is None
    drive.advance(1)
    assert newcomer.joined.generation == drive.group.generation
    assert second not in [member.id for member in drive.group.members]


def test_a_member_that_waits_for_the_others_does_not_lapse() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    newcomer = drive.join(session_ms=100)
    for _ in range(5):
        drive.advance(500)
        drive.heartbeat(known)
    assert newcomer.result is None
    drive.join(known)
    assert newcomer.joined.generation == 2


def test_who_never_asks_for_its_assignment_is_out_after_the_rebalance_timeout() -> None:
    drive = Driver()
    leader, follower = drive.stable(None, None)
    drive.join(leader)
    drive.join(follower)
    drive.sync(leader, assignments={})
    assert drive.state() is GroupState.STABLE
    for _ in range(6):
        drive.advance(500)
        drive.heartbeat(leader)
        drive.heartbeat(follower)
    assert [member.id for member in drive.group.members] == [leader]
    assert drive.state() is GroupState.PREPARING


def test_a_leader_that_never_assigns_is_out_after_the_rebalance_timeout() -> None:
    drive = Driver()
    leader, follower = drive.stable(None, None)
    drive.join(leader)
    drive.join(follower)
    asked = drive.sync(follower)
    for _ in range(6):
        drive.advance(500)
        drive.heartbeat(leader)
    assert asked.refused is RebalanceInProgress
    assert drive.group.leader_id == follower


# -- leaving ---------------------------------------------------------------------------------------


def test_leaving_starts_a_rebalance_of_the_rest() -> None:
    drive = Driver()
    first, second = drive.stable(None, None)
    assert drive.leave(first) is None
    assert drive.heartbeat(second) is RebalanceInProgress
    assert drive.join(second).joined.leader_id == second


def test_the_last_one_that_leaves_empties_the_group() -> None:
    drive = Driver()
    (known,) = drive.stable(None)
    assert drive.leave(known) is None
    assert drive.state() is GroupState.EMPTY
    assert drive.leave(known) is UnknownMember


def test_leaving_completes_a_rebalance_that_waited_for_the_one_that_left() -> None:
    drive = Driver()
    first, second = drive.stable(None, None)
    waiting = drive.join(first)
    assert waiting.result is None
    drive.leave(second)
    assert waiting.joined.generation == drive.group.generation


def test_who_waits_and_leaves_is_told() -> None:
    drive = Driver()
    drive.stable(None)
    waiting = drive.join()
    gone = [member.id for member in drive.group.members if member.joining is not None]
    drive.leave(gone[0])
    assert waiting.refused is UnknownMember


# -- the end ---------------------------------------------------------------------------------------


def test_a_group_that_is_removed_tells_whoever_waits() -> None:
    drive = Driver()
    drive.stable(None)
    waiting = drive.join()
    drive.group.close()
    drive.settle()
    assert waiting.refused is UnknownMember
    assert drive.join().refused is UnknownMember
    assert drive.group.next_deadline_ms() is None


def test_a_rebalance_timeout_of_nothing_never_hangs() -> None:
    drive = Driver()
    drive.join(rebalance_ms=-5)
    drive.advance(1)
    assert drive.state() is GroupState.EMPTY


def test_the_states_follow_each_other_as_kafka_says() -> None:
    assert {(state.value, after.value) for state, following in FOLLOWING.items() for after in following} == {
        ("Empty", "PreparingRebalance"),
        ("Empty", "Dead"),
        ("PreparingRebalance", "CompletingRebalance"),
        ("PreparingRebalance", "Empty"),
        ("PreparingRebalance", "Dead"),
        ("CompletingRebalance", "Stable"),
        ("CompletingRebalance", "PreparingRebalance"),
        ("CompletingRebalance", "Dead"),
        ("Stable", "PreparingRebalance"),
        ("Stable", "Dead"),
    }
